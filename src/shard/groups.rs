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

/// What a coordinator tells of one group, in one page or in several.
pub(crate) trait OfGroup: TryFrom<Answer> {
    fn error_code(&self) -> i16;

    /// Bytes, roughly.
    fn weight(&self) -> usize;

    /// Behind what there is more to ask for.
    fn rest(&mut self) -> Option<String> {
        None
    }

    /// Takes in a later page.
    fn append(&mut self, _later: Self) {}
}

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

    /// Puts the question that `ask` makes of a group, and of where its coordinator goes on, about each group, and
    /// gathers the rows of the answer. A group that is named twice is asked about once.
    pub(crate) async fn ask_each<R: OfGroup>(
        &self,
        mut groups: Vec<String>,
        call: &Call,
        growing: &mut Growing,
        ask: impl Fn(String, Option<String>) -> Ask,
    ) -> Vec<R> {
        keep_first_of_each(&mut groups, call.pace(), String::clone).await;
        let mut rows = Vec::with_capacity(groups.len());
        for some in groups.chunks(GROUPS_ASKED_AT_ONCE) {
            let mut asked = Vec::with_capacity(some.len());
            for id in some {
                let coming = self.ask_group(id, call, ask(id.clone(), None)).await;
                asked.push((id, coming));
            }
            for (id, coming) in asked {
                let row: Option<R> = self.whole(id, coming, call, growing, &ask).await;
                if let Some(row) = &row {
                    self.count_error(call.key, row.error_code());
                }
                rows.extend(row);
            }
        }
        rows
    }

    /// Asks until all of a group is told, of which the first page is coming.
    async fn whole<R: OfGroup>(
        &self,
        id: &str,
        mut coming: GroupAnswer,
        call: &Call,
        growing: &mut Growing,
        ask: impl Fn(String, Option<String>) -> Ask,
    ) -> Option<R> {
        let mut told: Option<R> = None;
        loop {
            let mut page: R = match coming.get().await {
                Ok(page) => page,
                Err(error) => return R::try_from(ask(id.to_owned(), None).refused(error)).ok(),
            };
            growing.grow(page.weight()).await;
            let rest = page.rest();
            match &mut told {
                Some(told) if page.error_code() == 0 => told.append(page),
                // Also when that is said of a later page: what is known by then would pass for all.
                Some(_) | None => told = Some(page),
            }
            let Some(after) = rest else {
                return told;
            };
            let more = ask(id.to_owned(), Some(after));
            coming = self.ask_group(id, call, more).await;
        }
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
        client_id: call.client_id.as_deref().unwrap_or_default().to_owned(),
        // As Kafka writes an address without a name.
        client_host: format!("/{}", call.conn.peer().ip()),
        version: call.version,
    }
}
