//! One member of a group of the newer protocol (KIP-848): a heartbeat says what the member has, and its
//! answer what it is to have.
//!
//! ```text
//! Idle --answer with another share--> Given --LookAt--> Named --Take--> Idle, and at once a heartbeat
//!  ^                                                                     |   Ask when due, Consume
//!  +------- GiveBack <------ Fenced <------------------------------------+
//! ```
//!
//! A heartbeat brings only what has changed since the last that was answered; after a failure the
//! coordinator may be another, so the next one says everything.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use thalweg_protocol::ErrorCode;
use thalweg_protocol::messages::consumer_group_heartbeat_request::TopicPartitions;
use thalweg_protocol::messages::consumer_group_heartbeat_response::Assignment;
use thalweg_protocol::messages::{ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse};
use thalweg_types::Uuid;

use crate::error::Result;
use crate::membership::{
    Action, Answer, Farewell, FoundTopics, GroupOptions, Loss, Membership, Mended, Question, Seat,
    Taken, millis,
};

/// Epochs that mean something else.
const JOINING: i32 = 0;
const LEAVING: i32 = -1;
/// A static member that may come again.
const AWAY: i32 = -2;

/// A partition as the coordinator names it.
type Place = (Uuid, i32);

#[derive(Debug)]
enum Stage {
    Idle,
    Given(Vec<Place>),
    Named(Vec<(Place, String)>),
    Fenced,
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Newer {
    seat: Seat,
    assignor: Option<String>,
    stage: Stage,
    epoch: i32,
    heartbeat_due: Instant,
    /// What it reads.
    owned: Vec<Place>,
    /// What the coordinator knows that it reads; nothing when all is to be said again.
    told: Option<Vec<Place>>,
    /// Whether it has taken a share since it joined.
    has_share: bool,
    /// Partitions of its share whose topics no broker could name yet.
    unnamed: bool,
}

impl Newer {
    pub(crate) fn new(
        options: GroupOptions,
        assignor: Option<String>,
        id: Uuid,
        now: Instant,
    ) -> Newer {
        Newer {
            seat: Seat::new(options, id.to_string()),
            assignor,
            stage: Stage::Idle,
            epoch: JOINING,
            heartbeat_due: now,
            owned: Vec::new(),
            told: None,
            has_share: false,
            unnamed: false,
        }
    }

    fn is_due(&self, now: Instant) -> bool {
        now >= self.heartbeat_due || self.told.as_ref() != Some(&self.owned)
    }

    fn heartbeat(&self) -> ConsumerGroupHeartbeatRequest {
        let mut request = ConsumerGroupHeartbeatRequest {
            group_id: self.seat.options.group_id.clone(),
            member_id: self.seat.member_id.clone(),
            member_epoch: self.epoch,
            instance_id: self.seat.options.instance_id.clone(),
            ..Default::default()
        };
        if self.told.is_none() {
            request.rebalance_timeout_ms = millis(self.seat.options.rebalance_timeout);
            request.subscribed_topic_names = Some(self.seat.options.topics.clone());
            request.server_assignor.clone_from(&self.assignor);
        }
        if self.told.as_ref() != Some(&self.owned) {
            request.topic_partitions = Some(by_topic(&self.owned));
        }
        request
    }

    fn on_heartbeat(
        &mut self,
        now: Instant,
        answer: &ConsumerGroupHeartbeatResponse,
    ) -> Result<()> {
        if answer.error_code != 0 {
            self.told = None;
            self.on_refusal("join", answer.error_code)?;
            return Ok(());
        }
        if let Some(id) = answer.member_id.as_ref().filter(|id| !id.is_empty()) {
            self.seat.member_id.clone_from(id);
        }
        self.epoch = answer.member_epoch;
        let interval = u64::try_from(answer.heartbeat_interval_ms).unwrap_or(0);
        self.heartbeat_due = now + Duration::from_millis(interval);
        let is_first = self.told.replace(self.owned.clone()).is_none() && !self.has_share;
        match answer.assignment.as_ref().map(places) {
            // Others may have to give up theirs first: the next heartbeat knows more.
            Some(share) if share.is_empty() && is_first => {}
            Some(share) if share == self.owned && self.has_share => self.unnamed = false,
            Some(share) => self.stage = Stage::Given(share),
            None if !self.has_share => self.stage = Stage::Given(Vec::new()),
            // It is named in full only to who says everything.
            None if self.unnamed => self.told = None,
            None => {}
        }
        Ok(())
    }

    fn fence(&mut self) {
        self.epoch = JOINING;
        self.stage = Stage::Fenced;
    }
}

impl Membership for Newer {
    fn seat(&self) -> &Seat {
        &self.seat
    }

    fn seat_mut(&mut self) -> &mut Seat {
        &mut self.seat
    }

    fn identity(&self) -> (&str, i32) {
        (&self.seat.member_id, self.epoch)
    }

    fn next(&self, now: Instant) -> Action {
        match &self.stage {
            // Neither needs the coordinator.
            Stage::Fenced => Action::GiveBack(Loss::Fenced),
            Stage::Given(_) => Action::LookAt(self.seat.options.topics.clone()),
            Stage::Idle | Stage::Named(_) if !self.seat.has_coordinator => Action::FindCoordinator,
            Stage::Named(share) => {
                let named = share.iter().map(|((_, at), name)| (name.clone(), *at));
                Action::Take(named.collect())
            }
            Stage::Idle if self.is_due(now) => Action::Ask,
            Stage::Idle => Action::Consume,
        }
    }

    fn on_coordinator_lost(&mut self) {
        self.seat.has_coordinator = false;
        self.told = None;
    }

    fn question(&self) -> Result<Question> {
        Ok(Question::Newer(self.heartbeat()))
    }

    fn on_answer(&mut self, now: Instant, answer: &Answer) -> Result<()> {
        match answer {
            Answer::Newer(answer) => self.on_heartbeat(now, answer),
            Answer::Join(_) | Answer::Sync(_) | Answer::Heartbeat(_) => Ok(()), // never asked
        }
    }

    fn on_topics(&mut self, topics: &FoundTopics) -> Result<()> {
        if let Stage::Given(share) = &self.stage {
            let names = topics.iter().map(|(name, (id, _))| (*id, name));
            let names: BTreeMap<Uuid, &String> = names.collect();
            let name = |place: &Place| Some((*place, (*names.get(&place.0)?).clone()));
            let named: Vec<_> = share.iter().filter_map(name).collect();
            self.unnamed = named.len() < share.len();
            self.stage = Stage::Named(named);
        }
        Ok(())
    }

    fn on_taken(&mut self, _: Taken) {
        if let Stage::Named(share) = &self.stage {
            self.owned = share.iter().map(|(place, _)| *place).collect();
            self.has_share = true;
            self.stage = Stage::Idle;
        }
    }

    fn on_given_back(&mut self) {
        self.owned.clear();
        self.told = None;
        self.has_share = false;
        self.stage = Stage::Idle;
    }

    fn mend(&mut self, refusal: ErrorCode) -> Mended {
        match refusal {
            ErrorCode::UnknownMemberId | ErrorCode::FencedMemberEpoch => self.fence(),
            // An answer with a newer epoch was lost; the next heartbeat brings it again.
            ErrorCode::StaleMemberEpoch => self.told = None,
            _other => return Mended::No,
        }
        Mended::Yes
    }

    fn farewell(&self) -> Farewell {
        if self.epoch == JOINING {
            return Farewell::None;
        }
        Farewell::Newer(ConsumerGroupHeartbeatRequest {
            group_id: self.seat.options.group_id.clone(),
            member_id: self.seat.member_id.clone(),
            member_epoch: match self.seat.options.instance_id {
                Some(_) => AWAY,
                None => LEAVING,
            },
            instance_id: self.seat.options.instance_id.clone(),
            ..Default::default()
        })
    }
}

/// In order, so that two shares can be compared.
fn places(assignment: &Assignment) -> Vec<Place> {
    let topics = assignment.topic_partitions.iter();
    let mut places: Vec<Place> = topics
        .flat_map(|topic| topic.partitions.iter().map(|at| (topic.topic_id, *at)))
        .collect();
    places.sort_unstable();
    places
}

fn by_topic(places: &[Place]) -> Vec<TopicPartitions> {
    let mut topics: BTreeMap<Uuid, Vec<i32>> = BTreeMap::new();
    for (topic_id, at) in places {
        topics.entry(*topic_id).or_default().push(*at);
    }
    let row = |(topic_id, partitions)| TopicPartitions {
        topic_id,
        partitions,
    };
    topics.into_iter().map(row).collect()
}
