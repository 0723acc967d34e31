//! Telling the settings of topics, brokers and groups (KIP-133, KIP-226, KIP-569, KIP-848).

use thalweg_config::value::Kind;
use thalweg_config::{
    BrokerConfig, Described, describe_all_brokers, describe_broker, describe_group, describe_topic,
};
use thalweg_protocol::ErrorCode;
use thalweg_protocol::messages::describe_configs_request::DescribeConfigsResource;
use thalweg_protocol::messages::describe_configs_response::{
    DescribeConfigsResourceResult, DescribeConfigsResult, DescribeConfigsSynonym,
};
use thalweg_protocol::messages::list_config_resources_response::ConfigResource;
use thalweg_protocol::messages::{
    DescribeConfigsRequest, ListConfigResourcesRequest, ListConfigResourcesResponse,
};
use thalweg_types::{BrokerId, shown};

use crate::controller::TopicRefusal;
use crate::image::Image;
use crate::loggers::LogLevels;
use crate::names;

/// Kafka's numbers of the things that have settings.
pub(crate) mod resource_type {
    /// A topic, by name.
    pub(crate) const TOPIC: i8 = 2;
    /// A broker, by id; no name = all brokers.
    pub(crate) const BROKER: i8 = 4;
    pub(crate) use crate::loggers::BROKER_LOGGER;
    /// A subscription to clients' metrics (KIP-714).
    pub(crate) const CLIENT_METRICS: i8 = 16;
    /// A group (KIP-848).
    pub(crate) const GROUP: i8 = 32;
}

/// What answers are about: the cluster as broker `local` sees it.
pub struct Describing<'a> {
    /// The cluster.
    pub image: &'a Image,
    /// The broker's settings, those that were set while it ran included.
    pub config: &'a BrokerConfig,
    /// The broker.
    pub local: BrokerId,
    /// Its log levels.
    pub log_levels: &'a LogLevels,
}

impl Describing<'_> {
    /// Answers one resource of a DescribeConfigs request.
    #[must_use]
    pub fn result(
        &self,
        resource: &DescribeConfigsResource,
        request: &DescribeConfigsRequest,
    ) -> DescribeConfigsResult {
        let mut result = DescribeConfigsResult {
            resource_type: resource.resource_type,
            resource_name: resource.resource_name.clone(),
            ..DescribeConfigsResult::default()
        };
        match self.rows(resource, request) {
            Ok(rows) => result.configs = rows,
            Err(refusal) => {
                result.error_code = refusal.code.code();
                result.error_message = Some(refusal.message);
            }
        }
        result
    }

    fn rows(
        &self,
        resource: &DescribeConfigsResource,
        request: &DescribeConfigsRequest,
    ) -> Result<Vec<DescribeConfigsResourceResult>, TopicRefusal> {
        if resource.resource_type == resource_type::BROKER_LOGGER {
            check_is_logging(self.local, &resource.resource_name)?;
            return Ok(self.log_levels.rows(keys_of(resource)));
        }
        let described = self.describe(resource)?.into_iter();
        let wanted = described.filter(|d| is_wanted(resource, d));
        Ok(wanted.map(|d| row(d, request)).collect())
    }

    fn describe(&self, resource: &DescribeConfigsResource) -> Result<Vec<Described>, TopicRefusal> {
        let name = &resource.resource_name;
        match resource.resource_type {
            resource_type::TOPIC => {
                names::validate(name).map_err(|bad| {
                    TopicRefusal::new(ErrorCode::InvalidTopicException, bad.to_string())
                })?;
                if self.image.topic(name).is_none() {
                    let text = "This server does not host this topic-partition.";
                    return Err(TopicRefusal::new(ErrorCode::UnknownTopicOrPartition, text));
                }
                let overrides = self.image.topic_overrides(name);
                Ok(describe_topic(self.config, overrides))
            }
            resource_type::BROKER if name.is_empty() => Ok(describe_all_brokers(self.config)),
            resource_type::BROKER => {
                check_is_local(self.local, name)?;
                Ok(describe_broker(self.config))
            }
            resource_type::GROUP if name.is_empty() => {
                let text = "Group name must not be empty";
                Err(TopicRefusal::new(ErrorCode::InvalidRequest, text))
            }
            // There may be settings of a group that is not there yet.
            resource_type::GROUP => {
                let stored = self.image.group_overrides(name);
                Ok(describe_group(self.config, stored))
            }
            other => Err(unsupported(other)),
        }
    }
}

/// Only the broker itself can tell and change its settings.
pub(crate) fn check_is_local(local: BrokerId, name: &str) -> Result<(), TopicRefusal> {
    let text = match name.parse::<i32>() {
        Ok(id) if id == local.0 => return Ok(()),
        Ok(id) => {
            format!("Unexpected broker id, expected {local} or empty string, but received {id}")
        }
        Err(_) => format!("Broker id must be an integer, but it is: {}", shown(name)),
    };
    Err(TopicRefusal::new(ErrorCode::InvalidRequest, text))
}

/// Only the broker itself can tell its log levels.
fn check_is_logging(local: BrokerId, name: &str) -> Result<(), TopicRefusal> {
    let text = match name.parse::<i32>() {
        Ok(id) if id == local.0 => return Ok(()),
        Ok(id) => format!("Unexpected broker id, expected {local} but received {id}"),
        Err(_) if name.is_empty() => "Broker id must not be empty".to_owned(),
        Err(_) => format!("Broker id must be an integer, but it is: {}", shown(name)),
    };
    Err(TopicRefusal::new(ErrorCode::InvalidRequest, text))
}

/// First version of ListConfigResources that names types; before it, it lists client metrics.
const TYPES_FROM: i16 = 1;

/// Answers ListConfigResources (KIP-1142): what can be described, by type.
#[must_use]
pub fn list_config_resources(
    image: &Image,
    request: &ListConfigResourcesRequest,
    version: i16,
) -> ListConfigResourcesResponse {
    const ALL: [i8; 5] = [
        resource_type::TOPIC,
        resource_type::BROKER,
        resource_type::BROKER_LOGGER,
        resource_type::CLIENT_METRICS,
        resource_type::GROUP,
    ];
    let wanted: Vec<i8> = match request.resource_types.as_slice() {
        _none if version < TYPES_FROM => vec![resource_type::CLIENT_METRICS],
        [] => ALL.to_vec(),
        some => some.to_vec(),
    };
    let mut response = ListConfigResourcesResponse::default();
    if wanted.iter().any(|kind| !ALL.contains(kind)) {
        response.error_code = ErrorCode::UnsupportedVersion.code();
        return response;
    }
    let mut list = |kind: i8, name: String| {
        response.config_resources.push(ConfigResource {
            resource_name: name,
            resource_type: kind,
        });
    };
    for kind in ALL.into_iter().filter(|kind| wanted.contains(kind)) {
        match kind {
            resource_type::TOPIC => image
                .topics()
                .for_each(|topic| list(kind, topic.name.to_string())),
            resource_type::BROKER | resource_type::BROKER_LOGGER => image
                .brokers()
                .for_each(|broker| list(kind, broker.id.to_string())),
            resource_type::GROUP => image
                .groups_with_settings()
                .for_each(|group| list(kind, group.to_owned())),
            _nothing_of_the_kind => {}
        }
    }
    response
}

/// The refusal of a resource whose settings this broker does not have.
pub(crate) fn unsupported(resource_type: i8) -> TopicRefusal {
    let text = match resource_type {
        resource_type::CLIENT_METRICS => "This broker takes no metrics of clients.".to_owned(),
        other => format!("Unsupported resource type: {other}"),
    };
    TopicRefusal::new(ErrorCode::InvalidRequest, text)
}

/// The keys that are asked for; `None` = all, which an empty list says, too.
fn keys_of(resource: &DescribeConfigsResource) -> Option<&[String]> {
    let keys = resource.configuration_keys.as_deref();
    keys.filter(|keys| !keys.is_empty())
}

fn is_wanted(resource: &DescribeConfigsResource, described: &Described) -> bool {
    match keys_of(resource) {
        None => true,
        Some(keys) => keys.iter().any(|key| key == described.property.name),
    }
}

fn row(described: Described, request: &DescribeConfigsRequest) -> DescribeConfigsResourceResult {
    let synonyms = match request.include_synonyms {
        true => described.synonyms,
        false => Vec::new(),
    };
    let synonym = |s: thalweg_config::DescribedSynonym| DescribeConfigsSynonym {
        name: s.name.to_owned(),
        value: Some(s.value),
        source: s.source as i8,
    };
    DescribeConfigsResourceResult {
        name: described.property.name.to_owned(),
        value: described.value,
        read_only: described.read_only,
        config_source: described.source as i8,
        is_sensitive: false,
        synonyms: synonyms.into_iter().map(synonym).collect(),
        config_type: type_number(&described.property.kind),
        documentation: request
            .include_documentation
            .then(|| described.property.doc.to_owned()),
    }
}

/// Kafka's number of a type.
fn type_number(kind: &Kind) -> i8 {
    match kind {
        Kind::Bool => 1,
        Kind::Text | Kind::OneOf(_) | Kind::AnyCaseOf(_) => 2,
        Kind::Int(_) | Kind::IntOrMinusOne(_) => 3,
        Kind::Short(_) => 4,
        Kind::Long(_) | Kind::LongOrMinusOne(_) => 5,
        Kind::Double(..) => 6,
        Kind::List(_) => 7,
    }
}
