//! What administrators ask for: settings, more partitions, records to forget.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use thalweg_metadata::ReplicaHome;
use thalweg_metadata::controller::Decision;
use thalweg_protocol::ErrorCode;
use thalweg_protocol::messages::{
    AlterConfigsRequest, AlterConfigsResponse, CreatePartitionsRequest, CreatePartitionsResponse,
    IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse,
};
use thalweg_reactor::time::{self, Instant};
use thalweg_reactor::{oneshot, task};
use thalweg_storage::{LogError, PartitionName, StartKept};
use thalweg_types::limits::NOT_RECORDED_SAID_EVERY_MS;
use thalweg_types::{Offset, TopicPartition};

use super::{Controller, Rest, when_done};
use crate::log_dirs::DirIndex;
use crate::requests::{AdminRequest, LogProgress, MoveOutcome, QuorumState};

impl Controller {
    pub(super) async fn administer(&mut self, request: AdminRequest) {
        // A client that is gone does not undo what it asked for.
        match request {
            AdminRequest::AlterConfigsBySteps { request, reply } => {
                let _ = reply.send(self.alter_configs_by_steps(&request).await);
            }
            AdminRequest::AlterConfigs { request, reply } => {
                let _ = reply.send(self.alter_configs(&request).await);
            }
            AdminRequest::CreatePartitions { request, reply } => {
                let (answer, rest) = self.create_partitions(&request).await;
                when_done(rest, request.timeout_ms, answer, reply);
            }
            AdminRequest::LogStarts { starts, reply } => {
                send_when(self.record_log_starts(starts), reply);
            }
            AdminRequest::Cleaned { cleaned, reply } => {
                send_when(self.record_cleaned(cleaned), reply);
            }
            AdminRequest::Progress { progress, reply } => {
                send_when(self.record_progress(progress), reply);
            }
            AdminRequest::BeginMove {
                id,
                to,
                durable,
                reply,
            } => {
                send_when(self.begin_move(id, to, durable), reply);
            }
            AdminRequest::EndMove { id, outcome, reply } => {
                self.end_move(id, outcome, reply).await;
            }
            AdminRequest::Marks { marks, reply } => {
                send_when(self.record_marks(marks), reply);
            }
            AdminRequest::Quorum { reply } => {
                let _ = reply.send(self.quorum());
            }
        }
    }

    fn quorum(&self) -> QuorumState {
        QuorumState {
            epoch: self.log.epoch(),
            end: self.log.end(),
            directory: self.dirs.metadata().meta().directory_id,
        }
    }

    async fn alter_configs_by_steps(
        &mut self,
        request: &IncrementalAlterConfigsRequest,
    ) -> IncrementalAlterConfigsResponse {
        let view = Arc::clone(&self.view);
        let Decision {
            records,
            mut answer,
        } = self.decisions(&view.image).alter_configs_by_steps(request);
        let rows = answer.responses.iter_mut();
        let rows = rows.map(|row| (&mut row.error_code, &mut row.error_message));
        self.commit_or_refuse("settings not changed", records, rows)
            .await;
        self.loggers.alter(request, &mut answer);
        answer
    }

    async fn alter_configs(&mut self, request: &AlterConfigsRequest) -> AlterConfigsResponse {
        let view = Arc::clone(&self.view);
        let Decision {
            records,
            mut answer,
        } = self.decisions(&view.image).alter_configs(request);
        let rows = answer.responses.iter_mut();
        let rows = rows.map(|row| (&mut row.error_code, &mut row.error_message));
        self.commit_or_refuse("settings not changed", records, rows)
            .await;
        answer
    }

    async fn create_partitions(
        &mut self,
        request: &CreatePartitionsRequest,
    ) -> (CreatePartitionsResponse, Rest) {
        let view = Arc::clone(&self.view);
        let Decision {
            records,
            mut answer,
        } = self.decisions(&view.image).create_partitions(request);
        let rows = answer.results.iter_mut();
        let rows = rows.map(|row| (&mut row.error_code, &mut row.error_message));
        let committed = self.commit_or_refuse("partitions not created", records, rows);
        let rest = committed.await;
        (answer, rest)
    }

    /// Makes durable where logs begin. A partition that is gone meanwhile gets no entry: the next one
    /// of its name would inherit it (ST-13).
    fn record_log_starts(
        &self,
        starts: Vec<(TopicPartition, Offset)>,
    ) -> impl Future<Output = Result<StartKept, ErrorCode>> + use<> {
        let recorded = self.dirs.record_log_starts(self.with_ids(starts));
        let said = Rc::clone(&self.not_recorded);
        async move {
            let recorded = recorded.await;
            let hold = matches!(recorded, Err(LogError::StartsHold(_)));
            match told(&said, recorded, "log starts") {
                Ok(()) => Ok(StartKept::Durable),
                Err(code) if hold => Err(code),
                Err(_) => Ok(StartKept::ByFirstSegment),
            }
        }
    }

    fn record_cleaned(
        &self,
        cleaned: Vec<(TopicPartition, Offset)>,
    ) -> impl Future<Output = Result<(), ErrorCode>> + use<> {
        let recorded = self.dirs.record_cleaned(self.with_ids(cleaned));
        self.told(recorded, "ends of compaction")
    }

    fn record_progress(
        &self,
        progress: Vec<(TopicPartition, LogProgress)>,
    ) -> impl Future<Output = Result<(), ErrorCode>> + use<> {
        let recorded = self.dirs.record_progress(self.with_ids(progress));
        self.told(recorded, "recovery points")
    }

    fn record_marks(
        &self,
        marks: Vec<(TopicPartition, Offset)>,
    ) -> impl Future<Output = Result<(), ErrorCode>> + use<> {
        let recorded = self.dirs.record_marks(self.with_ids(marks));
        self.told(recorded, "marks of what is written")
    }

    fn begin_move(
        &mut self,
        id: TopicPartition,
        to: DirIndex,
        durable: Offset,
    ) -> impl Future<Output = Result<(), ErrorCode>> + use<> {
        let named = self.named(vec![(id, ())]);
        let name = named.into_iter().next().map(|(name, ())| name);
        let begun = name.map(|name| {
            let begun = self.dirs.begin_move(&name, id, to, durable);
            self.told(
                begun,
                "the checkpoints of a log directory that a partition moves to",
            )
        });
        async { begun.ok_or(ErrorCode::UnknownTopicOrPartition)?.await }
    }

    /// The partition is where it is; then the metadata says so.
    async fn end_move(
        &mut self,
        id: TopicPartition,
        outcome: MoveOutcome,
        reply: oneshot::Sender<Result<(), ErrorCode>>,
    ) {
        let named = self.named(vec![(id, ())]);
        let Some((name, ())) = named.first() else {
            let _ = reply.send(Err(ErrorCode::UnknownTopicOrPartition));
            return;
        };
        let ended = self.dirs.end_move(name, id, outcome);
        let ended = self.told(
            ended,
            "the checkpoints of a log directory that a partition left",
        );
        let view = Arc::clone(&self.view);
        let (image, local) = (&view.image, view.broker_id);
        let home = |at| {
            let home = self.dirs.replica_home(image, local, at);
            home.filter(|_| at == id)
        };
        let mut records = image.settle_directories(local, home);
        // The directory that it came from may have failed meanwhile.
        let works = |at| matches!(home(at), Some(ReplicaHome::In(_)));
        records.extend(image.elect_for_leaderless(local, works));
        match self.commit(records).await {
            Ok(_) => send_when(ended, reply),
            Err(error) => {
                tracing::error!(%error, partition = %name,
                    "the metadata does not say to which log directory it moved; the next start says it");
                let _ = reply.send(Err(ErrorCode::KafkaStorageError));
            }
        }
    }

    /// The outcome for who asked.
    fn told<F: Future<Output = Result<(), LogError>>>(
        &self,
        recording: F,
        what: &'static str,
    ) -> impl Future<Output = Result<(), ErrorCode>> + use<F> {
        let said = Rc::clone(&self.not_recorded);
        async move { told(&said, recording.await, what) }
    }

    /// As [`Controller::named`], with the ids.
    pub(super) fn with_ids<T>(
        &self,
        told: Vec<(TopicPartition, T)>,
    ) -> Vec<(PartitionName, (TopicPartition, T))> {
        let with_ids = told.into_iter().map(|(id, what)| (id, (id, what)));
        self.named(with_ids.collect())
    }

    /// What is told of partitions that are deleted meanwhile is left out: their names may be others'.
    pub(super) fn named<T>(&self, told: Vec<(TopicPartition, T)>) -> Vec<(PartitionName, T)> {
        let image = &self.view.image;
        let named = told.into_iter().filter_map(|(id, what)| {
            image.partition(id)?;
            let topic = image.topic_by_id(id.topic)?;
            let name = PartitionName::new(topic.name.to_string(), id.partition.0);
            Some((name, what))
        });
        named.collect()
    }
}

/// Answers by and by: a disk that does not answer holds up no other request.
fn send_when<A: Send + 'static>(
    answer: impl Future<Output = A> + 'static,
    reply: oneshot::Sender<A>,
) {
    task::spawn(async move { drop(reply.send(answer.await)) });
}

/// The outcome for who asked. It is asked again and again: a disk without room is said once in a while, and
/// so is that it has some again.
fn told(
    not_recorded: &RefCell<BTreeMap<&'static str, Instant>>,
    recorded: Result<(), LogError>,
    what: &'static str,
) -> Result<(), ErrorCode> {
    let now = time::now();
    let mut not_recorded = not_recorded.borrow_mut();
    let Err(error) = recorded else {
        if not_recorded.remove(what).is_some() {
            tracing::info!(what, "made durable again");
        }
        return Ok(());
    };
    let every = Duration::from_millis(NOT_RECORDED_SAID_EVERY_MS);
    let said = not_recorded.get(what);
    if said.is_none_or(|said| now.saturating_duration_since(*said) >= every) {
        tracing::error!(%error, what, "not made durable");
        not_recorded.insert(what, now);
    }
    Err(ErrorCode::KafkaStorageError)
}
