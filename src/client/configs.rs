//! Administrative calls: settings of topics, brokers and groups, more partitions.

use std::fmt;

use thalweg_protocol::messages::create_partitions_request::CreatePartitionsTopic;
use thalweg_protocol::messages::describe_configs_request::DescribeConfigsResource;
use thalweg_protocol::messages::incremental_alter_configs_request::{
    AlterConfigsResource, AlterableConfig,
};
use thalweg_protocol::messages::{
    CreatePartitionsRequest, DescribeConfigsRequest, IncrementalAlterConfigsRequest,
    ListConfigResourcesRequest,
};

use crate::cluster::Cluster;
use crate::connection::Connection;
use crate::error::{ClientError, Result};

/// Kafka's number of the resource type of groups.
const TYPE_GROUP: i8 = 32;

/// How long the broker may take for one administrative change, in milliseconds.
const CHANGE_TIMEOUT_MS: i32 = 30_000;

/// What has settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigOwner {
    /// A topic, by name.
    Topic(String),
    /// A broker, by id.
    Broker(i32),
    /// All brokers.
    AllBrokers,
    /// The log levels of a broker, by its id (KIP-412).
    BrokerLogger(i32),
    /// A consumer group, by name (KIP-848).
    Group(String),
}

impl ConfigOwner {
    /// Kafka's number of the type, and the name on the wire.
    fn on_the_wire(&self) -> (i8, String) {
        match self {
            ConfigOwner::Topic(name) => (2, name.clone()),
            ConfigOwner::Broker(id) => (4, id.to_string()),
            ConfigOwner::AllBrokers => (4, String::new()),
            ConfigOwner::BrokerLogger(id) => (8, id.to_string()),
            ConfigOwner::Group(name) => (TYPE_GROUP, name.clone()),
        }
    }
}

impl ConfigOwner {
    /// Kafka's number of a value that was set for this owner itself.
    #[must_use]
    pub fn own_source(&self) -> i8 {
        match self {
            ConfigOwner::Topic(_) => 1,
            ConfigOwner::Broker(_) => 2,
            ConfigOwner::AllBrokers => 3,
            ConfigOwner::BrokerLogger(_) => 6,
            ConfigOwner::Group(_) => 8,
        }
    }
}

/// Where a value comes from, by Kafka's numbers (`config_source`).
#[must_use]
pub fn config_source_name(source: i8) -> &'static str {
    match source {
        1 => "topic",
        2 => "broker, live",
        3 => "all brokers, live",
        4 => "broker, at start",
        5 => "default",
        6 => "logger, live",
        8 => "group",
        _other => "unknown",
    }
}

/// The kind of a value, by Kafka's numbers (`config_type`, KIP-569).
fn value_type_name(value_type: i8) -> Option<&'static str> {
    let names = [
        "boolean", "string", "int", "short", "long", "double", "list", "class", "password",
    ];
    let at = usize::try_from(value_type).ok()?.checked_sub(1)?;
    names.get(at).copied()
}

/// One setting as DescribeConfigs tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Its name.
    pub name: String,
    /// Its value; `None` when it has none or it is secret.
    pub value: Option<String>,
    /// Kafka's number of where the value comes from; see [`config_source_name`].
    pub source: i8,
    /// Only a start can change it.
    pub is_read_only: bool,
    /// It is never shown.
    pub is_sensitive: bool,
    /// What kind of value it takes (`config_type`), `None` when the broker does not say.
    pub value_type: Option<&'static str>,
    /// What it is for, when the broker says.
    pub documentation: Option<String>,
    /// Every setting that gives a value: name, value, source; the strongest first.
    pub synonyms: Vec<(String, Option<String>, i8)>,
}

/// One change of IncrementalAlterConfigs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigChange {
    /// Give it this value.
    Set(String, String),
    /// Go back to the default.
    Delete(String),
    /// Add these items to a list.
    Append(String, String),
    /// Take these items out of a list.
    Subtract(String, String),
}

impl ConfigChange {
    fn on_the_wire(&self) -> AlterableConfig {
        let (name, config_operation, value) = match self {
            ConfigChange::Set(name, value) => (name, 0, Some(value.clone())),
            ConfigChange::Delete(name) => (name, 1, None),
            ConfigChange::Append(name, value) => (name, 2, Some(value.clone())),
            ConfigChange::Subtract(name, value) => (name, 3, Some(value.clone())),
        };
        AlterableConfig {
            name: name.clone(),
            config_operation,
            value,
        }
    }
}

/// Whether a change is made or only checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Made.
    Make,
    /// Checked.
    Check,
}

impl fmt::Display for ConfigOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConfigOwner::Topic(name) => write!(f, "topic {name}"),
            ConfigOwner::Broker(id) => write!(f, "broker {id}"),
            ConfigOwner::AllBrokers => f.write_str("all brokers"),
            ConfigOwner::BrokerLogger(id) => write!(f, "the loggers of broker {id}"),
            ConfigOwner::Group(name) => write!(f, "group {name}"),
        }
    }
}

impl Cluster {
    /// Names of the groups that have settings of their own, sorted (KIP-1142).
    ///
    /// # Errors
    /// See [`ClientError`]; [`ClientError::Unsupported`] from brokers before Kafka 4.1.
    pub fn groups_with_settings(&mut self) -> Result<Vec<String>> {
        let request = ListConfigResourcesRequest {
            resource_types: vec![TYPE_GROUP],
        };
        let what = || "list the groups that have settings".to_owned();
        let answer = self.retry(|cluster| {
            let answer = cluster.any()?.call(&request)?;
            ClientError::check(answer.error_code, what, None)?;
            Ok(answer)
        })?;
        let rows = answer.config_resources.into_iter();
        let mut names: Vec<String> = rows.map(|row| row.resource_name).collect();
        names.sort_unstable();
        Ok(names)
    }

    /// Any broker, but for the settings of one that one: only it knows them.
    fn who_answers_for(&mut self, owner: &ConfigOwner) -> Result<&mut Connection> {
        match owner {
            ConfigOwner::Broker(id) | ConfigOwner::BrokerLogger(id) => {
                if self.brokers().iter().all(|broker| broker.id != *id) {
                    self.list_topics()?;
                }
                self.broker(*id)
            }
            ConfigOwner::Topic(_) | ConfigOwner::AllBrokers | ConfigOwner::Group(_) => self.any(),
        }
    }

    /// Every setting of `owner`.
    ///
    /// # Errors
    /// [`ClientError::Refused`], for example when there is no such topic.
    pub fn describe_configs(&mut self, owner: &ConfigOwner) -> Result<Vec<Setting>> {
        let (resource_type, resource_name) = owner.on_the_wire();
        let request = DescribeConfigsRequest {
            resources: vec![DescribeConfigsResource {
                resource_type,
                resource_name,
                configuration_keys: None,
            }],
            include_synonyms: true,
            include_documentation: true,
        };
        let what = || format!("describe {owner}");
        self.retry_on_existing(|cluster| {
            let response = cluster.who_answers_for(owner)?.call(&request)?;
            let result = response.results.into_iter().next();
            let result = result.ok_or_else(|| no_result(&what()))?;
            ClientError::check(result.error_code, what, result.error_message.as_deref())?;
            let setting =
                |c: thalweg_protocol::messages::describe_configs_response::DescribeConfigsResourceResult| {
                    Setting {
                        name: c.name,
                        value: c.value,
                        source: c.config_source,
                        is_read_only: c.read_only,
                        is_sensitive: c.is_sensitive,
                        value_type: value_type_name(c.config_type),
                        documentation: c.documentation,
                        synonyms: c
                            .synonyms
                            .into_iter()
                            .map(|s| (s.name, s.value, s.source))
                            .collect(),
                    }
                };
            Ok(result.configs.into_iter().map(setting).collect())
        })
    }

    /// Changes settings of `owner`: all of `changes` or none.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with what is wrong.
    pub fn alter_configs(
        &mut self,
        owner: &ConfigOwner,
        changes: &[ConfigChange],
        change: Change,
    ) -> Result<()> {
        let (resource_type, resource_name) = owner.on_the_wire();
        let request = IncrementalAlterConfigsRequest {
            resources: vec![AlterConfigsResource {
                resource_type,
                resource_name,
                configs: changes.iter().map(ConfigChange::on_the_wire).collect(),
            }],
            validate_only: change == Change::Check,
        };
        let what = || format!("change settings of {owner}");
        self.retry_on_existing(|cluster| {
            let response = cluster.who_answers_for(owner)?.call(&request)?;
            let result = response.responses.into_iter().next();
            let result = result.ok_or_else(|| no_result(&what()))?;
            ClientError::check(result.error_code, what, result.error_message.as_deref())
        })
    }

    /// Gives a topic more partitions: `count` in sum.
    ///
    /// # Errors
    /// [`ClientError::Refused`], for example with INVALID_PARTITIONS when it has as many already.
    pub fn create_partitions(&mut self, topic: &str, count: i32) -> Result<()> {
        let request = CreatePartitionsRequest {
            topics: vec![CreatePartitionsTopic {
                name: topic.to_owned(),
                count,
                assignments: None,
            }],
            timeout_ms: CHANGE_TIMEOUT_MS,
            validate_only: false,
        };
        let what = || format!("add partitions to topic {topic}");
        self.forget_topics();
        self.retry_on_existing(|cluster| {
            let response = cluster.any()?.call(&request)?;
            let result = response.results.into_iter().next();
            let result = result.ok_or_else(|| no_result(&what()))?;
            ClientError::check(result.error_code, what, result.error_message.as_deref())
        })
    }
}

fn no_result(what: &str) -> ClientError {
    ClientError::Invalid(format!("{what}: the broker's answer does not mention it"))
}
