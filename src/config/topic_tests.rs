//! What `topic.rs` promises.

use super::{Compression, ConfigSource, TimestampType, TopicConfig};
use crate::broker::BrokerConfig;
use crate::value::Value;

fn broker(settings: &[&str]) -> BrokerConfig {
    BrokerConfig::from_settings(settings.iter().copied())
        .expect("valid settings")
        .config
}

fn refused(overrides: &[(&str, Option<&str>)]) -> String {
    TopicConfig::validate(&broker(&[]), overrides.iter().copied())
        .expect_err("must be refused")
        .to_string()
}

#[test]
fn defaults_are_kafkas() {
    let (c, warnings) = TopicConfig::resolve(&broker(&[]), []);
    assert!(warnings.is_empty());
    assert_eq!(
        (c.segment_bytes(), c.segment_ms()),
        (1_073_741_824, 604_800_000)
    );
    assert_eq!(
        (c.segment_jitter_ms(), c.segment_index_bytes()),
        (0, 10_485_760)
    );
    assert_eq!(
        (c.index_interval_bytes(), c.max_message_bytes()),
        (4_096, 1_048_588)
    );
    assert_eq!(c.message_timestamp_type(), TimestampType::CreateTime);
    assert_eq!(c.message_timestamp_before_max_ms(), i64::MAX);
    assert_eq!(c.message_timestamp_after_max_ms(), 3_600_000);
    assert_eq!((c.flush_messages(), c.flush_ms()), (i64::MAX, i64::MAX));
    assert_eq!(
        (c.retention_ms(), c.retention_bytes()),
        (Some(604_800_000), None)
    );
    assert_eq!(
        (c.min_insync_replicas(), c.compression()),
        (1, Compression::AsSent)
    );
    assert!(c.cleanup_policy().delete && !c.cleanup_policy().compact);
    // 33 public keys in Kafka 4.3; the hidden one is not listed.
    assert_eq!(c.entries().count(), 33);
    assert!(c.entries().all(|e| e.source == ConfigSource::Default));
}

#[test]
fn topic_over_broker_over_default() {
    let broker = broker(&[
        "log.segment.bytes=2097152",
        "log.roll.hours=2",
        "log.roll.ms=7",
    ]);
    let (c, _) = TopicConfig::resolve(&broker, [("segment.bytes", "3145728")]);
    assert_eq!((c.segment_bytes(), c.segment_ms()), (3_145_728, 7));
    let source = |key: &str| {
        c.entries()
            .find(|e| e.property.name == key)
            .map(|e| e.source)
    };
    assert_eq!(source("segment.bytes"), Some(ConfigSource::DynamicTopic));
    assert_eq!(source("segment.ms"), Some(ConfigSource::StaticBroker));
    assert_eq!(source("retention.ms"), Some(ConfigSource::Default));
}

#[test]
fn longer_units_are_translated() {
    let (c, _) = TopicConfig::resolve(&broker(&["log.retention.minutes=3"]), []);
    assert_eq!(c.retention_ms(), Some(180_000));
    let (c, _) = TopicConfig::resolve(&broker(&["log.retention.hours=-1"]), []);
    assert_eq!(c.retention_ms(), None);
    let (c, _) = TopicConfig::resolve(&broker(&["log.roll.jitter.hours=2147483647"]), []);
    assert_eq!(c.segment_jitter_ms(), 2_147_483_647 * 3_600_000);
}

#[test]
fn refusals_name_key_value_and_what_is_allowed() {
    assert_eq!(
        refused(&[("retention.ms", Some("-5"))]),
        "Invalid value -5 for configuration retention.ms: it must be a whole number of at \
         least -1 (long)"
    );
    assert_eq!(
        refused(&[("cleanup.polcy", Some("compact"))]),
        "Unknown topic config name: cleanup.polcy (did you mean cleanup.policy?)"
    );
    assert_eq!(
        refused(&[("retention.ms", None)]),
        "Null value not supported for topic configs: retention.ms"
    );
    assert!(
        refused(&[
            ("min.compaction.lag.ms", Some("10")),
            ("max.compaction.lag.ms", Some("5"))
        ])
        .contains("conflicting")
    );
    assert!(refused(&[("remote.storage.enable", Some("true"))]).contains("remote storage"));
}

#[test]
fn stored_overrides_never_stop_a_start() {
    let stored = [
        ("from.the.future", "1"),
        ("segment.bytes", "x"),
        ("segment.ms", "5"),
    ];
    let (c, warnings) = TopicConfig::resolve(&broker(&[]), stored);
    assert_eq!(
        (warnings.len(), c.segment_ms(), c.segment_bytes()),
        (2, 5, 1_073_741_824)
    );
}

#[test]
fn the_hidden_segment_size_wins() {
    let overrides = [("internal.segment.bytes", Some("100"))];
    let c = TopicConfig::validate(&broker(&[]), overrides).expect("valid");
    assert_eq!(c.segment_bytes(), 100);
    assert_eq!(c.value("segment.bytes"), Some(&Value::Int(1_073_741_824)));
}
