//! The log levels of a running broker, as Kafka's broker loggers (KIP-412): what they are and how a
//! request changes them. They are of this process only and stored nowhere.

use std::collections::{BTreeMap, BTreeSet};

use thalweg_protocol::ErrorCode;
use thalweg_protocol::messages::describe_configs_response::DescribeConfigsResourceResult;
use thalweg_protocol::messages::incremental_alter_configs_request::{
    AlterConfigsResource, AlterableConfig,
};
use thalweg_types::{BrokerId, shown};

use crate::controller::{TopicRefusal, operation};

/// Kafka's number of the log levels of a broker, among the things that have settings.
pub const BROKER_LOGGER: i8 = 8;

/// Name of the logger whose level holds where no other is set.
pub const ROOT: &str = "root";

/// Loggers that are told also when their level was never set: the rooms that log.
const ROOMS: [&str; 6] = [
    "thalweg_cli",
    "thalweg_control",
    "thalweg_net",
    "thalweg_reactor",
    "thalweg_shard",
    "thalweg_storage",
];

/// `config_source` of a logger's level.
const DYNAMIC_BROKER_LOGGER_CONFIG: i8 = 6;

/// A level, by Kafka's names.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum LogLevel {
    /// Nothing at all. A start can ask for it, a client can not.
    Off,
    /// Errors: there are none here that are not fatal and yet worse.
    Fatal,
    /// Errors.
    Error,
    /// And warnings.
    Warn,
    /// And what an operator wants to know.
    Info,
    /// And what a developer wants to know.
    Debug,
    /// Everything.
    Trace,
}

impl LogLevel {
    /// Those that a client can set.
    const SETTABLE: [LogLevel; 6] = [
        LogLevel::Trace,
        LogLevel::Debug,
        LogLevel::Info,
        LogLevel::Warn,
        LogLevel::Error,
        LogLevel::Fatal,
    ];

    /// Kafka's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            LogLevel::Off => "OFF",
            LogLevel::Fatal => "FATAL",
            LogLevel::Error => "ERROR",
            LogLevel::Warn => "WARN",
            LogLevel::Info => "INFO",
            LogLevel::Debug => "DEBUG",
            LogLevel::Trace => "TRACE",
        }
    }

    fn settable(name: &str) -> Option<LogLevel> {
        let mut levels = LogLevel::SETTABLE.into_iter();
        levels.find(|level| level.name() == name)
    }
}

/// The level of every logger.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogLevels {
    /// Where nothing else is set.
    pub root: LogLevel,
    /// Levels of single loggers: a room such as `thalweg_storage`, or a module of one. A logger
    /// without one has that of the nearest module around it.
    pub own: BTreeMap<String, LogLevel>,
}

impl LogLevels {
    /// One level for all.
    #[must_use]
    pub fn all(root: LogLevel) -> LogLevels {
        LogLevels {
            root,
            own: BTreeMap::new(),
        }
    }

    /// Every known logger with the level in force, the root first.
    pub fn loggers(&self) -> impl Iterator<Item = (&str, LogLevel)> {
        let mut names: Vec<&str> = ROOMS.to_vec();
        names.extend(self.own.keys().map(String::as_str));
        names.sort_unstable();
        names.dedup();
        let levels = names.into_iter().map(|name| (name, self.in_force(name)));
        std::iter::once((ROOT, self.root)).chain(levels)
    }

    fn in_force(&self, name: &str) -> LogLevel {
        let mut around = Some(name);
        while let Some(module) = around {
            if let Some(level) = self.own.get(module) {
                return *level;
            }
            around = module.rsplit_once("::").map(|(outer, _)| outer);
        }
        self.root
    }

    /// The levels after the steps that a request names for one broker.
    ///
    /// # Errors
    /// Kafka's refusals: a logger or a level that does not exist, an operation that makes no sense, a
    /// logger that is named twice.
    /// Nothing of the request holds then.
    pub fn altered(&self, resource: &AlterConfigsResource) -> Result<LogLevels, TopicRefusal> {
        let names: BTreeSet<&str> = resource.configs.iter().map(|c| c.name.as_str()).collect();
        if names.len() < resource.configs.len() {
            // So a request changes, and writes lines about, no more than there are loggers.
            let text = "Error due to duplicate config keys";
            return Err(TopicRefusal::new(ErrorCode::InvalidRequest, text));
        }
        let mut levels = self.clone();
        for config in &resource.configs {
            levels.step(config)?;
        }
        Ok(levels)
    }

    fn step(&mut self, config: &AlterableConfig) -> Result<(), TopicRefusal> {
        let name = config.name.as_str();
        let is_root = name.eq_ignore_ascii_case(ROOT);
        let exists = is_root || self.loggers().any(|(known, _)| known == name);
        if !exists {
            let text = format!("Logger {} does not exist!", shown(name));
            return Err(TopicRefusal::new(ErrorCode::InvalidConfig, text));
        }
        match config.config_operation {
            operation::SET => {
                let level = wanted_level(name, config.value.as_deref())?;
                match is_root {
                    true => self.root = level,
                    false => {
                        self.own.insert(name.to_owned(), level);
                    }
                }
                Ok(())
            }
            operation::DELETE if is_root => Err(TopicRefusal::new(
                ErrorCode::InvalidRequest,
                "Removing the log level of the root logger is not allowed",
            )),
            operation::DELETE => {
                self.own.remove(name);
                Ok(())
            }
            other => {
                let word = match other {
                    operation::APPEND => "APPEND",
                    operation::SUBTRACT => "SUBTRACT",
                    _unknown => "Unknown",
                };
                let text =
                    format!("{word} operation is not allowed for the BROKER_LOGGER resource");
                Err(TopicRefusal::new(ErrorCode::InvalidRequest, text))
            }
        }
    }

    /// The rows of a DescribeConfigs answer: those of `keys`, or all.
    pub(crate) fn rows(&self, keys: Option<&[String]>) -> Vec<DescribeConfigsResourceResult> {
        let is_wanted = |name: &str| keys.is_none_or(|keys| keys.iter().any(|key| key == name));
        self.loggers()
            .filter(|(name, _)| is_wanted(name))
            .map(|(name, level)| DescribeConfigsResourceResult {
                name: name.to_owned(),
                value: Some(level.name().to_owned()),
                config_source: DYNAMIC_BROKER_LOGGER_CONFIG,
                ..DescribeConfigsResourceResult::default()
            })
            .collect()
    }
}

fn wanted_level(name: &str, value: Option<&str>) -> Result<LogLevel, TopicRefusal> {
    let value = value.unwrap_or_default();
    LogLevel::settable(value).ok_or_else(|| {
        let valid = LogLevel::SETTABLE.map(LogLevel::name).join(", ");
        let text = format!(
            "Cannot set the log level of {} to {} as it is not a supported log level. Valid log \
             levels are {valid}",
            shown(name),
            shown(value)
        );
        TopicRefusal::new(ErrorCode::InvalidConfig, text)
    })
}

/// Only the broker itself can change its log levels.
pub(crate) fn check_is_node(local: BrokerId, name: &str) -> Result<(), TopicRefusal> {
    let text = match name.parse::<i32>() {
        Ok(id) if id == local.0 => return Ok(()),
        Ok(id) => format!("Unexpected node id. Expected {local}, but received {id}"),
        Err(_) => format!("Node id must be an integer, but it is: {}", shown(name)),
    };
    Err(TopicRefusal::new(ErrorCode::InvalidRequest, text))
}

#[cfg(test)]
mod tests {
    use thalweg_protocol::ErrorCode;
    use thalweg_protocol::messages::incremental_alter_configs_request::{
        AlterConfigsResource, AlterableConfig,
    };

    use super::{LogLevel, LogLevels};

    fn alter(
        levels: &LogLevels,
        steps: &[(&str, i8, Option<&str>)],
    ) -> Result<LogLevels, ErrorCode> {
        let config = |(name, operation, value): &(&str, i8, Option<&str>)| AlterableConfig {
            name: (*name).to_owned(),
            config_operation: *operation,
            value: value.map(str::to_owned),
        };
        let resource = AlterConfigsResource {
            configs: steps.iter().map(config).collect(),
            ..AlterConfigsResource::default()
        };
        levels.altered(&resource).map_err(|refusal| refusal.code)
    }

    fn level(levels: &LogLevels, logger: &str) -> Option<LogLevel> {
        let mut loggers = levels.loggers();
        loggers
            .find(|(name, _)| *name == logger)
            .map(|(_, level)| level)
    }

    #[test]
    fn a_logger_has_its_own_level_or_that_around_it() {
        let mut levels = LogLevels::all(LogLevel::Info);
        levels
            .own
            .insert("thalweg_net::serve".into(), LogLevel::Trace);
        let levels = alter(&levels, &[("thalweg_net", 0, Some("DEBUG"))]).expect("known");
        assert_eq!(level(&levels, "thalweg_net"), Some(LogLevel::Debug));
        assert_eq!(level(&levels, "thalweg_net::serve"), Some(LogLevel::Trace));
        assert_eq!(level(&levels, "thalweg_storage"), Some(LogLevel::Info));
        let levels = alter(&levels, &[("thalweg_net::serve", 1, None)]).expect("known");
        assert_eq!(
            level(&levels, "thalweg_net::serve"),
            None,
            "nobody names it now"
        );
        let levels = alter(&levels, &[("ROOT", 0, Some("WARN"))]).expect("known");
        assert_eq!(level(&levels, "root"), Some(LogLevel::Warn));
        assert_eq!(level(&levels, "thalweg_storage"), Some(LogLevel::Warn));
        assert_eq!(levels.loggers().next().map(|(name, _)| name), Some("root"));
    }

    #[test]
    fn refusals_change_nothing() {
        let levels = LogLevels::all(LogLevel::Off);
        for (step, code) in [
            (("no.such", 0, Some("INFO")), ErrorCode::InvalidConfig),
            (("root", 0, Some("info")), ErrorCode::InvalidConfig),
            (("root", 0, Some("OFF")), ErrorCode::InvalidConfig),
            (("root", 0, None), ErrorCode::InvalidConfig),
            (("root", 1, None), ErrorCode::InvalidRequest),
            (("thalweg_net", 2, Some("INFO")), ErrorCode::InvalidRequest),
            (("thalweg_net", 9, Some("INFO")), ErrorCode::InvalidRequest),
            (
                ("thalweg_shard", 0, Some("INFO")),
                ErrorCode::InvalidRequest,
            ),
        ] {
            let steps = [("thalweg_shard", 0, Some("DEBUG")), step];
            assert_eq!(alter(&levels, &steps), Err(code), "{step:?}");
        }
    }
}
