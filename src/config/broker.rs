//! The settings of one broker.

use std::collections::BTreeMap;

use thalweg_types::BrokerId;

use crate::error::{ConfigError, ConfigErrors, ConfigWarning};
use crate::property::{self, Scope, properties};
use crate::value::{Endpoint, Value};

/// How files are written (`thalweg.engine`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Engine {
    /// The ring where the kernel allows it, plain otherwise.
    Auto,
    /// io_uring.
    Ring,
    /// Ordinary system calls on threads.
    Plain,
}

/// A broker's settings: the defaults of the registry under what was set.
///
/// Getters look the property up by name: read what a hot path needs once, at start.
#[derive(Clone, PartialEq, Debug)]
pub struct BrokerConfig {
    /// Only what was set, by the registry's names.
    set: BTreeMap<&'static str, Value>,
    /// Every property with a value, set or default.
    effective: BTreeMap<&'static str, Value>,
}

/// The outcome of [`BrokerConfig::from_settings`].
#[derive(Clone, PartialEq, Debug)]
pub struct LoadedBrokerConfig {
    /// The settings.
    pub config: BrokerConfig,
    /// Settings that were taken but change nothing; one line each for the log.
    pub warnings: Vec<ConfigWarning>,
}

impl Default for BrokerConfig {
    fn default() -> Self {
        let effective = properties(Scope::Broker)
            .iter()
            .filter_map(|p| Some((p.name, p.kind.parse(p.default?).ok()?)))
            .collect();
        BrokerConfig {
            set: BTreeMap::new(),
            effective,
        }
    }
}

impl BrokerConfig {
    /// Reads `key=value` settings, as given by `--set`. A later setting of a key wins.
    ///
    /// # Errors
    /// All that is wrong, not only the first: unknown keys with the nearest known one, values with
    /// what is allowed.
    pub fn from_settings<'a>(
        settings: impl IntoIterator<Item = &'a str>,
    ) -> Result<LoadedBrokerConfig, ConfigErrors> {
        let mut config = BrokerConfig::default();
        let mut errors = Vec::new();
        for setting in settings {
            if let Err(error) = config.apply(setting) {
                errors.push(error);
            }
        }
        let lags = (
            "log.cleaner.min.compaction.lag.ms",
            "log.cleaner.max.compaction.lag.ms",
        );
        if config.long(lags.0) > config.long(lags.1) {
            errors.push(ConfigError::Conflict(format!(
                "{} is larger than {}",
                lags.0, lags.1
            )));
        }
        if !errors.is_empty() {
            return Err(ConfigErrors(errors));
        }
        let warnings = config
            .set
            .keys()
            .filter_map(|key| property::find(Scope::Broker, key))
            .filter_map(ConfigWarning::of)
            .collect();
        Ok(LoadedBrokerConfig { config, warnings })
    }

    fn apply(&mut self, setting: &str) -> Result<(), ConfigError> {
        let (key, text) = setting
            .split_once('=')
            .ok_or_else(|| ConfigError::NotASetting {
                setting: setting.to_string(),
            })?;
        let key = key.trim();
        let Some(property) = property::find(Scope::Broker, key) else {
            return Err(ConfigError::UnknownKey {
                scope: Scope::Broker,
                key: key.to_string(),
                nearest: property::nearest(Scope::Broker, key),
            });
        };
        let value = property
            .kind
            .parse(text)
            .map_err(|_| ConfigError::BadValue {
                key: property.name,
                value: text.trim().to_string(),
                allowed: property.kind.allowed(),
            })?;
        self.effective.insert(property.name, value.clone());
        self.set.insert(property.name, value);
        Ok(())
    }

    /// The value that was set for `key`; `None` when it was left at its default.
    #[must_use]
    pub fn explicit(&self, key: &str) -> Option<&Value> {
        self.set.get(key)
    }

    /// The value in force for `key`, set or default; `None` when it has neither or is unknown.
    #[must_use]
    pub fn value(&self, key: &str) -> Option<&Value> {
        self.effective.get(key)
    }

    fn long(&self, key: &'static str) -> i64 {
        match self.value(key) {
            Some(Value::Int(number)) => *number,
            other => unreachable_kind(key, other),
        }
    }

    fn flag(&self, key: &'static str) -> bool {
        match self.value(key) {
            Some(Value::Bool(flag)) => *flag,
            other => unreachable_kind(key, other),
        }
    }

    fn int(&self, key: &'static str) -> i32 {
        i32::try_from(self.long(key)).expect("the registry bounds this property to 32 bits")
    }

    fn text(&self, key: &str) -> Option<&str> {
        match self.value(key) {
            Some(Value::Text(text)) if !text.is_empty() => Some(text),
            _other => None,
        }
    }

    fn first_endpoint(&self, key: &str) -> Option<Endpoint> {
        match self.value(key) {
            Some(Value::List(items)) => items.first().and_then(|item| Endpoint::parse(item)),
            _other => None,
        }
    }

    /// `node.id`.
    #[must_use]
    pub fn node_id(&self) -> BrokerId {
        BrokerId(self.int("node.id"))
    }

    /// `broker.rack`.
    #[must_use]
    pub fn broker_rack(&self) -> Option<&str> {
        self.text("broker.rack")
    }

    /// The first of `listeners`.
    #[must_use]
    pub fn listener(&self) -> Option<Endpoint> {
        self.first_endpoint("listeners")
    }

    /// The first of `advertised.listeners`.
    #[must_use]
    pub fn advertised_listener(&self) -> Option<Endpoint> {
        self.first_endpoint("advertised.listeners")
    }

    /// The first of `log.dirs`, else `log.dir`.
    #[must_use]
    pub fn log_dir(&self) -> Option<&str> {
        let first = |key| match self.value(key) {
            Some(Value::List(items)) => items.first().map(String::as_str),
            _other => None,
        };
        first("log.dirs").or_else(|| first("log.dir"))
    }

    /// `thalweg.cluster.id`.
    #[must_use]
    pub fn cluster_id(&self) -> Option<&str> {
        self.text("thalweg.cluster.id")
    }

    /// `thalweg.engine`.
    #[must_use]
    pub fn engine(&self) -> Engine {
        match self.text("thalweg.engine") {
            Some("ring") => Engine::Ring,
            Some("plain") => Engine::Plain,
            _auto => Engine::Auto,
        }
    }

    /// `thalweg.ring.entries`.
    #[must_use]
    pub fn ring_entries(&self) -> u32 {
        self.int("thalweg.ring.entries").unsigned_abs()
    }

    /// `num.partitions`, at least 1.
    #[must_use]
    pub fn num_partitions(&self) -> i32 {
        self.int("num.partitions")
    }

    /// `default.replication.factor`, at least 1.
    #[must_use]
    pub fn default_replication_factor(&self) -> i16 {
        i16::try_from(self.long("default.replication.factor"))
            .expect("the registry bounds this property to 16 bits")
    }

    /// `auto.create.topics.enable`.
    #[must_use]
    pub fn auto_create_topics_enable(&self) -> bool {
        self.flag("auto.create.topics.enable")
    }

    /// `delete.topic.enable`.
    #[must_use]
    pub fn delete_topic_enable(&self) -> bool {
        self.flag("delete.topic.enable")
    }

    /// `socket.request.max.bytes`.
    #[must_use]
    pub fn socket_request_max_bytes(&self) -> u32 {
        self.int("socket.request.max.bytes").unsigned_abs()
    }

    /// `connections.max.idle.ms`; `None` = never.
    #[must_use]
    pub fn connections_max_idle_ms(&self) -> Option<u64> {
        u64::try_from(self.long("connections.max.idle.ms")).ok()
    }

    /// `max.connections`.
    #[must_use]
    pub fn max_connections(&self) -> u32 {
        self.int("max.connections").unsigned_abs()
    }

    /// `queued.max.request.bytes`; `None` = a share of the machine's memory.
    #[must_use]
    pub fn queued_max_request_bytes(&self) -> Option<u64> {
        u64::try_from(self.long("queued.max.request.bytes")).ok()
    }

    /// `producer.id.expiration.ms`.
    #[must_use]
    pub fn producer_id_expiration_ms(&self) -> i64 {
        self.long("producer.id.expiration.ms")
    }

    /// `producer.id.expiration.check.interval.ms`.
    #[must_use]
    pub fn producer_id_expiration_check_interval_ms(&self) -> u64 {
        self.long("producer.id.expiration.check.interval.ms")
            .unsigned_abs()
    }

    /// `fetch.max.bytes`.
    #[must_use]
    pub fn fetch_max_bytes(&self) -> u32 {
        self.int("fetch.max.bytes").unsigned_abs()
    }

    /// `thalweg.request.progress.timeout.ms`.
    #[must_use]
    pub fn request_progress_timeout_ms(&self) -> u64 {
        self.long("thalweg.request.progress.timeout.ms")
            .unsigned_abs()
    }

    /// `thalweg.response.write.timeout.ms`.
    #[must_use]
    pub fn response_write_timeout_ms(&self) -> u64 {
        self.long("thalweg.response.write.timeout.ms")
            .unsigned_abs()
    }

    /// `group.initial.rebalance.delay.ms`.
    #[must_use]
    pub fn group_initial_rebalance_delay_ms(&self) -> u64 {
        self.long("group.initial.rebalance.delay.ms").unsigned_abs()
    }

    /// `group.min.session.timeout.ms` and `group.max.session.timeout.ms`.
    #[must_use]
    pub fn group_session_timeout_ms(&self) -> std::ops::RangeInclusive<i32> {
        self.int("group.min.session.timeout.ms")..=self.int("group.max.session.timeout.ms")
    }

    /// `group.max.size`.
    #[must_use]
    pub fn group_max_size(&self) -> usize {
        self.int("group.max.size").unsigned_abs() as usize
    }

    /// `offset.metadata.max.bytes`.
    #[must_use]
    pub fn offset_metadata_max_bytes(&self) -> usize {
        self.int("offset.metadata.max.bytes").unsigned_abs() as usize
    }

    /// `offsets.topic.num.partitions`, at least 1.
    #[must_use]
    pub fn offsets_topic_num_partitions(&self) -> i32 {
        self.int("offsets.topic.num.partitions")
    }

    /// `offsets.topic.replication.factor`, at least 1.
    #[must_use]
    pub fn offsets_topic_replication_factor(&self) -> i16 {
        i16::try_from(self.long("offsets.topic.replication.factor"))
            .expect("the registry bounds this property to 16 bits")
    }

    /// `offsets.topic.segment.bytes`.
    #[must_use]
    pub fn offsets_topic_segment_bytes(&self) -> u32 {
        self.int("offsets.topic.segment.bytes").unsigned_abs()
    }
}

/// A getter asked for a property as another kind than the registry says: a mistake in this file,
/// found by the test that calls every getter.
fn unreachable_kind(key: &str, found: Option<&Value>) -> ! {
    panic!("the getter of {key} does not fit its kind: found {found:?}")
}

#[cfg(test)]
mod tests {
    use super::{BrokerConfig, Engine};
    use crate::error::ConfigWarning;
    use crate::value::Value;

    fn load(settings: &[&str]) -> Result<super::LoadedBrokerConfig, String> {
        BrokerConfig::from_settings(settings.iter().copied()).map_err(|e| e.to_string())
    }

    #[test]
    fn every_getter_fits_its_property() {
        let c = BrokerConfig::default();
        assert_eq!(c.node_id().0, 1);
        assert_eq!((c.num_partitions(), c.default_replication_factor()), (1, 1));
        assert!(c.auto_create_topics_enable() && c.delete_topic_enable());
        assert_eq!(c.socket_request_max_bytes(), 104_857_600);
        assert_eq!(c.connections_max_idle_ms(), Some(600_000));
        assert_eq!(c.max_connections(), i32::MAX as u32);
        assert_eq!(c.queued_max_request_bytes(), None);
        assert_eq!(c.fetch_max_bytes(), 57_671_680);
        assert_eq!(c.request_progress_timeout_ms(), 30_000);
        assert_eq!(c.response_write_timeout_ms(), 60_000);
        assert_eq!((c.engine(), c.ring_entries()), (Engine::Auto, 256));
        assert_eq!(
            (c.broker_rack(), c.cluster_id(), c.log_dir()),
            (None, None, None)
        );
        assert_eq!((c.listener(), c.advertised_listener()), (None, None));
    }

    #[test]
    fn every_getter_of_groups_fits_its_property() {
        let c = BrokerConfig::default();
        assert_eq!(c.group_initial_rebalance_delay_ms(), 3_000);
        assert_eq!(c.group_session_timeout_ms(), 6_000..=1_800_000);
        assert_eq!(c.group_max_size(), i32::MAX as usize);
        assert_eq!(c.offset_metadata_max_bytes(), 4_096);
        assert_eq!(c.offsets_topic_num_partitions(), 50);
        assert_eq!(c.offsets_topic_replication_factor(), 3);
        assert_eq!(c.offsets_topic_segment_bytes(), 104_857_600);
    }

    #[test]
    fn settings_win_over_defaults_and_the_last_wins() {
        let loaded = load(&["node.id=3", " num.partitions = 2 ", "node.id=4"]).expect("valid");
        assert_eq!(loaded.config.node_id().0, 4);
        assert_eq!(loaded.config.num_partitions(), 2);
        assert_eq!(
            loaded.config.explicit("num.partitions"),
            Some(&Value::Int(2))
        );
        assert_eq!(loaded.config.explicit("num.io.threads"), None);
        assert_eq!(loaded.warnings, vec![]);
    }

    #[test]
    fn all_mistakes_are_reported_at_once() {
        let text = load(&[
            "num.partition=3",
            "node.id",
            "num.partitions=0",
            "retention.ms=5",
        ])
        .expect_err("four mistakes");
        assert_eq!(
            text.lines().collect::<Vec<_>>(),
            [
                "Unknown broker config name: num.partition (did you mean num.partitions?)",
                "'node.id' is not a setting: write key=value",
                "Invalid value 0 for configuration num.partitions: it must be a whole number of \
                 at least 1 (int)",
                "Unknown broker config name: retention.ms (did you mean log.retention.ms?)",
            ]
        );
    }

    #[test]
    fn settings_without_effect_are_warned_of() {
        let loaded = load(&["num.io.threads=4", "log.cleanup.policy=compact"]).expect("valid");
        let keys: Vec<_> = loaded
            .warnings
            .iter()
            .map(|w| match w {
                ConfigWarning::NotYet { key } | ConfigWarning::NoMeaning { key, .. } => *key,
                ConfigWarning::LeftOut(_) => "left out",
            })
            .collect();
        assert_eq!(keys, ["log.cleanup.policy", "num.io.threads"]);
    }

    #[test]
    fn compaction_lags_must_not_cross() {
        let crossed = load(&[
            "log.cleaner.min.compaction.lag.ms=9",
            "log.cleaner.max.compaction.lag.ms=8",
        ]);
        assert!(crossed.is_err());
    }
}
