//! Topics that come and go, and producer ids.

use std::sync::Arc;

use thalweg_metadata::Decision;
use thalweg_metadata::controller::{InternalTopic, ProducerIdBlock, TopicRefusal};
use thalweg_protocol::ErrorCode;
use thalweg_protocol::messages::{
    CreateTopicsRequest, CreateTopicsResponse, DeleteTopicsRequest, DeleteTopicsResponse,
};
use thalweg_types::TopicId;

use super::{Controller, Rest, refused as refused_for};
use crate::requests::AutoCreated;

impl Controller {
    pub(super) async fn create_topics(
        &mut self,
        request: &CreateTopicsRequest,
    ) -> (CreateTopicsResponse, Rest) {
        let view = Arc::clone(&self.view);
        let (request, refused) = self.without_leaving(request);
        let Decision {
            records,
            mut answer,
        } = self.decisions(&view.image).create_topics(&request);
        let rows = answer.topics.iter_mut();
        let rows = rows.map(|row| (&mut row.error_code, &mut row.error_message));
        let committed = self.commit_or_refuse("topics not created", records, rows);
        let rest = committed.await;
        answer.topics.extend(refused);
        (answer, rest)
    }

    pub(super) async fn auto_create(&mut self, names: &[String]) -> Vec<AutoCreated> {
        let refused = names.iter().filter_map(|name| {
            let refusal = self.leaving(name)?;
            Some((name.clone(), Err(come_again(refusal))))
        });
        let refused: Vec<AutoCreated> = refused.collect();
        let names = names.iter().map(String::as_str);
        let names: Vec<&str> = names.filter(|name| self.leaving(name).is_none()).collect();
        let view = Arc::clone(&self.view);
        let decision = self.decisions(&view.image).auto_create(&names);
        let mut answer = decision.answer;
        if let Err(error) = self.commit(decision.records).await {
            tracing::error!(%error, "topics not created");
            for (_, outcome) in answer.iter_mut().filter(|(_, outcome)| outcome.is_ok()) {
                *outcome = Err(come_again(refused_for(&error)));
            }
        }
        answer.extend(refused);
        answer
    }

    pub(super) async fn create_internal(
        &mut self,
        topic: InternalTopic,
    ) -> Result<TopicId, TopicRefusal> {
        let view = Arc::clone(&self.view);
        if let Some(refusal) = self.leaving(topic.name()) {
            return Err(refusal);
        }
        let decision = self.decisions(&view.image).create_internal(topic);
        let created = decision.answer?;
        match self.commit(decision.records).await {
            Ok(_) if self.is_arriving(created) => Err(TopicRefusal {
                code: ErrorCode::RequestTimedOut,
                message: "the disk of a log directory does not answer".to_owned(),
            }),
            Ok(_) => Ok(created),
            Err(error) => {
                tracing::error!(topic = topic.name(), %error, "topic not created");
                Err(refused_for(&error))
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
    ) -> (DeleteTopicsResponse, Rest) {
        let view = Arc::clone(&self.view);
        let Decision {
            records,
            mut answer,
        } = self.decisions(&view.image).delete_topics(request, version);
        let rows = answer.responses.iter_mut();
        let rows = rows.map(|row| (&mut row.error_code, &mut row.error_message));
        let committed = self.commit_or_refuse("topics not deleted", records, rows);
        let rest = committed.await;
        (answer, rest)
    }
}

/// A refusal as Metadata tells it, which has no code for what takes longer.
fn come_again(refusal: TopicRefusal) -> TopicRefusal {
    match refusal.code {
        ErrorCode::RequestTimedOut => TopicRefusal {
            code: ErrorCode::LeaderNotAvailable,
            ..refusal
        },
        _other => refusal,
    }
}
