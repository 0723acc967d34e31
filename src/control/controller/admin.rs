//! What administrators ask for: settings, more partitions, records to forget.

use std::sync::Arc;
use std::time::Duration;

use thalweg_metadata::ReplicaHome;
use thalweg_metadata::controller::Decision;
use thalweg_protocol::ErrorCode;
use thalweg_protocol::messages::{
    AlterConfigsRequest, AlterConfigsResponse, CreatePartitionsRequest, CreatePartitionsResponse,
    IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse,
};
use thalweg_reactor::time;
use thalweg_storage::{LogError, PartitionName, StartKept};
use thalweg_types::limits::NOT_RECORDED_SAID_EVERY_MS;
use thalweg_types::{Offset, TopicPartition};

use super::Controller;
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
                let _ = reply.send(self.create_partitions(&request).await);
            }
            AdminRequest::LogStarts { starts, reply } => {
                let _ = reply.send(self.record_log_starts(starts).await);
            }
            AdminRequest::Cleaned { cleaned, reply } => {
                let _ = reply.send(self.record_cleaned(cleaned).await);
            }
            AdminRequest::Progress { progress, reply } => {
                let _ = reply.send(self.record_progress(progress).await);
            }
            AdminRequest::BeginMove {
                id,
                to,
                durable,
                reply,
            } => {
                let _ = reply.send(self.begin_move(id, to, durable).await);
            }
            AdminRequest::EndMove { id, outcome, reply } => {
                let _ = reply.send(self.end_move(id, outcome).await);
            }
            AdminRequest::Marks { marks, reply } => {
                let _ = reply.send(self.record_marks(marks).await);
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
    ) -> CreatePartitionsResponse {
        let view = Arc::clone(&self.view);
        let Decision {
            records,
            mut answer,
        } = self.decisions(&view.image).create_partitions(request);
        let rows = answer.results.iter_mut();
        let rows = rows.map(|row| (&mut row.error_code, &mut row.error_message));
        self.commit_or_refuse("partitions not created", records, rows)
            .await;
        answer
    }

    /// Makes durable where logs begin. A partition that is gone meanwhile gets no entry: the next one
    /// of its name would inherit it (ST-13).
    async fn record_log_starts(
        &mut self,
        starts: Vec<(TopicPartition, Offset)>,
    ) -> Result<StartKept, ErrorCode> {
        let recorded = self.dirs.record_log_starts(self.with_ids(starts)).await;
        let hold = matches!(recorded, Err(LogError::StartsHold(_)));
        match self.told(recorded, "log starts") {
            Ok(()) => Ok(StartKept::Durable),
            Err(code) if hold => Err(code),
            Err(_) => Ok(StartKept::ByFirstSegment),
        }
    }

    async fn record_cleaned(
        &mut self,
        cleaned: Vec<(TopicPartition, Offset)>,
    ) -> Result<(), ErrorCode> {
        let recorded = self.dirs.record_cleaned(self.with_ids(cleaned)).await;
        self.told(recorded, "ends of compaction")
    }

    async fn record_progress(
        &mut self,
        progress: Vec<(TopicPartition, LogProgress)>,
    ) -> Result<(), ErrorCode> {
        let recorded = self.dirs.record_progress(self.with_ids(progress)).await;
        self.told(recorded, "recovery points")
    }

    async fn record_marks(
        &mut self,
        marks: Vec<(TopicPartition, Offset)>,
    ) -> Result<(), ErrorCode> {
        let recorded = self.dirs.record_marks(self.with_ids(marks)).await;
        self.told(recorded, "marks of what is written")
    }

    async fn begin_move(
        &mut self,
        id: TopicPartition,
        to: DirIndex,
        durable: Offset,
    ) -> Result<(), ErrorCode> {
        let named = self.named(vec![(id, ())]);
        let (name, ()) = named.first().ok_or(ErrorCode::UnknownTopicOrPartition)?;
        let begun = self.dirs.begin_move(name, id, to, durable).await;
        self.told(
            begun,
            "the checkpoints of a log directory that a partition moves to",
        )
    }

    /// The partition is where it is; then the metadata says so.
    async fn end_move(
        &mut self,
        id: TopicPartition,
        outcome: MoveOutcome,
    ) -> Result<(), ErrorCode> {
        let named = self.named(vec![(id, ())]);
        let (name, ()) = named.first().ok_or(ErrorCode::UnknownTopicOrPartition)?;
        let ended = self.dirs.end_move(name, id, outcome).await;
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
            Ok(()) => ended,
            Err(error) => {
                tracing::error!(%error, partition = %name,
                    "the metadata does not say to which log directory it moved; the next start says it");
                Err(ErrorCode::KafkaStorageError)
            }
        }
    }

    /// The outcome for who asked. It is asked again and again: a disk without room is said once in a while, and
    /// so is that it has some again.
    fn told(
        &mut self,
        recorded: Result<(), LogError>,
        what: &'static str,
    ) -> Result<(), ErrorCode> {
        let now = time::now();
        let Err(error) = recorded else {
            if self.not_recorded.remove(what).is_some() {
                tracing::info!(what, "made durable again");
            }
            return Ok(());
        };
        let every = Duration::from_millis(NOT_RECORDED_SAID_EVERY_MS);
        let said = self.not_recorded.get(what);
        if said.is_none_or(|said| now.saturating_duration_since(*said) >= every) {
            tracing::error!(%error, what, "not made durable");
            self.not_recorded.insert(what, now);
        }
        Err(ErrorCode::KafkaStorageError)
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
