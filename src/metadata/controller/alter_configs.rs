//! Changing the settings of topics and brokers: whole (KIP-133) and by steps (KIP-339).

use std::collections::{BTreeMap, BTreeSet};

use thalweg_config::property::{self, Scope};
use thalweg_config::value::{Kind, Value};
use thalweg_config::{ConfigError, TopicConfig};
use thalweg_protocol::ErrorCode;
use thalweg_protocol::messages::{
    AlterConfigsRequest, AlterConfigsResponse, ConfigRecord, IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse, alter_configs_response, incremental_alter_configs_response,
};
use thalweg_types::limits::CONFIG_VALUE_BYTES_MAX;

use super::{Controller, Decision, TopicRefusal};
use crate::configs::{check_is_local, resource_type, shown, unsupported};
use crate::loggers::{BROKER_LOGGER, check_is_node};
use crate::names;
use crate::record::Record;

/// Stored settings of one resource, by key.
type Settings = BTreeMap<String, String>;

/// What has settings that can change.
#[derive(Clone, Copy)]
enum Target<'r> {
    Topic(&'r str),
    /// By id in text; empty = all brokers.
    Broker(&'r str),
}

impl Target<'_> {
    fn scope(self) -> Scope {
        match self {
            Target::Topic(_) => Scope::Topic,
            Target::Broker(_) => Scope::Broker,
        }
    }
}

/// One step of an IncrementalAlterConfigs request.
struct Step<'r> {
    key: &'r str,
    operation: i8,
    value: Option<&'r str>,
}

/// Kafka's numbers of the operations.
pub(crate) mod operation {
    pub(crate) const SET: i8 = 0;
    pub(crate) const DELETE: i8 = 1;
    pub(crate) const APPEND: i8 = 2;
    pub(crate) const SUBTRACT: i8 = 3;
}

impl Controller<'_> {
    /// Decides an IncrementalAlterConfigs request, each resource by itself. With `validate_only`
    /// there are no records. Of log levels it checks only that they are this broker's.
    pub fn alter_configs_by_steps(
        &self,
        request: &IncrementalAlterConfigsRequest,
    ) -> Decision<IncrementalAlterConfigsResponse> {
        let named = request
            .resources
            .iter()
            .map(|r| (r.resource_type, r.resource_name.as_str()));
        let twice = named_twice(named);
        let mut records = Vec::new();
        let mut responses = Vec::new();
        for resource in &request.resources {
            let (kind, name) = (resource.resource_type, resource.resource_name.as_str());
            let steps: Vec<Step<'_>> = resource
                .configs
                .iter()
                .map(|config| Step {
                    key: &config.name,
                    operation: config.config_operation,
                    value: config.value.as_deref(),
                })
                .collect();
            let outcome = once(&twice, kind, name).and_then(|()| {
                if kind == BROKER_LOGGER {
                    // Nothing is stored: whoever holds the levels carries it out.
                    return check_is_node(self.config.node_id(), name).map(|()| Vec::new());
                }
                let target = self.target(kind, name)?;
                let before = self.stored(target);
                let after = self.stepped(target, &before, &steps)?;
                self.check(target, &before, &after)?;
                Ok(difference(target, &before, &after))
            });
            let mut response = incremental_alter_configs_response::AlterConfigsResourceResponse {
                resource_type: kind,
                resource_name: resource.resource_name.clone(),
                ..Default::default()
            };
            match outcome {
                Ok(made) => records.extend(made),
                Err(refusal) => {
                    response.error_code = refusal.code.code();
                    response.error_message = Some(refusal.message);
                }
            }
            responses.push(response);
        }
        if request.validate_only {
            records.clear();
        }
        let answer = IncrementalAlterConfigsResponse {
            responses,
            ..Default::default()
        };
        Decision { records, answer }
    }

    /// Decides an AlterConfigs request: what it names is all that is set afterwards.
    pub fn alter_configs(&self, request: &AlterConfigsRequest) -> Decision<AlterConfigsResponse> {
        let named = request
            .resources
            .iter()
            .map(|r| (r.resource_type, r.resource_name.as_str()));
        let twice = named_twice(named);
        let mut records = Vec::new();
        let mut responses = Vec::new();
        for resource in &request.resources {
            let (kind, name) = (resource.resource_type, resource.resource_name.as_str());
            let outcome = once(&twice, kind, name).and_then(|()| {
                let target = self.target(kind, name)?;
                let configs = resource.configs.iter();
                let configs = configs.map(|c| (c.name.as_str(), c.value.as_deref()));
                let after = whole(configs)?;
                let before = self.stored(target);
                self.check(target, &before, &after)?;
                Ok(difference(target, &before, &after))
            });
            let mut response = alter_configs_response::AlterConfigsResourceResponse {
                resource_type: kind,
                resource_name: resource.resource_name.clone(),
                ..Default::default()
            };
            match outcome {
                Ok(made) => records.extend(made),
                Err(refusal) => {
                    response.error_code = refusal.code.code();
                    response.error_message = Some(refusal.message);
                }
            }
            responses.push(response);
        }
        if request.validate_only {
            records.clear();
        }
        let answer = AlterConfigsResponse {
            responses,
            ..Default::default()
        };
        Decision { records, answer }
    }

    fn target<'r>(&self, kind: i8, name: &'r str) -> Result<Target<'r>, TopicRefusal> {
        match kind {
            resource_type::TOPIC if name.is_empty() => {
                Err(invalid("Default topic resources are not allowed."))
            }
            resource_type::TOPIC => {
                names::validate(name).map_err(|bad| {
                    TopicRefusal::new(ErrorCode::InvalidTopicException, bad.to_string())
                })?;
                if self.image.topic(name).is_none() {
                    let text = format!("The topic '{name}' does not exist.");
                    return Err(TopicRefusal::new(ErrorCode::UnknownTopicOrPartition, text));
                }
                Ok(Target::Topic(name))
            }
            resource_type::BROKER => {
                if !name.is_empty() {
                    check_is_local(self.config.node_id(), name)?;
                }
                Ok(Target::Broker(name))
            }
            // Log levels change by steps only.
            BROKER_LOGGER => Err(invalid(format!("Unknown resource type {BROKER_LOGGER}"))),
            other => Err(unsupported(other)),
        }
    }

    fn stored(&self, target: Target<'_>) -> Settings {
        let owned = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
        match target {
            Target::Topic(name) => self.image.topic_overrides(name).map(owned).collect(),
            Target::Broker("") => self.image.broker_overrides(None).map(owned).collect(),
            Target::Broker(_) => {
                let local = Some(self.config.node_id());
                self.image.broker_overrides(local).map(owned).collect()
            }
        }
    }

    fn stepped(
        &self,
        target: Target<'_>,
        before: &Settings,
        steps: &[Step<'_>],
    ) -> Result<Settings, TopicRefusal> {
        let keys: BTreeSet<&str> = steps.iter().map(|step| step.key).collect();
        if keys.len() < steps.len() {
            return Err(invalid("Error due to duplicate config keys"));
        }
        let mut after = before.clone();
        for step in steps {
            let value = || step.value.ok_or_else(|| no_value(step.key));
            let new = match step.operation {
                operation::DELETE => None,
                operation::SET => Some(value()?.to_owned()),
                operation::APPEND | operation::SUBTRACT => {
                    Some(self.listed(target, before, step, value()?)?)
                }
                other => return Err(invalid(format!("Unknown operation type {other}"))),
            };
            match new {
                Some(value) => after.insert(step.key.to_owned(), value),
                None => after.remove(step.key),
            };
        }
        Ok(after)
    }

    /// The list that a key holds, set or default, with the step's items added or taken out.
    fn listed(
        &self,
        target: Target<'_>,
        before: &Settings,
        step: &Step<'_>,
        items: &str,
    ) -> Result<String, TopicRefusal> {
        let property = property::find(target.scope(), step.key);
        let is_list = property.is_some_and(|property| matches!(property.kind, Kind::List(_)));
        if !is_list {
            let word = match step.operation {
                operation::APPEND => "APPEND",
                _subtract => "SUBTRACT",
            };
            let key = shown(step.key);
            let text = format!("Can't {word} to key {key} because its type is not LIST.");
            return Err(TopicRefusal::new(ErrorCode::InvalidConfig, text));
        }
        let now = match (before.get(step.key), target) {
            (Some(value), _) => value.clone(),
            (None, Target::Topic(_)) => {
                let (config, _) = TopicConfig::resolve(self.config, []);
                config
                    .value(step.key)
                    .map_or_else(String::new, Value::to_string)
            }
            (None, Target::Broker(_)) => {
                let value = self.config.value(step.key);
                value.map_or_else(String::new, Value::to_string)
            }
        };
        let split = |text: &str| -> Vec<String> {
            let items = text.split(',').map(str::trim);
            items
                .filter(|item| !item.is_empty())
                .map(str::to_owned)
                .collect()
        };
        let (mut list, items) = (split(&now), split(items));
        if step.operation == operation::APPEND {
            let known: BTreeSet<String> = list.iter().cloned().collect();
            list.extend(items.into_iter().filter(|item| !known.contains(item)));
        } else {
            let gone: BTreeSet<String> = items.into_iter().collect();
            list.retain(|item| !gone.contains(item));
        }
        Ok(list.join(","))
    }

    fn check(
        &self,
        target: Target<'_>,
        before: &Settings,
        after: &Settings,
    ) -> Result<(), TopicRefusal> {
        if let Some((key, _)) = after
            .iter()
            .find(|(_, value)| value.len() > CONFIG_VALUE_BYTES_MAX)
        {
            let text = format!(
                "The value of {} is longer than {CONFIG_VALUE_BYTES_MAX} bytes.",
                shown(key)
            );
            return Err(TopicRefusal::new(ErrorCode::InvalidConfig, text));
        }
        match target {
            Target::Topic(_) => {
                let all = after
                    .iter()
                    .map(|(key, value)| (key.as_str(), Some(value.as_str())));
                TopicConfig::validate(self.config, all)
                    .map(|_| ())
                    .map_err(|error| refused(ErrorCode::InvalidConfig, &error))
            }
            Target::Broker(_) => {
                let new = after
                    .iter()
                    .filter(|(key, value)| before.get(*key) != Some(*value));
                let new = new.map(|(key, value)| (key.as_str(), value.as_str()));
                self.config
                    .check_dynamic(new)
                    .map_err(|error| refused(ErrorCode::InvalidRequest, &error))
            }
        }
    }
}

/// The settings of an AlterConfigs request.
fn whole<'r>(
    configs: impl Iterator<Item = (&'r str, Option<&'r str>)>,
) -> Result<Settings, TopicRefusal> {
    let mut settings = Settings::new();
    for (key, value) in configs {
        let value = value.ok_or_else(|| no_value(key))?;
        if settings.insert(key.to_owned(), value.to_owned()).is_some() {
            return Err(invalid("Error due to duplicate config keys"));
        }
    }
    Ok(settings)
}

/// Records that turn `before` into `after`.
fn difference(target: Target<'_>, before: &Settings, after: &Settings) -> Vec<Record> {
    let (resource_type, resource_name) = match target {
        Target::Topic(name) => (resource_type::TOPIC, name),
        Target::Broker(name) => (resource_type::BROKER, name),
    };
    let record = |name: &String, value: Option<&String>| {
        ConfigRecord {
            resource_type,
            resource_name: resource_name.to_owned(),
            name: name.clone(),
            value: value.cloned(),
        }
        .into()
    };
    let set = after
        .iter()
        .filter(|(key, value)| before.get(*key) != Some(*value));
    let removed = before.keys().filter(|key| !after.contains_key(*key));
    set.map(|(key, value)| record(key, Some(value)))
        .chain(removed.map(|key| record(key, None)))
        .collect()
}

/// Resources that a request names more than once.
fn named_twice<'r>(named: impl Iterator<Item = (i8, &'r str)>) -> BTreeSet<(i8, &'r str)> {
    let mut seen = BTreeSet::new();
    named.filter(|resource| !seen.insert(*resource)).collect()
}

fn once(twice: &BTreeSet<(i8, &str)>, kind: i8, name: &str) -> Result<(), TopicRefusal> {
    match twice.contains(&(kind, name)) {
        true => Err(invalid("Each resource must appear at most once.")),
        false => Ok(()),
    }
}

fn refused(code: ErrorCode, error: &ConfigError) -> TopicRefusal {
    TopicRefusal::new(code, error.to_string())
}

fn no_value(key: &str) -> TopicRefusal {
    invalid(format!("Null value not supported for : {}", shown(key)))
}

fn invalid(text: impl Into<String>) -> TopicRefusal {
    TopicRefusal::new(ErrorCode::InvalidRequest, text)
}
