//! Kafka's property names, typed and validated.
//!
//! Owns the registry of topic and broker properties (name, kind, default, whether it takes effect
//! yet, what it does), the reading of settings, and how a topic's settings follow from its own
//! overrides and the broker's defaults. Refuses to know where files lie, the wire, and what any
//! property does once it is read.
//!
//! Order of calls: [`Settings::load`] once at start; for each topic
//! [`TopicConfig::validate`] before its overrides are stored and [`TopicConfig::resolve`] whenever
//! they are read back. Both are for the control plane: they look names up and parse text. What a
//! shard uses per request are the plain getters of [`TopicConfig`].
//!
//! Invariants (tested): tables are sorted by name, each default is a value its own validator
//! accepts, each synonym exists, and `docs/config.md` is what [`docs::render_markdown`] writes.
//!
//! Start reading at [`property`].

mod broker;
mod broker_properties;
mod cleaner;
mod conflicts;
mod describe;
pub mod docs;
mod error;
mod group;
pub mod kafka_keys;
mod listeners;
mod properties_file;
pub mod property;
mod settings;
mod topic;
mod topic_properties;
pub mod value;

pub use broker::{BrokerConfig, Engine};
pub use describe::{
    Described, DescribedSynonym, describe_all_brokers, describe_broker, describe_group,
    describe_topic,
};
pub use error::{ConfigError, ConfigErrors, ConfigWarning};
pub use group::GroupConfig;
pub use properties_file::{BadEscape, FileEntry, parse_properties};
pub use property::{Property, Scope, Status};
pub use settings::{LoadedBrokerConfig, Place, Placed, Settings};
pub use topic::{
    CleanupPolicy, Compression, ConfigEntry, ConfigSource, TimestampType, TopicConfig,
};
pub use value::Endpoint;
