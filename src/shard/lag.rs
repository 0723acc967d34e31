//! This shard's part in saying how far groups are behind: what its groups have committed, and how far
//! that is from the ends of its partitions. Asked by scrapes; worked on in slices.

use std::rc::Rc;

use thalweg_control::{
    Behind, GroupPosition, GroupQuestion, MemberNames, Positioned, Positions, RebalanceLine,
};
use thalweg_group::{Names, Position, Rebalance};
use thalweg_reactor::task;
use thalweg_types::{PartitionIndex, TopicPartition};

use crate::coordinator::Home;
use crate::pace::Pace;
use crate::retention::limits_of;
use crate::shard::Shard;

impl Shard {
    /// Answers by and by, beside whatever else the control plane wants.
    pub(crate) fn answer_about_groups(self: &Rc<Shard>, question: GroupQuestion) {
        let shard = Rc::clone(self);
        task::spawn(async move {
            // Whoever asked may have gone.
            match question {
                GroupQuestion::Positions { of, reply } => {
                    let _ = reply.send(shard.positions(of).await);
                }
                GroupQuestion::History { group, reply } => {
                    let _ = reply.send(shard.history(&group));
                }
                GroupQuestion::Behind { asks, reply } => {
                    let _ = reply.send(shard.behind(asks).await);
                }
            }
        });
    }

    /// The last rebalances of a group that is here.
    fn history(&self, group: &str) -> Option<Vec<RebalanceLine>> {
        let home = self.coordinators.home(self.home_of(group)?)?;
        let names = |names: Names| MemberNames {
            members: names.first.into_iter().map(String::from).collect(),
            more: names.more,
        };
        let line = |one: Rebalance| RebalanceLine {
            began_ms: one.began.0,
            cause: one.cause.name().to_owned(),
            generation: one.generation,
            took_ms: one.took_ms,
            unowned_ms: one.unowned_ms,
            joined: names(one.joined),
            left: names(one.left),
            timed_out: names(one.timed_out),
        };
        Some(home.history(group)?.into_iter().map(line).collect())
    }

    /// What groups here have committed.
    async fn positions(&self, of: Positioned) -> Positions {
        match of {
            Positioned::Group(group) => {
                let home = self
                    .home_of(&group)
                    .and_then(|id| self.coordinators.home(id));
                let mut rows = Vec::new();
                if let Some(home) = home {
                    let mut pace = Pace::default();
                    self.add_rows(&home, &group, usize::MAX, &mut rows, &mut pace)
                        .await;
                }
                Positions { rows, left_out: 0 }
            }
            Positioned::All { rows_max } => self.all_positions(rows_max).await,
        }
    }

    /// In the order of names, so that each time the same ones are left out.
    async fn all_positions(&self, rows_max: usize) -> Positions {
        let homes = self.coordinators.homes();
        let mut names: Vec<(Rc<str>, usize)> = Vec::new();
        let mut offsets = 0;
        for (at, home) in homes.iter().enumerate() {
            offsets += home.offsets();
            let named = home.name_groups(rows_max).await.into_iter();
            names.extend(named.map(|name| (name, at)));
            // Each is a row at least.
            if names.len() > rows_max {
                names.select_nth_unstable(rows_max);
                names.truncate(rows_max);
            }
        }
        names.sort_unstable();
        let mut rows = Vec::new();
        let mut pace = Pace::default();
        for (name, at) in names {
            self.add_rows(&homes[at], &name, rows_max, &mut rows, &mut pace)
                .await;
        }
        Positions {
            left_out: (offsets as u64).saturating_sub(rows.len() as u64),
            rows,
        }
    }

    /// Adds what a group has committed until there are `rows_max`, with the partitions that the names stand for
    /// now, and their owners. Offsets of a topic that is gone are about to end.
    async fn add_rows(
        &self,
        home: &Home,
        group: &str,
        rows_max: usize,
        rows: &mut Vec<GroupPosition>,
        pace: &mut Pace,
    ) {
        let mut last = None;
        while rows.len() < rows_max {
            let page = home.positions(group, last.as_ref());
            for position in &page {
                pace.step().await;
                if rows.len() == rows_max {
                    return;
                }
                rows.extend(self.row(group, position));
            }
            last = page.into_iter().next_back();
            if last.is_none() {
                return;
            }
        }
    }

    fn row(&self, group: &str, position: &Position) -> Option<GroupPosition> {
        let view = self.view();
        let id = TopicPartition {
            topic: view.image.topic(&position.topic)?.id,
            partition: PartitionIndex(position.partition),
        };
        Some(GroupPosition {
            group: group.to_owned(),
            topic: position.topic.as_ref().to_owned(),
            id,
            offset: position.offset,
            owner: usize::from(view.owner(id)?.0),
        })
    }

    /// How far offsets are behind, of partitions here; `None` for another's.
    async fn behind(&self, asks: Vec<(TopicPartition, i64)>) -> Vec<Option<Behind>> {
        let mut answers = Vec::with_capacity(asks.len());
        let mut pace = Pace::default();
        for (id, offset) in asks {
            let config = self.topic_config(id.topic);
            answers.push(match (self.partition(id), config) {
                (Some(partition), Some(config)) => {
                    Some(partition.behind(offset, limits_of(&config)).await)
                }
                (None, _) | (_, None) => None,
            });
            pace.step().await;
        }
        answers
    }
}
