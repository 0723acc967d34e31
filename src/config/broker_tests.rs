//! What `broker.rs` promises.

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
    assert_eq!(c.max_connections_per_ip(), i32::MAX as u32);
    assert_eq!(c.max_connections_per_ip_overrides().count(), 0);
    assert_eq!(c.max_connection_creation_rate(), i32::MAX as u32);
    assert_eq!(c.queued_max_request_bytes(), None);
    assert_eq!(c.fetch_max_bytes(), 57_671_680);
    assert_eq!(c.request_progress_timeout_ms(), 30_000);
    assert_eq!(c.response_write_timeout_ms(), 60_000);
    assert_eq!((c.engine(), c.ring_entries()), (Engine::Auto, 256));
    assert_eq!(c.headroom_bytes(), None);
    assert_eq!((c.broker_rack(), c.cluster_id()), (None, None));
    assert_eq!(c.log_dirs(), ["data"]);
    assert_eq!(c.metadata_log_dir(), None);
    let listener = c.client_listeners()[0].to_string();
    assert_eq!(listener, "PLAINTEXT://127.0.0.1:9092");
    assert_eq!(c.advertised_listener("PLAINTEXT"), None);
}

#[test]
fn an_interval_of_nothing_checks_nothing_by_itself() {
    let of = |text: &str| {
        let loaded = load(&[&format!("thalweg.log.scrub.interval.ms={text}")]);
        loaded.map(|loaded| loaded.config.log_scrub_interval_ms())
    };
    assert_eq!(of("1"), Ok(Some(1)));
    assert_eq!((of("0"), of("-1")), (Ok(None), Ok(None)));
    assert!(of("-2").is_err());
}

#[test]
fn every_getter_of_groups_fits_its_property() {
    let c = BrokerConfig::default();
    assert_eq!(c.group_initial_rebalance_delay_ms(), 3_000);
    assert_eq!(c.group_session_timeout_ms(), 6_000..=1_800_000);
    assert_eq!(c.group_max_size(), i32::MAX as usize);
    assert_eq!(c.group_consumer_session_timeout_ms(), 45_000);
    assert_eq!(c.group_consumer_heartbeat_interval_ms(), 5_000);
    assert_eq!(c.group_consumer_assignment_interval_ms(), 1_000);
    assert_eq!(c.group_consumer_max_size(), i32::MAX as usize);
    assert_eq!(c.group_consumer_assignors(), ["uniform", "range"]);
    assert_eq!(c.offset_metadata_max_bytes(), 4_096);
    assert_eq!(c.offsets_retention_ms(), 7 * 24 * 3_600_000);
    assert_eq!(c.offsets_retention_check_interval_ms(), 600_000);
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
            "--set: 'node.id' is not a setting: write key=value",
            "--set: Unknown broker config name: num.partition (did you mean num.partitions?)",
            "--set: Invalid value 0 for configuration num.partitions: it must be a whole number of \
             at least 1 (int)",
            "--set: Unknown broker config name: retention.ms (did you mean log.retention.ms?)",
        ]
    );
}

#[test]
fn settings_without_effect_are_warned_of() {
    let loaded = load(&["num.io.threads=4", "log.preallocate=true"]).expect("valid");
    let keys: Vec<_> = loaded
        .warnings
        .iter()
        .map(|w| match &w.what {
            ConfigWarning::NotYet { key } | ConfigWarning::NoMeaning { key, .. } => *key,
            other => panic!("{other}"),
        })
        .collect();
    assert_eq!(keys, ["num.io.threads", "log.preallocate"]);
}

#[test]
fn settings_of_a_running_broker_lie_over_those_of_its_start() {
    let config = load(&["log.segment.bytes=2097152", "num.partitions=2"])
        .expect("valid")
        .config;
    let (config, warnings) = config.with_dynamic(
        [
            ("log.segment.bytes", "3145728"),
            ("min.insync.replicas", "2"),
        ],
        [("log.segment.bytes", "4194304"), ("node.id", "9")],
    );
    assert_eq!(
        config.value("log.segment.bytes"),
        Some(&Value::Int(4_194_304))
    );
    assert_eq!(config.value("min.insync.replicas"), Some(&Value::Int(2)));
    assert_eq!((config.num_partitions(), config.node_id().0), (2, 1));
    assert_eq!(warnings.len(), 1, "node.id does not change: {warnings:?}");
    // What is taken away again falls back.
    let (config, _) = config.with_dynamic([], []);
    assert_eq!(
        config.value("log.segment.bytes"),
        Some(&Value::Int(2_097_152))
    );
}

#[test]
fn bi_52_only_harmless_properties_change_while_the_broker_runs() {
    let config = load(&[]).expect("valid").config;
    let refused = |key, value| config.check_dynamic([(key, value)]).is_err();
    assert!(!refused("message.max.bytes", "2000"));
    assert!(refused("message.max.bytes", "many"));
    for key in [
        "node.id",
        "log.dirs",
        "listeners",
        "no.such.key",
        "metric.reporters",
    ] {
        assert!(refused(key, "1"), "{key}");
    }
    assert!(!refused("log.cleaner.backoff.ms", "15001"));
    // What Kafka's documents change live, and what its tools do.
    for key in [
        "log.cleaner.threads",
        "log.cleaner.io.max.bytes.per.second",
        "log.cleaner.dedupe.buffer.size",
        "num.io.threads",
        "producer.id.expiration.ms",
        "leader.replication.throttled.rate",
        "follower.replication.throttled.rate",
    ] {
        assert!(!refused(key, "4") && refused(key, "-4"), "{key}");
    }
    // librdkafka's tests change it live, as Kafka lets them.
    let relogin = "sasl.kerberos.min.time.before.relogin";
    assert!(!refused(relogin, "58000") && refused(relogin, "soon"));
    let crossed = [
        ("log.cleaner.min.compaction.lag.ms", "9"),
        ("log.cleaner.max.compaction.lag.ms", "8"),
    ];
    assert!(config.check_dynamic(crossed).is_err());
}

#[test]
fn compaction_lags_must_not_cross() {
    let crossed = load(&[
        "log.cleaner.min.compaction.lag.ms=9",
        "log.cleaner.max.compaction.lag.ms=8",
    ]);
    assert!(crossed.is_err());
}
