//! The settings of one group: its own over the broker's (KIP-848).

use std::collections::BTreeMap;

use crate::broker::BrokerConfig;
use crate::error::ConfigError;
use crate::property::{Property, Scale, Scope, Synonym};
use crate::topic::{layered_value, parse_override};
use crate::value::{Bounds, Kind, Value};

const ASSIGNMENT: &str = "consumer.assignment.interval.ms";
const HEARTBEAT: &str = "consumer.heartbeat.interval.ms";
const SESSION: &str = "consumer.session.timeout.ms";

/// Sorted by name; see [`crate::property::properties`].
pub(crate) const GROUP_PROPERTIES: &[Property] = &[
    Property::group(
        ASSIGNMENT,
        Kind::Int(Bounds::at_least(0)),
        "1000",
        &[Synonym {
            name: "group.consumer.assignment.interval.ms",
            scale: Scale::Same,
        }],
        "Least time between two distributions of the group, if it is of the newer protocol (KIP-1263): what \
         changes meanwhile is shared out together, with the first heartbeat after it. 0: with each change.",
    )
    .active(),
    Property::group(
        HEARTBEAT,
        Kind::Int(Bounds::at_least(1)),
        "5000",
        &[Synonym {
            name: "group.consumer.heartbeat.interval.ms",
            scale: Scale::Same,
        }],
        "How often members of the newer protocol are told to send heartbeats.",
    )
    .active(),
    Property::group(
        SESSION,
        Kind::Int(Bounds::at_least(1)),
        "45000",
        &[Synonym {
            name: "group.consumer.session.timeout.ms",
            scale: Scale::Same,
        }],
        "How long a member of the newer protocol may be silent before it is out of its group. A \
         change holds for each member from its next heartbeat on.",
    )
    .active(),
];

/// A property of a group, the broker's of the same meaning, and what bounds both.
struct Bounded {
    own: &'static str,
    broker: &'static str,
    min: &'static str,
    max: &'static str,
}

const BOUNDED: [Bounded; 3] = [
    Bounded {
        own: ASSIGNMENT,
        broker: "group.consumer.assignment.interval.ms",
        min: "group.consumer.min.assignment.interval.ms",
        max: "group.consumer.max.assignment.interval.ms",
    },
    Bounded {
        own: HEARTBEAT,
        broker: "group.consumer.heartbeat.interval.ms",
        min: "group.consumer.min.heartbeat.interval.ms",
        max: "group.consumer.max.heartbeat.interval.ms",
    },
    Bounded {
        own: SESSION,
        broker: "group.consumer.session.timeout.ms",
        min: "group.consumer.min.session.timeout.ms",
        max: "group.consumer.max.session.timeout.ms",
    },
];

/// What was set for one group; `None` where the broker's value holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct GroupConfig {
    /// `consumer.assignment.interval.ms`.
    pub consumer_assignment_interval_ms: Option<i32>,
    /// `consumer.session.timeout.ms`.
    pub consumer_session_timeout_ms: Option<i32>,
    /// `consumer.heartbeat.interval.ms`.
    pub consumer_heartbeat_interval_ms: Option<i32>,
}

impl GroupConfig {
    /// Checks all that is to be set for a group.
    ///
    /// # Errors
    /// The first setting that is unknown, has no value or one that is not allowed, lies outside of
    /// what the broker's bounds allow, or a session that is no longer than the time between two
    /// heartbeats.
    pub fn validate<'a>(
        broker: &BrokerConfig,
        settings: impl IntoIterator<Item = (&'a str, Option<&'a str>)>,
    ) -> Result<(), ConfigError> {
        let mut parsed = BTreeMap::new();
        for (key, text) in settings {
            let (name, value) = parse_override(Scope::Group, key, text)?;
            parsed.insert(name, value);
        }
        for bounded in BOUNDED {
            if let Some(Value::Int(value)) = parsed.get(bounded.own) {
                bounded.check(broker, bounded.own, *value)?;
            }
        }
        let in_force = |name: &str| {
            let mut all = GROUP_PROPERTIES.iter();
            let property = all.find(|property| property.name == name)?;
            match layered_value(broker, &parsed, property) {
                Some((Value::Int(ms), _)) => Some(ms),
                _of_another_kind => None,
            }
        };
        match in_force(SESSION) > in_force(HEARTBEAT) {
            true => Ok(()),
            false => Err(ConfigError::Conflict(format!(
                "{SESSION} must be greater than {HEARTBEAT}"
            ))),
        }
    }

    /// Resolves what was stored earlier. What can not be used is left out, and what the bounds do not
    /// allow any more counts as the nearest that they do, as in Kafka.
    #[must_use]
    pub fn resolve<'a>(
        broker: &BrokerConfig,
        stored: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> GroupConfig {
        let mut config = GroupConfig::default();
        for (key, text) in stored {
            let parsed = parse_override(Scope::Group, key, Some(text));
            let bounded = BOUNDED.iter().find(|bounded| bounded.own == key);
            if let (Ok((name, Value::Int(value))), Some(bounded)) = (parsed, bounded) {
                let (min, max) = (broker.long(bounded.min), broker.long(bounded.max));
                let value = i32::try_from(value.min(max).max(min)).ok();
                match name {
                    ASSIGNMENT => config.consumer_assignment_interval_ms = value,
                    SESSION => config.consumer_session_timeout_ms = value,
                    _heartbeat => config.consumer_heartbeat_interval_ms = value,
                }
            }
        }
        config
    }
}

impl Bounded {
    fn check(&self, broker: &BrokerConfig, key: &str, value: i64) -> Result<(), ConfigError> {
        let conflict = |relation: &str, bound: &'static str| {
            let number = broker.long(bound);
            Err(ConfigError::Conflict(format!(
                "{key} must be {relation} {bound}, which is {number}"
            )))
        };
        if value < broker.long(self.min) {
            conflict("greater than or equal to", self.min)
        } else if value > broker.long(self.max) {
            conflict("less than or equal to", self.max)
        } else {
            Ok(())
        }
    }
}

impl BrokerConfig {
    /// Timeouts of groups that lie outside of their own bounds, or bounds that exclude everything.
    pub(crate) fn crossed_group_times(&self) -> Option<ConfigError> {
        for bounded in BOUNDED {
            let (min, max) = (self.long(bounded.min), self.long(bounded.max));
            if max < min {
                return Some(ConfigError::Conflict(format!(
                    "{} must be greater than or equal to {}, which is {min}",
                    bounded.max, bounded.min
                )));
            }
            let value = self.long(bounded.broker);
            if let Err(conflict) = bounded.check(self, bounded.broker, value) {
                return Some(conflict);
            }
        }
        let [_assignment, heartbeat, session] = BOUNDED.map(|bounded| bounded.broker);
        (self.long(heartbeat) >= self.long(session))
            .then(|| ConfigError::Conflict(format!("{heartbeat} must be less than {session}")))
    }
}

#[cfg(test)]
mod tests {
    use super::GroupConfig;
    use crate::broker::BrokerConfig;

    fn broker(settings: &[&str]) -> BrokerConfig {
        let loaded = BrokerConfig::from_settings(settings.iter().copied());
        loaded.expect("valid").config
    }

    fn refusal(settings: &[(&str, Option<&str>)]) -> String {
        let checked = GroupConfig::validate(&broker(&[]), settings.iter().copied());
        checked.map_or_else(|error| error.to_string(), |()| String::new())
    }

    #[test]
    fn a_group_is_checked_against_the_brokers_bounds() {
        const SESSION: &str = "consumer.session.timeout.ms";
        const HEARTBEAT: &str = "consumer.heartbeat.interval.ms";
        const ASSIGNMENT: &str = "consumer.assignment.interval.ms";
        assert_eq!(refusal(&[]), "");
        assert_eq!(refusal(&[(ASSIGNMENT, Some("0"))]), "");
        assert_eq!(
            refusal(&[(SESSION, Some("60000")), (HEARTBEAT, Some("15000"))]),
            ""
        );
        for (key, value, told) in [
            (
                SESSION,
                "44999",
                "must be greater than or equal to group.consumer.min.session",
            ),
            (
                SESSION,
                "60001",
                "must be less than or equal to group.consumer.max.session",
            ),
            (
                HEARTBEAT,
                "4999",
                "must be greater than or equal to group.consumer.min.heart",
            ),
            (
                HEARTBEAT,
                "15001",
                "must be less than or equal to group.consumer.max.heart",
            ),
            (
                ASSIGNMENT,
                "15001",
                "must be less than or equal to group.consumer.max.assignment",
            ),
            (ASSIGNMENT, "-1", "Invalid value -1 for configuration"),
            (
                SESSION,
                "0",
                "Invalid value 0 for configuration consumer.session.timeout.ms",
            ),
            (SESSION, "x", "Invalid value x for configuration"),
            (
                "share.session.timeout.ms",
                "45000",
                "Unknown group config name: share.session",
            ),
            (
                "group.consumer.session.timeout.ms",
                "45000",
                "Unknown group config name",
            ),
        ] {
            let text = refusal(&[(key, Some(value))]);
            assert!(text.contains(told), "{key}={value}: {text}");
        }
        assert!(refusal(&[(SESSION, None)]).contains("Null value not supported for group configs"));
    }

    #[test]
    fn a_session_is_longer_than_the_time_between_heartbeats() {
        let wide = broker(&["group.consumer.min.session.timeout.ms=1000"]);
        let session =
            |ms| GroupConfig::validate(&wide, [("consumer.session.timeout.ms", Some(ms))]);
        let refused = session("5000").map_err(|error| error.to_string());
        let told =
            "consumer.session.timeout.ms must be greater than consumer.heartbeat.interval.ms";
        assert_eq!(refused, Err(told.to_owned()));
        assert_eq!(session("5001"), Ok(()));
    }

    #[test]
    fn what_is_stored_obeys_the_bounds_of_today() {
        let broker = broker(&[
            "group.consumer.max.session.timeout.ms=50000",
            "group.consumer.min.heartbeat.interval.ms=1000",
            "group.consumer.heartbeat.interval.ms=1000",
            "group.consumer.max.heartbeat.interval.ms=2000",
        ]);
        let stored = [
            ("consumer.assignment.interval.ms", "20000"),
            ("consumer.heartbeat.interval.ms", "3000"),
            ("consumer.session.timeout.ms", "60000"),
            ("share.session.timeout.ms", "1"),
        ];
        let config = GroupConfig::resolve(&broker, stored);
        assert_eq!(config.consumer_assignment_interval_ms, Some(15_000));
        assert_eq!(config.consumer_session_timeout_ms, Some(50_000));
        assert_eq!(config.consumer_heartbeat_interval_ms, Some(2_000));
        let config = GroupConfig::resolve(&broker, [("consumer.session.timeout.ms", "")]);
        assert_eq!(config, GroupConfig::default());
    }

    #[test]
    fn a_broker_whose_own_times_break_its_bounds_does_not_start() {
        for (setting, told) in [
            (
                "group.consumer.session.timeout.ms=10000",
                "min.session.timeout.ms, which is 45000",
            ),
            (
                "group.consumer.assignment.interval.ms=20000",
                "max.assignment.interval.ms, which is 15000",
            ),
            (
                "group.consumer.heartbeat.interval.ms=20000",
                "max.heartbeat.interval.ms, which is 15000",
            ),
            (
                "group.consumer.max.session.timeout.ms=1",
                "max.session.timeout.ms must be greater",
            ),
        ] {
            let refused = BrokerConfig::from_settings([setting]).expect_err(setting);
            assert!(refused.to_string().contains(told), "{setting}: {refused}");
        }
        let crossed = [
            "group.consumer.min.session.timeout.ms=5000",
            "group.consumer.session.timeout.ms=5000",
        ];
        let refused = BrokerConfig::from_settings(crossed).expect_err("crossed");
        assert!(
            refused.to_string().contains("must be less than"),
            "{refused}"
        );
    }
}
