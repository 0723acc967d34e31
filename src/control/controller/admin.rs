//! What administrators ask for: settings, more partitions, records to forget.

use std::sync::Arc;

use thalweg_metadata::Controller as Decisions;
use thalweg_protocol::ErrorCode;
use thalweg_protocol::messages::{
    AlterConfigsRequest, AlterConfigsResponse, CreatePartitionsRequest, CreatePartitionsResponse,
    IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse,
};
use thalweg_storage::PartitionName;
use thalweg_types::{Offset, TopicPartition};

use super::{Controller, NOT_DURABLE};
use crate::requests::AdminRequest;

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
        }
    }

    async fn alter_configs_by_steps(
        &mut self,
        request: &IncrementalAlterConfigsRequest,
    ) -> IncrementalAlterConfigsResponse {
        let view = Arc::clone(&self.view);
        let decision = Decisions::new(&view.image, &self.config, &mut *self.random)
            .alter_configs_by_steps(request);
        let mut answer = decision.answer;
        if let Err(error) = self.commit(decision.records).await {
            tracing::error!(%error, "settings not changed");
            let rows = answer.responses.iter_mut();
            for row in rows.filter(|row| row.error_code == 0) {
                row.error_code = ErrorCode::KafkaStorageError.code();
                row.error_message = Some(NOT_DURABLE.to_owned());
            }
        }
        self.loggers.alter(request, &mut answer);
        answer
    }

    async fn alter_configs(&mut self, request: &AlterConfigsRequest) -> AlterConfigsResponse {
        let view = Arc::clone(&self.view);
        let decision =
            Decisions::new(&view.image, &self.config, &mut *self.random).alter_configs(request);
        let mut answer = decision.answer;
        if let Err(error) = self.commit(decision.records).await {
            tracing::error!(%error, "settings not changed");
            let rows = answer.responses.iter_mut();
            for row in rows.filter(|row| row.error_code == 0) {
                row.error_code = ErrorCode::KafkaStorageError.code();
                row.error_message = Some(NOT_DURABLE.to_owned());
            }
        }
        answer
    }

    async fn create_partitions(
        &mut self,
        request: &CreatePartitionsRequest,
    ) -> CreatePartitionsResponse {
        let view = Arc::clone(&self.view);
        let decision = self.decisions(&view.image).create_partitions(request);
        let mut answer = decision.answer;
        if let Err(error) = self.commit(decision.records).await {
            tracing::error!(%error, "partitions not created");
            for row in answer.results.iter_mut().filter(|row| row.error_code == 0) {
                row.error_code = ErrorCode::KafkaStorageError.code();
                row.error_message = Some(NOT_DURABLE.to_owned());
            }
        }
        answer
    }

    /// Makes durable where logs begin. A partition that is gone meanwhile gets no entry: the next one
    /// of its name would inherit it (ST-13).
    async fn record_log_starts(
        &mut self,
        starts: Vec<(TopicPartition, Offset)>,
    ) -> Result<(), ErrorCode> {
        let image = &self.view.image;
        let named = starts.into_iter().filter_map(|(id, start)| {
            image.partition(id)?;
            let topic = image.topic_by_id(id.topic)?;
            Some((
                PartitionName::new(topic.name.to_string(), id.partition.0),
                start,
            ))
        });
        let named: Vec<_> = named.collect();
        match self.checkpoints.record_log_starts(named).await {
            Ok(()) => Ok(()),
            Err(error) => {
                tracing::error!(%error, "log starts not made durable");
                Err(ErrorCode::KafkaStorageError)
            }
        }
    }
}
