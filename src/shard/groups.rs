//! The way from a request to the coordinator of its group.

use thalweg_group::{Answer, Ask, Caller, partition_of};
use thalweg_metadata::names::OFFSETS_TOPIC;
use thalweg_protocol::ErrorCode;
use thalweg_reactor::oneshot;
use thalweg_types::limits::GROUPS_ASKED_AT_ONCE;
use thalweg_types::{PartitionIndex, TopicPartition};

use crate::api::keep_first_of_each;
use crate::coordinator::GroupAsk;
use crate::growing::Growing;
use crate::peer::PeerRequest;
use crate::service::Call;
use crate::shard::Shard;

/// An answer on its way from a coordinator.
pub(crate) struct GroupAnswer(Result<oneshot::Receiver<Answer>, ErrorCode>);

impl GroupAnswer {
    /// The answer.
    ///
    /// # Errors
    /// NOT_COORDINATOR when there is no coordinator, or when it goes away instead of answering.
    pub(crate) async fn get<T: TryFrom<Answer>>(self) -> Result<T, ErrorCode> {
        let answer = self.0?.await.ok_or(ErrorCode::NotCoordinator)?;
        T::try_from(answer).map_err(|_| ErrorCode::UnknownServerError)
    }
}

impl Shard {
    /// The partition of the offsets topic whose coordinator has `group`.
    pub(crate) fn home_of(&self, group: &str) -> Option<TopicPartition> {
        let view = self.view();
        let topic = view.image.topic(OFFSETS_TOPIC)?;
        let partitions = i32::try_from(topic.partitions.len()).ok()?;
        (partitions > 0).then(|| TopicPartition {
            topic: topic.id,
            partition: PartitionIndex(partition_of(group, partitions)),
        })
    }

    /// Puts a question to the coordinator of `group`. When this returns, the question stands behind
    /// all earlier ones of the same connection.
    pub(crate) async fn ask_group(&self, group: &str, call: &Call, ask: Ask) -> GroupAnswer {
        match self.home_of(group) {
            Some(home) => self.ask_home(home, call, ask).await,
            None => GroupAnswer(Err(ErrorCode::NotCoordinator)),
        }
    }

    /// Puts a question about each group to its coordinator, and gathers the rows of the answer, whose codes
    /// are found by `code` and whose bytes `weight` tells. A group that is named twice is asked about once.
    pub(crate) async fn ask_each<R: TryFrom<Answer>>(
        &self,
        mut groups: Vec<String>,
        call: &Call,
        growing: &mut Growing,
        ask: impl Fn(String) -> Ask,
        (code, weight): (impl Fn(&R) -> i16, impl Fn(&R) -> usize),
    ) -> Vec<R> {
        keep_first_of_each(&mut groups, call.pace(), String::clone).await;
        let mut rows = Vec::with_capacity(groups.len());
        for some in groups.chunks(GROUPS_ASKED_AT_ONCE) {
            let mut asked = Vec::with_capacity(some.len());
            for id in some {
                asked.push((id, self.ask_group(id, call, ask(id.clone())).await));
            }
            for (id, coming) in asked {
                let row = match coming.get().await {
                    Ok(row) => Some(row),
                    Err(error) => R::try_from(ask(id.clone()).refused(error)).ok(),
                };
                if let Some(row) = &row {
                    self.count_error(call.key, code(row));
                    growing.grow(weight(row)).await;
                }
                rows.extend(row);
            }
        }
        rows
    }

    /// As [`Shard::ask_group`], by partition.
    pub(crate) async fn ask_home(
        &self,
        home: TopicPartition,
        call: &Call,
        ask: Ask,
    ) -> GroupAnswer {
        let Some(owner) = self.view().owner(home) else {
            return GroupAnswer(Err(ErrorCode::NotCoordinator));
        };
        let (reply, answer) = oneshot::channel();
        let request = GroupAsk {
            home,
            caller: caller(call),
            ask,
            reply,
        };
        if owner == self.id {
            self.coordinators.ask(request);
        } else {
            let request = PeerRequest::Group(Box::new(request));
            self.ask_peer(usize::from(owner.0), request).await;
        }
        GroupAnswer(Ok(answer))
    }
}

fn caller(call: &Call) -> Caller {
    Caller {
        client_id: call.client_id.clone().unwrap_or_default(),
        // As Kafka writes an address without a name.
        client_host: format!("/{}", call.conn.peer().ip()),
        version: call.version,
    }
}
