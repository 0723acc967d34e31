//! What the operator may set.

use std::ops::RangeInclusive;

use thalweg_types::limits::{
    COORDINATOR_BYTES_MAX, COORDINATOR_GROUPS_MAX, GROUP_BYTES_MAX, GROUP_PENDING_MEMBERS_MAX,
    SHARD_GROUPS_BYTES_MAX,
};

use crate::consumer::Assignor;

/// Bounds and delays of one coordinator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// `group.initial.rebalance.delay.ms`.
    pub initial_rebalance_delay_ms: u64,
    /// `group.min.session.timeout.ms` to `group.max.session.timeout.ms`.
    pub session_timeout_ms: RangeInclusive<i32>,
    /// `group.max.size`, in members.
    pub group_size_max: usize,
    /// `offset.metadata.max.bytes`.
    pub offset_metadata_max: usize,
    /// `offsets.retention.minutes`, in milliseconds.
    pub offsets_retention_ms: i64,
    /// `offsets.retention.check.interval.ms`.
    pub offsets_check_interval_ms: u64,
    /// Member ids handed out and not used yet, per group.
    pub pending_members_max: usize,
    /// Groups of this coordinator.
    pub groups_max: usize,
    /// Bytes of the members of one group.
    pub group_bytes_max: usize,
    /// Bytes of all groups and offsets of this coordinator.
    pub bytes_max: usize,
    /// Bytes of all groups and offsets of all coordinators of this core.
    pub core_bytes_max: usize,
    /// Of groups of the newer protocol.
    pub consumer: ConsumerSettings,
}

/// What holds for groups of the newer protocol (KIP-848).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsumerSettings {
    /// `group.consumer.session.timeout.ms`.
    pub session_ms: i32,
    /// `group.consumer.heartbeat.interval.ms`.
    pub heartbeat_ms: i32,
    /// `group.consumer.assignment.interval.ms`.
    pub assignment_ms: i32,
    /// `group.consumer.max.size`, in members.
    pub size_max: usize,
    /// `group.consumer.assignors`, the preferred one first.
    pub assignors: Vec<Assignor>,
    /// `group.consumer.migration.policy`.
    pub migration: Migration,
}

/// Which way a group with members may change its protocol (KIP-848).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Migration {
    /// Neither.
    Disabled,
    /// To the newer one, when a member of it comes.
    Upgrade,
    /// To the classic one, when the last member of the newer one goes.
    Downgrade,
    /// Both.
    Bidirectional,
}

impl Migration {
    /// By Kafka's name; `None` for another.
    #[must_use]
    pub fn named(name: &str) -> Option<Migration> {
        match name {
            "disabled" => Some(Migration::Disabled),
            "upgrade" => Some(Migration::Upgrade),
            "downgrade" => Some(Migration::Downgrade),
            "bidirectional" => Some(Migration::Bidirectional),
            _unknown => None,
        }
    }

    pub(crate) fn upgrades(self) -> bool {
        match self {
            Migration::Upgrade | Migration::Bidirectional => true,
            Migration::Disabled | Migration::Downgrade => false,
        }
    }

    pub(crate) fn downgrades(self) -> bool {
        match self {
            Migration::Downgrade | Migration::Bidirectional => true,
            Migration::Disabled | Migration::Upgrade => false,
        }
    }
}

impl Default for ConsumerSettings {
    /// Kafka's defaults.
    fn default() -> ConsumerSettings {
        ConsumerSettings {
            session_ms: 45_000,
            heartbeat_ms: 5_000,
            assignment_ms: 1_000,
            size_max: i32::MAX as usize,
            assignors: Assignor::ALL.to_vec(),
            migration: Migration::Bidirectional,
        }
    }
}

impl Default for Settings {
    /// Kafka's defaults, and our bounds.
    fn default() -> Settings {
        Settings {
            initial_rebalance_delay_ms: 3_000,
            session_timeout_ms: 6_000..=1_800_000,
            group_size_max: i32::MAX as usize,
            offset_metadata_max: 4_096,
            offsets_retention_ms: 7 * 24 * 60 * 60 * 1_000,
            offsets_check_interval_ms: 10 * 60 * 1_000,
            pending_members_max: GROUP_PENDING_MEMBERS_MAX,
            groups_max: COORDINATOR_GROUPS_MAX,
            group_bytes_max: GROUP_BYTES_MAX,
            bytes_max: COORDINATOR_BYTES_MAX,
            core_bytes_max: SHARD_GROUPS_BYTES_MAX,
            consumer: ConsumerSettings::default(),
        }
    }
}
