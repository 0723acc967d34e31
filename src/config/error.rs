//! What can be wrong with a setting.

use std::fmt;

use thalweg_types::shown;

use crate::property::{Property, Scope, Status};
use crate::settings::Placed;

/// A setting that can not be taken.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ConfigError {
    /// `--set` without a `=`.
    #[error("'{}' is not a setting: write key=value", shown(.setting))]
    NotASetting {
        /// What was given.
        setting: String,
    },
    /// No property of that name.
    #[error("Unknown {} config name: {}{}", scope_word(*.scope), shown(.key), suggestion_text(*.nearest))]
    UnknownKey {
        /// Where it was looked for.
        scope: Scope,
        /// What was given.
        key: String,
        /// A known name that is near.
        nearest: Option<&'static str>,
    },
    /// The value is not one of those allowed.
    #[error("Invalid value {} for configuration {key}: it must be {allowed}", shown(.value))]
    BadValue {
        /// The property.
        key: &'static str,
        /// What was given.
        value: String,
        /// What may be given.
        allowed: String,
    },
    /// A setting without a value.
    #[error("Null value not supported for {} configs: {}", scope_word(*.scope), shown(.key))]
    NullValue {
        /// Where it was to be set.
        scope: Scope,
        /// The property.
        key: String,
    },
    /// A broker setting that only a start can change, or none at all.
    #[error("Cannot update these configs dynamically: {}", shown(.key))]
    NotDynamic {
        /// What was given.
        key: String,
    },
    /// A `\u` in a property file that four hexadecimal digits do not follow, or half of a pair.
    #[error("\\u must be followed by four hexadecimal digits")]
    BadEscape,
    /// `--listen` with something else than an address.
    #[error("'{}' is no address: use HOST:PORT, for example 127.0.0.1:9092 or [::1]:9092", shown(.address))]
    NotAnAddress {
        /// What was given.
        address: String,
    },
    /// A value of the right form that this broker can not honour, or not beside another.
    #[error("{key}: {reason}")]
    Unusable {
        /// The property.
        key: &'static str,
        /// Why not, and what to do.
        reason: String,
    },
    /// Two settings that do not go together, or one that this broker can not honour.
    #[error("{0}")]
    Conflict(String),
}

impl ConfigError {
    /// The property that it is about, where that is one of the registry.
    pub(crate) fn key(&self) -> Option<&'static str> {
        match self {
            ConfigError::BadValue { key, .. } | ConfigError::Unusable { key, .. } => Some(key),
            ConfigError::NotASetting { .. }
            | ConfigError::UnknownKey { .. }
            | ConfigError::NullValue { .. }
            | ConfigError::NotDynamic { .. }
            | ConfigError::BadEscape
            | ConfigError::NotAnAddress { .. }
            | ConfigError::Conflict(_) => None,
        }
    }
}

/// Everything that is wrong with the settings of a start, one line each. Never empty.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConfigErrors(pub Vec<Placed<ConfigError>>);

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, error) in self.0.iter().enumerate() {
            let line_break = if i > 0 { "\n" } else { "" };
            write!(f, "{line_break}{error}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigErrors {}

/// A setting that was taken but changes nothing, or a stored one that could not be used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ConfigWarning {
    /// The property is known, and the feature behind it does not exist yet.
    NotYet {
        /// The property.
        key: &'static str,
    },
    /// The property is known and means nothing here.
    NoMeaning {
        /// The property.
        key: &'static str,
        /// Its documentation, which says why.
        doc: &'static str,
    },
    /// A property of Kafka that is not in the registry.
    OtherOfKafka {
        /// Its name.
        key: String,
        /// Why it has no effect.
        why: &'static str,
    },
    /// A property of nobody we know.
    Foreign {
        /// Its name.
        key: String,
    },
    /// A file sets it again later.
    Repeated {
        /// Its name.
        key: String,
        /// Where the setting is that counts.
        winner: String,
    },
    /// A listener of `controller.listener.names`, which nobody needs to reach.
    ControllerListener(String),
    /// A stored topic setting was left out.
    LeftOut(ConfigError),
}

impl ConfigWarning {
    /// The warning that setting `property` deserves, if any.
    #[must_use]
    pub(crate) fn of(property: &Property) -> Option<ConfigWarning> {
        match property.status {
            Status::Active => None,
            Status::NotYet => Some(ConfigWarning::NotYet { key: property.name }),
            Status::NoMeaning => Some(ConfigWarning::NoMeaning {
                key: property.name,
                doc: property.doc,
            }),
        }
    }
}

impl ConfigWarning {
    /// The property, when all there is to say is that it has no effect here.
    #[must_use]
    pub fn without_effect(&self) -> Option<String> {
        match self {
            ConfigWarning::NotYet { key } | ConfigWarning::NoMeaning { key, .. } => {
                Some((*key).to_owned())
            }
            ConfigWarning::OtherOfKafka { key, .. } => Some(shown(key)),
            ConfigWarning::Foreign { .. }
            | ConfigWarning::Repeated { .. }
            | ConfigWarning::ControllerListener(_)
            | ConfigWarning::LeftOut(_) => None,
        }
    }
}

impl fmt::Display for ConfigWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConfigWarning::NotYet { key } => {
                write!(f, "{key} is accepted but has no effect in this version")
            }
            ConfigWarning::NoMeaning { key, doc } => write!(f, "{key} has no effect: {doc}"),
            ConfigWarning::OtherOfKafka { key, why } => {
                write!(f, "{} has no effect: {why}", shown(key))
            }
            ConfigWarning::Foreign { key } => write!(
                f,
                "{} is not a property of this broker or of Kafka: it is left out",
                shown(key)
            ),
            ConfigWarning::Repeated { key, winner } => {
                write!(f, "{} is set again at {winner}, which counts", shown(key))
            }
            ConfigWarning::ControllerListener(endpoint) => write!(
                f,
                "{endpoint} is not bound: this broker is its own controller"
            ),
            ConfigWarning::LeftOut(error) => write!(f, "a stored setting is left out: {error}"),
        }
    }
}

fn scope_word(scope: Scope) -> &'static str {
    match scope {
        Scope::Topic => "topic",
        Scope::Broker => "broker",
        Scope::Group => "group",
    }
}

fn suggestion_text(nearest: Option<&'static str>) -> String {
    nearest.map_or_else(String::new, |known| format!(" (did you mean {known}?)"))
}
