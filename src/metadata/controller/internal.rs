//! Creating the topics that the broker keeps for itself.

use thalweg_protocol::ErrorCode;
use thalweg_protocol::messages::CreateTopicsRequest;
use thalweg_protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use thalweg_types::TopicId;

use super::{Controller, Decision, TopicRefusal};
use crate::names;

/// A topic that the broker makes when it is first needed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InternalTopic {
    /// `__consumer_offsets`: the groups and their offsets.
    ConsumerOffsets,
}

impl InternalTopic {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            InternalTopic::ConsumerOffsets => names::OFFSETS_TOPIC,
        }
    }
}

impl Controller<'_> {
    /// Decides to create an internal topic with the settings it must have. One that exists is as
    /// good: there are no records then.
    pub fn create_internal(
        &mut self,
        topic: InternalTopic,
    ) -> Decision<Result<TopicId, TopicRefusal>> {
        if let Some(known) = self.image.topic(topic.name()) {
            return Decision {
                records: Vec::new(),
                answer: Ok(known.id),
            };
        }
        let wanted = match topic {
            InternalTopic::ConsumerOffsets => self.consumer_offsets(),
        };
        let request = CreateTopicsRequest {
            topics: vec![wanted],
            ..CreateTopicsRequest::default()
        };
        let decision = self.create_topics(&request);
        let answer = match decision.answer.topics.into_iter().next() {
            Some(row) if row.error_code == 0 => Ok(row.topic_id),
            Some(row) => Err(TopicRefusal::new(
                ErrorCode::from_code(row.error_code).unwrap_or(ErrorCode::UnknownServerError),
                row.error_message.unwrap_or_default(),
            )),
            None => Err(TopicRefusal::new(
                ErrorCode::UnknownServerError,
                "no answer",
            )),
        };
        Decision {
            records: decision.records,
            answer,
        }
    }

    fn consumer_offsets(&self) -> CreatableTopic {
        let brokers = i16::try_from(self.live_brokers().len()).unwrap_or(i16::MAX);
        let config = |name: &str, value: String| CreatableTopicConfig {
            name: name.to_owned(),
            value: Some(value),
        };
        CreatableTopic {
            name: InternalTopic::ConsumerOffsets.name().to_owned(),
            num_partitions: self.config.offsets_topic_num_partitions(),
            replication_factor: self
                .config
                .offsets_topic_replication_factor()
                .min(brokers.max(1)),
            configs: vec![
                config("cleanup.policy", "compact".to_owned()),
                config("compression.type", "producer".to_owned()),
                config(
                    "segment.bytes",
                    self.config.offsets_topic_segment_bytes().to_string(),
                ),
            ],
            ..CreatableTopic::default()
        }
    }
}
