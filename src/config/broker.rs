//! The settings of one broker.

use std::collections::BTreeMap;

use thalweg_types::BrokerId;

use crate::error::{ConfigError, ConfigErrors, ConfigWarning};
use crate::property::{self, Property, Scope, properties};
use crate::settings::{LoadedBrokerConfig, Settings};
use crate::topic::ConfigSource;
use crate::value::{Value, host_limit};

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

/// Settings of one origin, by the registry's names.
pub(crate) type Layer = BTreeMap<&'static str, Value>;

/// A broker's settings: the defaults of the registry under what was set at start, and that under
/// what was set while it ran, for all brokers and for this one (KIP-226).
///
/// Getters look the property up by name: read what a hot path needs once, at start.
#[derive(Clone, PartialEq, Debug)]
pub struct BrokerConfig {
    /// Only what was set at start, by the registry's names.
    set: Layer,
    /// What was set for all brokers while they ran.
    cluster_wide: Layer,
    /// What was set for this broker while it ran.
    own: Layer,
    /// Every property with a value, set or default.
    effective: BTreeMap<&'static str, Value>,
}

impl Default for BrokerConfig {
    fn default() -> Self {
        let effective = properties(Scope::Broker)
            .iter()
            .filter_map(|p| Some((p.name, p.kind.parse(p.default?).ok()?)))
            .collect();
        BrokerConfig {
            set: Layer::new(),
            cluster_wide: Layer::new(),
            own: Layer::new(),
            effective,
        }
    }
}

impl BrokerConfig {
    /// Reads `key=value` settings, as given by `--set`. A later setting of a key wins.
    ///
    /// # Errors
    /// As [`Settings::load`].
    pub fn from_settings<'a>(
        settings: impl IntoIterator<Item = &'a str>,
    ) -> Result<LoadedBrokerConfig, ConfigErrors> {
        let mut given = Settings::new();
        settings
            .into_iter()
            .for_each(|setting| given.add_setting(setting));
        given.load()
    }

    /// The defaults under `set`.
    pub(crate) fn of_start(set: Layer) -> BrokerConfig {
        let mut config = BrokerConfig::default();
        let values = set.iter().map(|(name, value)| (*name, value.clone()));
        config.effective.extend(values);
        config.set = set;
        config
    }

    /// The value that was set for `key` at start; `None` when it was left at its default.
    #[must_use]
    pub fn explicit(&self, key: &str) -> Option<&Value> {
        self.set.get(key)
    }

    /// Everything that was set, strongest first.
    pub(crate) fn layers(&self) -> [(ConfigSource, &Layer); 3] {
        [
            (ConfigSource::DynamicBroker, &self.own),
            (ConfigSource::DynamicDefaultBroker, &self.cluster_wide),
            (ConfigSource::StaticBroker, &self.set),
        ]
    }

    /// These settings under others that were stored while the broker ran: for all brokers, and for
    /// this one. What can not be used is left out and comes back as a warning.
    #[must_use]
    pub fn with_dynamic<'a>(
        &self,
        cluster_wide: impl IntoIterator<Item = (&'a str, &'a str)>,
        own: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> (BrokerConfig, Vec<ConfigWarning>) {
        let mut config = BrokerConfig {
            set: self.set.clone(),
            ..BrokerConfig::default()
        };
        let mut warnings = Vec::new();
        let mut read = |stored: &mut dyn Iterator<Item = (&'a str, &'a str)>| {
            let mut layer = Layer::new();
            for (key, text) in stored {
                match parse_dynamic(key, text) {
                    Ok((name, value)) => {
                        layer.insert(name, value);
                    }
                    Err(error) => warnings.push(ConfigWarning::LeftOut(error)),
                }
            }
            layer
        };
        config.cluster_wide = read(&mut cluster_wide.into_iter());
        config.own = read(&mut own.into_iter());
        for layer in [&config.set, &config.cluster_wide, &config.own] {
            let values = layer.iter().map(|(name, value)| (*name, value.clone()));
            config.effective.extend(values);
        }
        (config, warnings)
    }

    /// Checks settings as a client gives them to a running broker.
    ///
    /// # Errors
    /// The first that can not be changed while the broker runs or has a value that is not allowed,
    /// or settings that do not go together.
    pub fn check_dynamic<'a>(
        &self,
        settings: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<(), ConfigError> {
        let mut config = self.clone();
        for (key, text) in settings {
            let (name, value) = parse_dynamic(key, text)?;
            config.effective.insert(name, value);
        }
        match config.crossed_lags() {
            Some(conflict) => Err(conflict),
            None => Ok(()),
        }
    }

    pub(crate) fn crossed_lags(&self) -> Option<ConfigError> {
        let lags = (
            "log.cleaner.min.compaction.lag.ms",
            "log.cleaner.max.compaction.lag.ms",
        );
        (self.long(lags.0) > self.long(lags.1))
            .then(|| ConfigError::Conflict(format!("{} is larger than {}", lags.0, lags.1)))
    }

    /// The value in force for `key`, set or default; `None` when it has neither or is unknown.
    #[must_use]
    pub fn value(&self, key: &str) -> Option<&Value> {
        self.effective.get(key)
    }

    pub(crate) fn long(&self, key: &'static str) -> i64 {
        match self.value(key) {
            Some(Value::Int(number)) => *number,
            other => unreachable_kind(key, other),
        }
    }

    pub(crate) fn flag(&self, key: &'static str) -> bool {
        match self.value(key) {
            Some(Value::Bool(flag)) => *flag,
            other => unreachable_kind(key, other),
        }
    }

    pub(crate) fn double(&self, key: &'static str) -> f64 {
        match self.value(key) {
            Some(Value::Double(number)) => *number,
            other => unreachable_kind(key, other),
        }
    }

    fn int(&self, key: &'static str) -> i32 {
        i32::try_from(self.long(key)).expect("the registry bounds this property to 32 bits")
    }

    pub(crate) fn text(&self, key: &str) -> Option<&str> {
        match self.value(key) {
            Some(Value::Text(text)) if !text.is_empty() => Some(text),
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

    /// The log directories, in their order: `log.dirs`, else `log.dir`, which has a default. Never empty.
    #[must_use]
    pub fn log_dirs(&self) -> &[String] {
        let some = |key| match self.value(key) {
            Some(Value::List(items)) if !items.is_empty() => Some(&items[..]),
            _other => None,
        };
        let found = some("log.dirs").or_else(|| some("log.dir"));
        found.expect("settings that name no directory are refused")
    }

    /// `metadata.log.dir`; `None` = the first log directory.
    #[must_use]
    pub fn metadata_log_dir(&self) -> Option<&str> {
        self.text("metadata.log.dir")
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

    /// `thalweg.log.dirs.headroom.bytes`; `None` when it is to be derived.
    #[must_use]
    pub fn headroom_bytes(&self) -> Option<u64> {
        u64::try_from(self.long("thalweg.log.dirs.headroom.bytes")).ok()
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

    /// `socket.receive.buffer.bytes`; `None` = as the kernel tunes it, and as we do for clients on this host.
    #[must_use]
    pub fn socket_receive_buffer_bytes(&self) -> Option<u32> {
        u32::try_from(self.int("socket.receive.buffer.bytes")).ok()
    }

    /// `socket.send.buffer.bytes`; `None` = as the kernel tunes it, and as we do for clients on this host.
    #[must_use]
    pub fn socket_send_buffer_bytes(&self) -> Option<u32> {
        u32::try_from(self.int("socket.send.buffer.bytes")).ok()
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

    /// `max.connections.per.ip`.
    #[must_use]
    pub fn max_connections_per_ip(&self) -> u32 {
        self.int("max.connections.per.ip").unsigned_abs()
    }

    /// `max.connections.per.ip.overrides`: hosts, as they were written, and their numbers.
    pub fn max_connections_per_ip_overrides(&self) -> impl Iterator<Item = (&str, u32)> {
        let items = match self.value("max.connections.per.ip.overrides") {
            Some(Value::List(items)) => &items[..],
            _other => &[],
        };
        items.iter().filter_map(|item| host_limit(item))
    }

    /// `max.connection.creation.rate`, per second.
    #[must_use]
    pub fn max_connection_creation_rate(&self) -> u32 {
        self.int("max.connection.creation.rate").unsigned_abs()
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

    /// `thalweg.log.dirs.probe.interval.ms`; `None` when idle directories are left alone.
    #[must_use]
    pub fn log_dirs_probe_interval_ms(&self) -> Option<u64> {
        let interval = u64::try_from(self.long("thalweg.log.dirs.probe.interval.ms"));
        interval.ok().filter(|interval| *interval > 0)
    }

    /// `replica.alter.log.dirs.io.max.bytes.per.second`, of each core.
    #[must_use]
    pub fn replica_alter_log_dirs_io_max_bytes_per_second(&self) -> u64 {
        self.long("replica.alter.log.dirs.io.max.bytes.per.second")
            .unsigned_abs()
    }

    /// `log.flush.scheduler.interval.ms`.
    #[must_use]
    pub fn log_flush_scheduler_interval_ms(&self) -> u64 {
        self.long("log.flush.scheduler.interval.ms").unsigned_abs()
    }

    /// `log.flush.offset.checkpoint.interval.ms`.
    #[must_use]
    pub fn log_flush_offset_checkpoint_interval_ms(&self) -> u64 {
        u64::from(
            self.int("log.flush.offset.checkpoint.interval.ms")
                .unsigned_abs(),
        )
    }

    /// `thalweg.log.flush.interval.bytes`.
    #[must_use]
    pub fn log_flush_interval_bytes(&self) -> u64 {
        self.long("thalweg.log.flush.interval.bytes").unsigned_abs()
    }

    /// `thalweg.log.flush.interval.ms`.
    #[must_use]
    pub fn log_flush_interval_ms(&self) -> u64 {
        self.long("thalweg.log.flush.interval.ms").unsigned_abs()
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

    /// `group.consumer.session.timeout.ms`.
    #[must_use]
    pub fn group_consumer_session_timeout_ms(&self) -> i32 {
        self.int("group.consumer.session.timeout.ms")
    }

    /// `group.consumer.heartbeat.interval.ms`.
    #[must_use]
    pub fn group_consumer_heartbeat_interval_ms(&self) -> i32 {
        self.int("group.consumer.heartbeat.interval.ms")
    }

    /// `group.consumer.assignment.interval.ms`.
    #[must_use]
    pub fn group_consumer_assignment_interval_ms(&self) -> i32 {
        self.int("group.consumer.assignment.interval.ms")
    }

    /// `group.consumer.max.size`.
    #[must_use]
    pub fn group_consumer_max_size(&self) -> usize {
        self.int("group.consumer.max.size").unsigned_abs() as usize
    }

    /// `group.consumer.migration.policy`: its word, in lower case.
    #[must_use]
    pub fn group_consumer_migration_policy(&self) -> &str {
        match self.value("group.consumer.migration.policy") {
            Some(Value::Text(word)) => word,
            other => unreachable_kind("group.consumer.migration.policy", other),
        }
    }

    /// `group.consumer.assignors`.
    #[must_use]
    pub fn group_consumer_assignors(&self) -> Vec<String> {
        match self.value("group.consumer.assignors") {
            Some(Value::List(names)) => names.clone(),
            other => unreachable_kind("group.consumer.assignors", other),
        }
    }

    /// `offset.metadata.max.bytes`.
    #[must_use]
    pub fn offset_metadata_max_bytes(&self) -> usize {
        self.int("offset.metadata.max.bytes").unsigned_abs() as usize
    }

    /// `offsets.retention.minutes`, in milliseconds.
    #[must_use]
    pub fn offsets_retention_ms(&self) -> i64 {
        i64::from(self.int("offsets.retention.minutes")) * 60_000
    }

    /// `offsets.retention.check.interval.ms`, at least 1.
    #[must_use]
    pub fn offsets_retention_check_interval_ms(&self) -> u64 {
        self.long("offsets.retention.check.interval.ms")
            .unsigned_abs()
    }

    /// `log.initial.task.delay.ms`.
    #[must_use]
    pub fn log_initial_task_delay_ms(&self) -> u64 {
        self.long("log.initial.task.delay.ms").unsigned_abs()
    }

    /// `log.retention.check.interval.ms`, at least 1.
    #[must_use]
    pub fn log_retention_check_interval_ms(&self) -> u64 {
        self.long("log.retention.check.interval.ms").unsigned_abs()
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

pub(crate) fn parse(property: &Property, text: &str) -> Result<Value, ConfigError> {
    property
        .kind
        .parse(text)
        .map_err(|_| ConfigError::BadValue {
            key: property.name,
            value: text.trim().to_string(),
            allowed: property.kind.allowed(),
        })
}

fn parse_dynamic(key: &str, text: &str) -> Result<(&'static str, Value), ConfigError> {
    match property::find(Scope::Broker, key) {
        Some(property) if property.is_dynamic() => Ok((property.name, parse(property, text)?)),
        Some(_) | None => Err(ConfigError::NotDynamic {
            key: key.to_string(),
        }),
    }
}

/// A getter asked for a property as another kind than the registry says: a mistake in this file,
/// found by the test that calls every getter.
fn unreachable_kind(key: &str, found: Option<&Value>) -> ! {
    panic!("the getter of {key} does not fit its kind: found {found:?}")
}

#[cfg(test)]
#[path = "broker_tests.rs"]
mod tests;
