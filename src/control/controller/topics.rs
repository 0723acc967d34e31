//! Topics that come and go, and producer ids.

use std::sync::Arc;

use thalweg_metadata::Decision;
use thalweg_metadata::controller::{InternalTopic, ProducerIdBlock, TopicRefusal};
use thalweg_protocol::ErrorCode;
use thalweg_protocol::messages::{
    CreateTopicsRequest, CreateTopicsResponse, DeleteTopicsRequest, DeleteTopicsResponse,
};
use thalweg_types::TopicId;

use super::{Controller, not_durable};
use crate::requests::AutoCreated;

impl Controller {
    pub(super) async fn create_topics(
        &mut self,
        request: &CreateTopicsRequest,
    ) -> CreateTopicsResponse {
        let view = Arc::clone(&self.view);
        let Decision {
            records,
            mut answer,
        } = self.decisions(&view.image).create_topics(request);
        let rows = answer.topics.iter_mut();
        let rows = rows.map(|row| (&mut row.error_code, &mut row.error_message));
        self.commit_or_refuse("topics not created", records, rows)
            .await;
        answer
    }

    pub(super) async fn auto_create(&mut self, names: &[String]) -> Vec<AutoCreated> {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let view = Arc::clone(&self.view);
        let decision = self.decisions(&view.image).auto_create(&names);
        let mut answer = decision.answer;
        if let Err(error) = self.commit(decision.records).await {
            tracing::error!(%error, "topics not created");
            for (_, outcome) in answer.iter_mut().filter(|(_, outcome)| outcome.is_ok()) {
                *outcome = Err(not_durable());
            }
        }
        answer
    }

    pub(super) async fn create_internal(
        &mut self,
        topic: InternalTopic,
    ) -> Result<TopicId, TopicRefusal> {
        let view = Arc::clone(&self.view);
        let decision = self.decisions(&view.image).create_internal(topic);
        let created = decision.answer?;
        match self.commit(decision.records).await {
            Ok(()) => Ok(created),
            Err(error) => {
                tracing::error!(topic = topic.name(), %error, "topic not created");
                Err(not_durable())
            }
        }
    }

    pub(super) async fn producer_ids(&mut self) -> Result<ProducerIdBlock, ErrorCode> {
        let view = Arc::clone(&self.view);
        let local = self.config.node_id();
        let decision = self.decisions(&view.image).producer_ids(local);
        if let Err(error) = self.commit(decision.records).await {
            tracing::error!(%error, "no producer ids given out");
            // What Kafka says while it has no block: come again.
            return Err(ErrorCode::CoordinatorLoadInProgress);
        }
        decision.answer.ok_or(ErrorCode::UnknownServerError)
    }

    pub(super) async fn delete_topics(
        &mut self,
        request: &DeleteTopicsRequest,
        version: i16,
    ) -> DeleteTopicsResponse {
        let view = Arc::clone(&self.view);
        let Decision {
            records,
            mut answer,
        } = self.decisions(&view.image).delete_topics(request, version);
        let rows = answer.responses.iter_mut();
        let rows = rows.map(|row| (&mut row.error_code, &mut row.error_message));
        self.commit_or_refuse("topics not deleted", records, rows)
            .await;
        answer
    }
}
