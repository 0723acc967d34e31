//! The settings of one topic: its overrides over the broker's defaults.

use std::collections::BTreeMap;

use crate::broker::{BrokerConfig, parse};
use crate::error::{ConfigError, ConfigWarning};
use crate::property::{self, Property, Scale, Scope, Visibility, properties};
use crate::value::Value;

const MS_PER_MINUTE: i64 = 60 * 1_000;
const MS_PER_HOUR: i64 = 60 * MS_PER_MINUTE;

/// Whose timestamps records keep (`message.timestamp.type`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TimestampType {
    /// The producer's.
    CreateTime,
    /// The broker's at the append.
    LogAppendTime,
}

/// What happens to old data (`cleanup.policy`). With neither, all is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CleanupPolicy {
    /// Keep the last value of each key.
    pub compact: bool,
    /// Drop whole segments by age and size.
    pub delete: bool,
}

/// In which codec batches are stored (`compression.type`). A level of `None` is the codec's own default.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Compression {
    /// As the producer sent them.
    AsSent,
    /// Without compression.
    Uncompressed,
    /// gzip, with `compression.gzip.level`.
    Gzip(Option<i32>),
    /// snappy.
    Snappy,
    /// lz4, which has one level here.
    Lz4,
    /// zstd, with `compression.zstd.level`.
    Zstd(Option<i32>),
}

/// Where a value comes from; the numbers are Kafka's (`config_source` on the wire).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i8)]
pub enum ConfigSource {
    /// Set on the topic.
    DynamicTopic = 1,
    /// Set on this broker while it ran.
    DynamicBroker = 2,
    /// Set on all brokers while they ran.
    DynamicDefaultBroker = 3,
    /// Set on the broker at start.
    StaticBroker = 4,
    /// The registry's default.
    Default = 5,
    /// Set on the group.
    DynamicGroup = 8,
}

/// One line of a topic's configuration, as CreateTopics v5 and DescribeConfigs answer it.
#[derive(Clone, PartialEq, Debug)]
pub struct ConfigEntry {
    /// The property.
    pub property: &'static Property,
    /// Its value in text form.
    pub value: String,
    /// Where the value comes from.
    pub source: ConfigSource,
}

/// A topic's settings, resolved. Getters are plain field reads; units are in their names.
#[derive(Clone, PartialEq, Debug)]
pub struct TopicConfig {
    values: BTreeMap<&'static str, (Value, ConfigSource)>,
    hot: Hot,
}

/// What is read per request, out of the map.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Hot {
    segment_bytes: u32,
    segment_ms: i64,
    segment_jitter_ms: i64,
    segment_index_bytes: u32,
    index_interval_bytes: u32,
    max_message_bytes: u32,
    timestamp_type: TimestampType,
    timestamp_before_max_ms: i64,
    timestamp_after_max_ms: i64,
    min_insync_replicas: u32,
    flush_messages: i64,
    flush_ms: i64,
    retention_ms: Option<i64>,
    retention_bytes: Option<i64>,
    cleanup_policy: CleanupPolicy,
    min_cleanable_dirty_ratio: f64,
    min_compaction_lag_ms: i64,
    max_compaction_lag_ms: i64,
    delete_retention_ms: i64,
    file_delete_delay_ms: u64,
    compression: Compression,
}

impl TopicConfig {
    /// Checks `overrides` as CreateTopics gives them and resolves them over `broker`'s defaults.
    /// A later override of the same key wins.
    ///
    /// # Errors
    /// The first override that is unknown, has no value or one that is not allowed, or settings
    /// that do not go together.
    pub fn validate<'a>(
        broker: &BrokerConfig,
        overrides: impl IntoIterator<Item = (&'a str, Option<&'a str>)>,
    ) -> Result<TopicConfig, ConfigError> {
        let mut parsed = BTreeMap::new();
        for (key, text) in overrides {
            let (name, value) = parse_override(Scope::Topic, key, text)?;
            parsed.insert(name, value);
        }
        let config = TopicConfig::layered(broker, parsed);
        config.check_together()?;
        Ok(config)
    }

    /// Resolves overrides that were stored earlier. What can not be used (a newer version's key,
    /// say) is left out and comes back as a warning: a broker must start on what it finds.
    #[must_use]
    pub fn resolve<'a>(
        broker: &BrokerConfig,
        overrides: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> (TopicConfig, Vec<ConfigWarning>) {
        let mut parsed = BTreeMap::new();
        let mut warnings = Vec::new();
        for (key, text) in overrides {
            match parse_override(Scope::Topic, key, Some(text)) {
                Ok((name, value)) => {
                    parsed.insert(name, value);
                }
                Err(error) => warnings.push(ConfigWarning::LeftOut(error)),
            }
        }
        (TopicConfig::layered(broker, parsed), warnings)
    }

    fn layered(broker: &BrokerConfig, overrides: BTreeMap<&'static str, Value>) -> TopicConfig {
        let mut values = BTreeMap::new();
        for property in properties(Scope::Topic) {
            if let Some(found) = layered_value(broker, &overrides, property) {
                values.insert(property.name, found);
            }
        }
        let hot = Hot::of(&values);
        TopicConfig { values, hot }
    }

    fn check_together(&self) -> Result<(), ConfigError> {
        let lags = ("min.compaction.lag.ms", "max.compaction.lag.ms");
        let (min, max) = (long(&self.values, lags.0), long(&self.values, lags.1));
        if min > max {
            let text = format!(
                "conflicting topic configs: {} ({min}) > {} ({max})",
                lags.0, lags.1
            );
            return Err(ConfigError::Conflict(text));
        }
        if flag(&self.values, "remote.storage.enable") {
            let text = "remote.storage.enable can not be true: this broker has no remote storage";
            return Err(ConfigError::Conflict(text.to_string()));
        }
        Ok(())
    }

    /// Every public property with its value and source, sorted by name.
    pub fn entries(&self) -> impl Iterator<Item = ConfigEntry> + '_ {
        properties(Scope::Topic)
            .iter()
            .filter(|property| property.visibility == Visibility::Public)
            .filter_map(|property| {
                let (value, source) = self.values.get(property.name)?;
                Some(ConfigEntry {
                    property,
                    value: value.to_string(),
                    source: *source,
                })
            })
    }

    /// The value of `key`; `None` when it is unknown or not set.
    #[must_use]
    pub fn value(&self, key: &str) -> Option<&Value> {
        self.values.get(key).map(|(value, _)| value)
    }

    /// `segment.bytes` (or the hidden `internal.segment.bytes`).
    #[must_use]
    pub fn segment_bytes(&self) -> u32 {
        self.hot.segment_bytes
    }

    /// `segment.ms`.
    #[must_use]
    pub fn segment_ms(&self) -> i64 {
        self.hot.segment_ms
    }

    /// `segment.jitter.ms`: the largest time to take off [`TopicConfig::segment_ms`].
    #[must_use]
    pub fn segment_jitter_ms(&self) -> i64 {
        self.hot.segment_jitter_ms
    }

    /// `segment.index.bytes`.
    #[must_use]
    pub fn segment_index_bytes(&self) -> u32 {
        self.hot.segment_index_bytes
    }

    /// `index.interval.bytes`.
    #[must_use]
    pub fn index_interval_bytes(&self) -> u32 {
        self.hot.index_interval_bytes
    }

    /// `max.message.bytes`: of a whole record batch.
    #[must_use]
    pub fn max_message_bytes(&self) -> u32 {
        self.hot.max_message_bytes
    }

    /// `message.timestamp.type`.
    #[must_use]
    pub fn message_timestamp_type(&self) -> TimestampType {
        self.hot.timestamp_type
    }

    /// `message.timestamp.before.max.ms`; `i64::MAX` means no bound.
    #[must_use]
    pub fn message_timestamp_before_max_ms(&self) -> i64 {
        self.hot.timestamp_before_max_ms
    }

    /// `message.timestamp.after.max.ms`; `i64::MAX` means no bound.
    #[must_use]
    pub fn message_timestamp_after_max_ms(&self) -> i64 {
        self.hot.timestamp_after_max_ms
    }

    /// `min.insync.replicas`, at least 1; may exceed the replication factor (RP-5).
    #[must_use]
    pub fn min_insync_replicas(&self) -> u32 {
        self.hot.min_insync_replicas
    }

    /// `flush.messages`; `i64::MAX` means never.
    #[must_use]
    pub fn flush_messages(&self) -> i64 {
        self.hot.flush_messages
    }

    /// `flush.ms`; `i64::MAX` means never.
    #[must_use]
    pub fn flush_ms(&self) -> i64 {
        self.hot.flush_ms
    }

    /// `retention.ms`; `None` means unlimited.
    #[must_use]
    pub fn retention_ms(&self) -> Option<i64> {
        self.hot.retention_ms
    }

    /// `retention.bytes`; `None` means unlimited.
    #[must_use]
    pub fn retention_bytes(&self) -> Option<i64> {
        self.hot.retention_bytes
    }

    /// `min.cleanable.dirty.ratio`, 0 to 1.
    #[must_use]
    pub fn min_cleanable_dirty_ratio(&self) -> f64 {
        self.hot.min_cleanable_dirty_ratio
    }

    /// `min.compaction.lag.ms`.
    #[must_use]
    pub fn min_compaction_lag_ms(&self) -> i64 {
        self.hot.min_compaction_lag_ms
    }

    /// `max.compaction.lag.ms`; `i64::MAX` means no bound.
    #[must_use]
    pub fn max_compaction_lag_ms(&self) -> i64 {
        self.hot.max_compaction_lag_ms
    }

    /// `delete.retention.ms`.
    #[must_use]
    pub fn delete_retention_ms(&self) -> i64 {
        self.hot.delete_retention_ms
    }

    /// `cleanup.policy`.
    #[must_use]
    pub fn cleanup_policy(&self) -> CleanupPolicy {
        self.hot.cleanup_policy
    }

    /// `file.delete.delay.ms`.
    #[must_use]
    pub fn file_delete_delay_ms(&self) -> u64 {
        self.hot.file_delete_delay_ms
    }

    /// `compression.type`, with the level of its codec.
    #[must_use]
    pub fn compression(&self) -> Compression {
        self.hot.compression
    }
}

impl Hot {
    fn of(values: &BTreeMap<&'static str, (Value, ConfigSource)>) -> Hot {
        let segment = match values.get("internal.segment.bytes") {
            Some(_) => "internal.segment.bytes",
            None => "segment.bytes",
        };
        let log_append = text(values, "message.timestamp.type") == "LogAppendTime";
        let policy = |word: &str| match values.get("cleanup.policy") {
            Some((Value::List(items), _)) => items.iter().any(|item| item == word),
            _other => false,
        };
        Hot {
            segment_bytes: unsigned(values, segment),
            segment_ms: long(values, "segment.ms"),
            segment_jitter_ms: long(values, "segment.jitter.ms"),
            segment_index_bytes: unsigned(values, "segment.index.bytes"),
            index_interval_bytes: unsigned(values, "index.interval.bytes"),
            max_message_bytes: unsigned(values, "max.message.bytes"),
            timestamp_type: if log_append {
                TimestampType::LogAppendTime
            } else {
                TimestampType::CreateTime
            },
            timestamp_before_max_ms: long(values, "message.timestamp.before.max.ms"),
            timestamp_after_max_ms: long(values, "message.timestamp.after.max.ms"),
            min_insync_replicas: unsigned(values, "min.insync.replicas"),
            flush_messages: long(values, "flush.messages"),
            flush_ms: long(values, "flush.ms"),
            retention_ms: Some(long(values, "retention.ms")).filter(|ms| *ms >= 0),
            retention_bytes: Some(long(values, "retention.bytes")).filter(|bytes| *bytes >= 0),
            cleanup_policy: CleanupPolicy {
                compact: policy("compact"),
                delete: policy("delete"),
            },
            min_cleanable_dirty_ratio: double(values, "min.cleanable.dirty.ratio"),
            min_compaction_lag_ms: long(values, "min.compaction.lag.ms"),
            max_compaction_lag_ms: long(values, "max.compaction.lag.ms"),
            delete_retention_ms: long(values, "delete.retention.ms"),
            file_delete_delay_ms: long(values, "file.delete.delay.ms").unsigned_abs(),
            compression: compression(values),
        }
    }
}

fn compression(values: &Values) -> Compression {
    let level = |key| i32::try_from(long(values, key)).ok();
    match text(values, "compression.type") {
        "uncompressed" => Compression::Uncompressed,
        "gzip" => Compression::Gzip(level("compression.gzip.level").filter(|level| *level > 0)),
        "snappy" => Compression::Snappy,
        "lz4" => Compression::Lz4,
        "zstd" => Compression::Zstd(level("compression.zstd.level")),
        _producer => Compression::AsSent,
    }
}

/// A setting of one topic or group, given or stored.
pub(crate) fn parse_override(
    scope: Scope,
    key: &str,
    text: Option<&str>,
) -> Result<(&'static str, Value), ConfigError> {
    let Some(property) = property::find(scope, key) else {
        return Err(ConfigError::UnknownKey {
            scope,
            key: key.to_string(),
            nearest: property::nearest(scope, key),
        });
    };
    let text = text.ok_or_else(|| ConfigError::NullValue {
        scope,
        key: key.to_string(),
    })?;
    Ok((property.name, parse(property, text)?))
}

/// The topic's or group's own value, else the strongest synonym in the strongest layer of the broker's
/// settings, else the registry's default.
pub(crate) fn layered_value(
    broker: &BrokerConfig,
    overrides: &BTreeMap<&'static str, Value>,
    property: &Property,
) -> Option<(Value, ConfigSource)> {
    if let Some(value) = overrides.get(property.name) {
        let own = match property.scope {
            Scope::Group => ConfigSource::DynamicGroup,
            Scope::Topic | Scope::Broker => ConfigSource::DynamicTopic,
        };
        return Some((value.clone(), own));
    }
    for (source, layer) in broker.layers() {
        for synonym in property.synonyms {
            if let Some(value) = layer.get(synonym.name) {
                return Some((scaled(value, synonym.scale), source));
            }
        }
    }
    let value = property.kind.parse(property.default?).ok()?;
    Some((value, ConfigSource::Default))
}

fn scaled(value: &Value, scale: Scale) -> Value {
    let factor = match scale {
        Scale::Same => return value.clone(),
        Scale::MinutesToMs => MS_PER_MINUTE,
        Scale::HoursToMs => MS_PER_HOUR,
    };
    match value {
        Value::Int(number) if *number < 0 => Value::Int(-1),
        Value::Int(number) => Value::Int(number.saturating_mul(factor)),
        Value::Bool(_) | Value::Double(_) | Value::Text(_) | Value::List(_) => value.clone(),
    }
}

type Values = BTreeMap<&'static str, (Value, ConfigSource)>;

fn long(values: &Values, key: &str) -> i64 {
    match values.get(key) {
        Some((Value::Int(number), _)) => *number,
        other => unreachable_kind(key, other),
    }
}

fn double(values: &Values, key: &str) -> f64 {
    match values.get(key) {
        Some((Value::Double(number), _)) => *number,
        other => unreachable_kind(key, other),
    }
}

fn unsigned(values: &Values, key: &str) -> u32 {
    u32::try_from(long(values, key)).expect("the registry bounds this property to 0..2^31")
}

fn flag(values: &Values, key: &str) -> bool {
    matches!(values.get(key), Some((Value::Bool(true), _)))
}

fn text<'a>(values: &'a Values, key: &str) -> &'a str {
    match values.get(key) {
        Some((Value::Text(text), _)) => text,
        other => unreachable_kind(key, other),
    }
}

/// A getter asked for a property as another kind than the registry says: a mistake in this file,
/// found by any test that resolves a configuration.
fn unreachable_kind(key: &str, found: Option<&(Value, ConfigSource)>) -> ! {
    panic!("the getter of {key} does not fit its kind: found {found:?}")
}

#[cfg(test)]
#[path = "topic_tests.rs"]
mod tests;
