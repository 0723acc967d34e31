//! Deleting topics, by name or by id (KIP-516).

use std::collections::HashMap;
use std::sync::Arc;

use thalweg_protocol::ErrorCode;
use thalweg_protocol::messages::delete_topics_response::DeletableTopicResult;
use thalweg_protocol::messages::{DeleteTopicsRequest, DeleteTopicsResponse, RemoveTopicRecord};
use thalweg_types::TopicId;

use super::{Controller, Decision, TopicRefusal};
use crate::image::Topic;

/// First version that knows TOPIC_DELETION_DISABLED.
const DELETION_DISABLED_FROM: i16 = 3;

/// A topic as a request names it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Named {
    name: Option<String>,
    id: TopicId,
}

impl Controller<'_> {
    /// Decides a DeleteTopics request of that `version`: each topic by itself.
    pub fn delete_topics(
        &self,
        request: &DeleteTopicsRequest,
        version: i16,
    ) -> Decision<DeleteTopicsResponse> {
        let mut records = Vec::new();
        let mut responses = Vec::new();
        for (named, found, times) in self.resolved(request) {
            let verdict = self.may_delete(&named, found.as_deref(), times, version);
            match verdict {
                Ok(topic) => {
                    records.push(RemoveTopicRecord { topic_id: topic.id }.into());
                    responses.push(DeletableTopicResult {
                        name: Some(topic.name.to_string()),
                        topic_id: topic.id,
                        error_code: ErrorCode::None.code(),
                        error_message: None,
                    });
                }
                Err(refusal) => responses.push(DeletableTopicResult {
                    name: named.name,
                    topic_id: named.id,
                    error_code: refusal.code.code(),
                    error_message: Some(refusal.message),
                }),
            }
        }
        Decision {
            records,
            answer: DeleteTopicsResponse {
                throttle_time_ms: 0,
                responses,
            },
        }
    }

    /// Each topic that the request names, once, with what it resolves to and how often the request
    /// names it (a name and an id of the same topic count together).
    fn resolved(&self, request: &DeleteTopicsRequest) -> Vec<(Named, Option<Arc<Topic>>, usize)> {
        let by_state = request.topics.iter().map(|t| Named {
            name: t.name.clone(),
            id: t.topic_id,
        });
        let by_name = request.topic_names.iter().map(|name| Named {
            name: Some(name.clone()),
            id: TopicId::ZERO,
        });
        let mut places: HashMap<Named, usize> = HashMap::new();
        let mut each: Vec<(Named, Option<Arc<Topic>>, usize)> = Vec::new();
        for named in by_state.chain(by_name) {
            let found = self.find(&named).cloned();
            let key = found.as_ref().map_or_else(
                || named.clone(),
                |topic| Named {
                    name: Some(topic.name.to_string()),
                    id: topic.id,
                },
            );
            let place = *places.entry(key).or_insert_with(|| {
                each.push((named, found, 0));
                each.len() - 1
            });
            each[place].2 += 1;
        }
        each
    }

    fn find(&self, named: &Named) -> Option<&Arc<Topic>> {
        match &named.name {
            Some(name) if named.id.is_zero() => self.image.topic(name),
            Some(_) => None,
            None => self.image.topic_by_id(named.id),
        }
    }

    fn may_delete<'t>(
        &self,
        named: &Named,
        found: Option<&'t Topic>,
        times: usize,
        version: i16,
    ) -> Result<&'t Topic, TopicRefusal> {
        let refuse = |code, text: &str| Err(TopicRefusal::new(code, text));
        if !self.config.delete_topic_enable() {
            let code = if version >= DELETION_DISABLED_FROM {
                ErrorCode::TopicDeletionDisabled
            } else {
                ErrorCode::InvalidRequest
            };
            return refuse(code, "Topic deletion is disabled.");
        }
        match (&named.name, named.id.is_zero()) {
            (None, true) => {
                return refuse(
                    ErrorCode::InvalidRequest,
                    "Neither topic name nor id were specified.",
                );
            }
            (Some(_), false) => {
                return refuse(
                    ErrorCode::InvalidRequest,
                    "You may not specify both topic name and topic id.",
                );
            }
            (Some(_), true) | (None, false) => {}
        }
        if times > 1 {
            return refuse(
                ErrorCode::InvalidRequest,
                "The topic is named more than once.",
            );
        }
        let Some(topic) = found else {
            return match named.name {
                Some(_) => refuse(
                    ErrorCode::UnknownTopicOrPartition,
                    "This server does not host this topic-partition.",
                ),
                None => refuse(
                    ErrorCode::UnknownTopicId,
                    "This server does not host this topic ID.",
                ),
            };
        };
        if topic.is_internal() {
            // Losing one of these loses every group's offsets or every transaction's state.
            let text = "Internal topics can not be deleted.";
            return refuse(ErrorCode::InvalidTopicException, text);
        }
        Ok(topic)
    }
}
