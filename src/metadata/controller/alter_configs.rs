//! Changing the settings of topics, brokers and groups: whole (KIP-133) and by steps (KIP-339).

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

use thalweg_config::property::{self, Scope};
use thalweg_config::value::{Kind, Value};
use thalweg_config::{ConfigError, GroupConfig, TopicConfig};
use thalweg_protocol::ErrorCode;
use thalweg_protocol::messages::{
    AlterConfigsRequest, AlterConfigsResponse, ConfigRecord, IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse, alter_configs_request, alter_configs_response,
    incremental_alter_configs_request, incremental_alter_configs_response,
};
use thalweg_types::limits::{
    CONFIG_VALUE_BYTES_MAX, GROUP_NAME_BYTES_MAX, GROUPS_WITH_SETTINGS_MAX,
};
use thalweg_types::shown;

use super::{Controller, Decision, TopicRefusal, row_of};
use crate::configs::{check_is_local, resource_type, unsupported};
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
    Group(&'r str),
}

/// How many more groups may get settings of their own.
struct Room(Cell<usize>);

impl Room {
    fn take(&self) -> Result<(), TopicRefusal> {
        match self.0.get().checked_sub(1) {
            Some(left) => {
                self.0.set(left);
                Ok(())
            }
            None => {
                let text = format!(
                    "{GROUPS_WITH_SETTINGS_MAX} groups have settings of their own: delete those of \
                     some first"
                );
                Err(TopicRefusal::new(ErrorCode::PolicyViolation, text))
            }
        }
    }
}

impl Target<'_> {
    fn scope(self) -> Scope {
        match self {
            Target::Topic(_) => Scope::Topic,
            Target::Broker(_) => Scope::Broker,
            Target::Group(_) => Scope::Group,
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
        let room = self.settings_room();
        let (mut records, rows) = each_once(
            &request.resources,
            |resource| (resource.resource_type, &resource.resource_name),
            |resource| self.by_steps(resource, &room),
        );
        let row = |row: Row<'_>| incremental_alter_configs_response::AlterConfigsResourceResponse {
            error_code: row.error_code,
            error_message: row.error_message,
            resource_type: row.kind,
            resource_name: row.name.to_owned(),
        };
        let answer = IncrementalAlterConfigsResponse {
            responses: rows.into_iter().map(row).collect(),
            ..Default::default()
        };
        if request.validate_only {
            records.clear();
        }
        Decision { records, answer }
    }

    /// Decides an AlterConfigs request: what it names is all that is set afterwards.
    pub fn alter_configs(&self, request: &AlterConfigsRequest) -> Decision<AlterConfigsResponse> {
        let room = self.settings_room();
        let (mut records, rows) = each_once(
            &request.resources,
            |resource| (resource.resource_type, &resource.resource_name),
            |resource| self.as_a_whole(resource, &room),
        );
        let row = |row: Row<'_>| alter_configs_response::AlterConfigsResourceResponse {
            error_code: row.error_code,
            error_message: row.error_message,
            resource_type: row.kind,
            resource_name: row.name.to_owned(),
        };
        let answer = AlterConfigsResponse {
            responses: rows.into_iter().map(row).collect(),
            ..Default::default()
        };
        if request.validate_only {
            records.clear();
        }
        Decision { records, answer }
    }

    fn settings_room(&self) -> Room {
        let taken = self.image.groups_with_settings().count();
        Room(Cell::new(GROUPS_WITH_SETTINGS_MAX.saturating_sub(taken)))
    }

    fn by_steps(
        &self,
        resource: &incremental_alter_configs_request::AlterConfigsResource,
        room: &Room,
    ) -> Result<Vec<Record>, TopicRefusal> {
        let (kind, name) = (resource.resource_type, resource.resource_name.as_str());
        if kind == BROKER_LOGGER {
            // Nothing is stored: whoever holds the levels carries it out.
            return check_is_node(self.config.node_id(), name).map(|()| Vec::new());
        }
        let target = self.target(kind, name)?;
        let steps = resource.configs.iter().map(|config| Step {
            key: &config.name,
            operation: config.config_operation,
            value: config.value.as_deref(),
        });
        let steps: Vec<Step<'_>> = steps.collect();
        let before = self.stored(target);
        let after = self.stepped(target, &before, &steps)?;
        self.check(target, &before, &after, room)?;
        Ok(difference(target, &before, &after))
    }

    fn as_a_whole(
        &self,
        resource: &alter_configs_request::AlterConfigsResource,
        room: &Room,
    ) -> Result<Vec<Record>, TopicRefusal> {
        let target = self.target(resource.resource_type, &resource.resource_name)?;
        let configs = resource.configs.iter();
        let after = whole(configs.map(|c| (c.name.as_str(), c.value.as_deref())))?;
        let before = self.stored(target);
        self.check(target, &before, &after, room)?;
        Ok(difference(target, &before, &after))
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
            resource_type::GROUP if name.is_empty() => {
                Err(invalid("Default group resources are not allowed."))
            }
            resource_type::GROUP if name.len() > GROUP_NAME_BYTES_MAX => Err(invalid(format!(
                "No group has a name of more than {GROUP_NAME_BYTES_MAX} bytes."
            ))),
            resource_type::GROUP => Ok(Target::Group(name)),
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
            Target::Group(name) => self.image.group_overrides(name).map(owned).collect(),
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
            // No property of groups is a list.
            (None, Target::Group(_)) => String::new(),
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
        room: &Room,
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
        // What an older release stored and nobody knows any more is no reason to refuse something else (KAFKA-19851).
        let is_left_over = |key: &String, value: &String| {
            before.get(key) == Some(value) && property::find(target.scope(), key).is_none()
        };
        let all = || {
            let known = after
                .iter()
                .filter(|(key, value)| !is_left_over(key, value));
            known.map(|(key, value)| (key.as_str(), Some(value.as_str())))
        };
        match target {
            Target::Topic(_) => TopicConfig::validate(self.config, all())
                .map(|_| ())
                .map_err(|error| refused(ErrorCode::InvalidConfig, &error)),
            Target::Group(_) => {
                GroupConfig::validate(self.config, all())
                    .map_err(|error| refused(ErrorCode::InvalidConfig, &error))?;
                match before.is_empty() && !after.is_empty() {
                    true => room.take(),
                    false => Ok(()),
                }
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
        Target::Group(name) => (resource_type::GROUP, name),
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

/// What becomes of one resource of a request.
struct Row<'r> {
    kind: i8,
    name: &'r str,
    error_code: i16,
    error_message: Option<String>,
}

/// Decides each resource of a request by itself, and refuses those that it names more than once.
fn each_once<'r, R>(
    resources: &'r [R],
    named: impl Fn(&'r R) -> (i8, &'r str),
    decide: impl Fn(&'r R) -> Result<Vec<Record>, TopicRefusal>,
) -> (Vec<Record>, Vec<Row<'r>>) {
    let mut seen = BTreeSet::new();
    let twice: BTreeSet<(i8, &str)> = resources
        .iter()
        .map(&named)
        .filter(|resource| !seen.insert(*resource))
        .collect();
    let mut records = Vec::new();
    let row = |resource: &'r R| {
        let (kind, name) = named(resource);
        let outcome = match twice.contains(&(kind, name)) {
            true => Err(invalid("Each resource must appear at most once.")),
            false => decide(resource),
        };
        let (error_code, error_message) = row_of(outcome, &mut records);
        Row {
            kind,
            name,
            error_code,
            error_message,
        }
    };
    let rows = resources.iter().map(row).collect();
    (records, rows)
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
