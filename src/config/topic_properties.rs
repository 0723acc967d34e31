//! The table of topic properties.

use crate::property::{Property, Scale, Synonym};
use crate::value::{Bounds, Items, Kind};

/// Values of `compression.type`.
const COMPRESSION_TYPES: &[&str] = &["uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"];

macro_rules! from {
    ($($name:literal $(* $scale:ident)?),*) => {
        &[$(Synonym { name: $name, scale: from!(@ $($scale)?) }),*]
    };
    (@) => { Scale::Same };
    (@ $scale:ident) => { Scale::$scale };
}

/// Sorted by name; see [`crate::property::properties`].
pub(crate) const TOPIC_PROPERTIES: &[Property] = &[
    Property::topic(
        "cleanup.policy",
        Kind::List(Items::OneOf(&["compact", "delete"])),
        "delete",
        from!["log.cleanup.policy"],
        "What happens to old data: `delete` drops whole segments by age and size, `compact` keeps \
         the last value of each key. Empty keeps everything.",
    )
    .active(),
    Property::topic(
        "compression.gzip.level",
        Kind::IntOrMinusOne(Bounds::between(1, 9)),
        "-1",
        from!["compression.gzip.level"],
        "Level for batches that the broker compresses with gzip; -1 takes the codec's default.",
    )
    .active(),
    Property::topic(
        "compression.lz4.level",
        Kind::Int(Bounds::between(1, 17)),
        "9",
        from!["compression.lz4.level"],
        "Level for batches that the broker compresses with lz4. Here lz4 has one level.",
    )
    .no_meaning(),
    Property::topic(
        "compression.type",
        Kind::OneOf(COMPRESSION_TYPES),
        "producer",
        from!["compression.type"],
        "Codec in which batches are stored. `producer` stores each batch as it was sent.",
    )
    .active(),
    Property::topic(
        "compression.zstd.level",
        Kind::Int(Bounds::between(-131_072, 22)),
        "3",
        from!["compression.zstd.level"],
        "Level for batches that the broker compresses with zstd.",
    )
    .active(),
    Property::topic(
        "delete.retention.ms",
        Kind::Long(Bounds::at_least(0)),
        "86400000",
        from!["log.cleaner.delete.retention.ms"],
        "How long compaction keeps a tombstone, so that a reader who started earlier sees it.",
    )
    .active(),
    Property::topic(
        "file.delete.delay.ms",
        Kind::Long(Bounds::at_least(0)),
        "60000",
        from!["log.segment.delete.delay.ms"],
        "How long a deleted segment's files stay before they are unlinked.",
    )
    .active(),
    Property::topic(
        "flush.messages",
        Kind::Long(Bounds::at_least(1)),
        "9223372036854775807",
        from!["log.flush.interval.messages"],
        "Records after which the log is flushed to the device. 1 makes every acknowledgement wait \
         for the flush, and consumers see only what is on the disk; any other value only schedules \
         flushes.",
    )
    .active(),
    Property::topic(
        "flush.ms",
        Kind::Long(Bounds::at_least(0)),
        "9223372036854775807",
        from!["log.flush.interval.ms", "log.flush.scheduler.interval.ms"],
        "Age of unflushed data after which the log is flushed to the device.",
    )
    .active(),
    Property::topic(
        "follower.replication.throttled.replicas",
        Kind::List(Items::ReplicaPairs),
        "",
        from![],
        "Replicas whose fetching from the leader is throttled.",
    ),
    Property::topic(
        "index.interval.bytes",
        Kind::Int(Bounds::at_least(0)),
        "4096",
        from!["log.index.interval.bytes"],
        "Log bytes between two entries of the offset index.",
    )
    .active(),
    Property::topic(
        "internal.segment.bytes",
        Kind::Int(Bounds::at_least(1)),
        "",
        from![],
        "Replaces `segment.bytes` without its lower bound, so that tests can roll small segments.",
    )
    .active()
    .internal(),
    Property::topic(
        "leader.replication.throttled.replicas",
        Kind::List(Items::ReplicaPairs),
        "",
        from![],
        "Replicas whose fetches the leader throttles.",
    ),
    Property::topic(
        "local.retention.bytes",
        Kind::Long(Bounds::at_least(-2)),
        "-2",
        from!["log.local.retention.bytes"],
        "Bytes kept on local disks once a segment is in remote storage. Remote storage does not \
         exist here.",
    )
    .no_meaning(),
    Property::topic(
        "local.retention.ms",
        Kind::Long(Bounds::at_least(-2)),
        "-2",
        from!["log.local.retention.ms"],
        "Time kept on local disks once a segment is in remote storage. Remote storage does not \
         exist here.",
    )
    .no_meaning(),
    Property::topic(
        "max.compaction.lag.ms",
        Kind::Long(Bounds::at_least(1)),
        "9223372036854775807",
        from!["log.cleaner.max.compaction.lag.ms"],
        "Age at which a record must have become eligible for compaction.",
    )
    .active(),
    Property::topic(
        "max.message.bytes",
        Kind::Int(Bounds::at_least(0)),
        "1048588",
        from!["message.max.bytes"],
        "Largest record batch that a producer may send, after compression. A larger one is \
         answered with MESSAGE_TOO_LARGE.",
    )
    .active(),
    Property::topic(
        "message.timestamp.after.max.ms",
        Kind::Long(Bounds::at_least(0)),
        "3600000",
        from!["log.message.timestamp.after.max.ms"],
        "How far a record's timestamp may lie ahead of the broker's clock (CreateTime only). \
         Beyond it the batch is answered with INVALID_TIMESTAMP.",
    )
    .active(),
    Property::topic(
        "message.timestamp.before.max.ms",
        Kind::Long(Bounds::at_least(0)),
        "9223372036854775807",
        from!["log.message.timestamp.before.max.ms"],
        "How far a record's timestamp may lie behind the broker's clock (CreateTime only). \
         Beyond it the batch is answered with INVALID_TIMESTAMP.",
    )
    .active(),
    Property::topic(
        "message.timestamp.type",
        Kind::OneOf(&["CreateTime", "LogAppendTime"]),
        "CreateTime",
        from!["log.message.timestamp.type"],
        "Whose timestamp a record keeps: the producer's, or the broker's at the append.",
    )
    .active(),
    Property::topic(
        "min.cleanable.dirty.ratio",
        Kind::Double(0.0, 1.0),
        "0.5",
        from!["log.cleaner.min.cleanable.ratio"],
        "Share of a log that must be uncompacted before compaction begins.",
    )
    .active(),
    Property::topic(
        "min.compaction.lag.ms",
        Kind::Long(Bounds::at_least(0)),
        "0",
        from!["log.cleaner.min.compaction.lag.ms"],
        "Age below which compaction leaves a record alone.",
    )
    .active(),
    Property::topic(
        "min.insync.replicas",
        Kind::Int(Bounds::at_least(1)),
        "1",
        from!["min.insync.replicas"],
        "In-sync replicas that a write with acks=all needs; more than the topic has replicas \
         counts as all of them.",
    )
    .active(),
    Property::topic(
        "preallocate",
        Kind::Bool,
        "false",
        from!["log.preallocate"],
        "Reserve a segment's whole size on disk when it is created.",
    ),
    Property::topic(
        "remote.log.copy.disable",
        Kind::Bool,
        "false",
        from![],
        "Stops copying to remote storage. Remote storage does not exist here.",
    )
    .no_meaning(),
    Property::topic(
        "remote.log.delete.on.disable",
        Kind::Bool,
        "false",
        from![],
        "Deletes the remote data when remote storage is turned off. Remote storage does not exist \
         here.",
    )
    .no_meaning(),
    Property::topic(
        "remote.storage.enable",
        Kind::Bool,
        "false",
        from![],
        "Keeps old segments in remote storage. Remote storage does not exist here: `true` is \
         refused.",
    )
    .no_meaning(),
    Property::topic(
        "retention.bytes",
        Kind::Long(Bounds::any()),
        "-1",
        from!["log.retention.bytes"],
        "Size of a partition above which its oldest segments are deleted; -1 means unlimited.",
    )
    .active(),
    Property::topic(
        "retention.ms",
        Kind::Long(Bounds::at_least(-1)),
        "604800000",
        from![
            "log.retention.ms",
            "log.retention.minutes" * MinutesToMs,
            "log.retention.hours" * HoursToMs
        ],
        "Age at which a segment is deleted, by its largest timestamp; -1 means unlimited.",
    )
    .active(),
    Property::topic(
        "segment.bytes",
        Kind::Int(Bounds::at_least(1_048_576)),
        "1073741824",
        from!["log.segment.bytes"],
        "Size at which a new segment is begun.",
    )
    .active(),
    Property::topic(
        "segment.index.bytes",
        Kind::Int(Bounds::at_least(4)),
        "10485760",
        from!["log.index.size.max.bytes"],
        "Largest size of an offset index; a full index begins a new segment.",
    )
    .active(),
    Property::topic(
        "segment.jitter.ms",
        Kind::Long(Bounds::at_least(0)),
        "0",
        from!["log.roll.jitter.ms", "log.roll.jitter.hours" * HoursToMs],
        "Largest random time taken off `segment.ms`, so that partitions do not roll all at once.",
    )
    .active(),
    Property::topic(
        "segment.ms",
        Kind::Long(Bounds::at_least(1)),
        "604800000",
        from!["log.roll.ms", "log.roll.hours" * HoursToMs],
        "Age of a segment, from its first batch's timestamp, at which a new one is begun.",
    )
    .active(),
    Property::topic(
        "unclean.leader.election.enable",
        Kind::Bool,
        "false",
        from!["unclean.leader.election.enable"],
        "Whether a replica that is not in sync may become leader when no other is left.",
    ),
];
