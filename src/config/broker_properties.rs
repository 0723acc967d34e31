//! The table of broker properties.

use crate::property::Property;
use crate::value::{Bounds, Items, Kind};

const ANY_LONG: Kind = Kind::Long(Bounds::any());
const POSITIVE_INT: Kind = Kind::Int(Bounds::at_least(1));
const POSITIVE_LONG: Kind = Kind::Long(Bounds::at_least(1));
const NATURAL_INT: Kind = Kind::Int(Bounds::at_least(0));
const NATURAL_LONG: Kind = Kind::Long(Bounds::at_least(0));

/// Values of `group.consumer.migration.policy`.
const MIGRATION_POLICIES: &[&str] = &["bidirectional", "disabled", "downgrade", "upgrade"];

/// What `group.consumer.assignors` may name.
const ASSIGNORS: &[&str] = &["range", "uniform"];

/// Sorted by name; see [`crate::property::properties`]. Each topic property with a broker default
/// has it here, with the same range and default.
pub(crate) const BROKER_PROPERTIES: &[Property] = &[
    Property::broker_unset(
        "advertised.listeners",
        Kind::List(Items::Endpoints),
        "Address that clients are told to connect to, when it is not the one listened on. Each name \
         must be one of `listeners`.",
    )
    .active(),
    Property::broker(
        "authorizer.class.name",
        Kind::Text,
        "",
        "Kafka's class that decides who may do what. Access control does not exist in this \
         version: a name is refused.",
    ),
    Property::broker(
        "auto.create.topics.enable",
        Kind::Bool,
        "true",
        "Create an unknown topic when a client asks for it and allows its creation.",
    )
    .active(),
    Property::broker(
        "background.threads",
        POSITIVE_INT,
        "10",
        "Kafka's thread pool for background work. Here background work has its own few threads.",
    )
    .no_meaning()
    .live(),
    Property::broker_unset(
        "broker.id",
        NATURAL_INT,
        "Older name of `node.id`.",
    )
    .active(),
    Property::broker_unset(
        "broker.rack",
        Kind::Text,
        "Rack that this broker stands in; told to clients.",
    )
    .active(),
    Property::broker(
        "compression.gzip.level",
        Kind::IntOrMinusOne(Bounds::between(1, 9)),
        "-1",
        "Default of the topic property `compression.gzip.level`.",
    )
    .active(),
    Property::broker(
        "compression.lz4.level",
        Kind::Int(Bounds::between(1, 17)),
        "9",
        "Default of the topic property `compression.lz4.level`.",
    )
    .no_meaning(),
    Property::broker(
        "compression.type",
        Kind::OneOf(&["uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"]),
        "producer",
        "Default of the topic property `compression.type`.",
    )
    .active(),
    Property::broker(
        "compression.zstd.level",
        Kind::Int(Bounds::between(-131_072, 22)),
        "3",
        "Default of the topic property `compression.zstd.level`.",
    )
    .active(),
    Property::broker(
        "connections.max.idle.ms",
        ANY_LONG,
        "600000",
        "A connection without a request for that long is closed; below 0 none is.",
    )
    .active(),
    Property::broker_unset(
        "controller.listener.names",
        Kind::List(Items::Any),
        "Names of listeners for the controller quorum. This broker is its own controller and does \
         not bind them.",
    )
    .active(),
    Property::broker_unset(
        "controller.quorum.bootstrap.servers",
        Kind::List(Items::Any),
        "Where controllers are found. This broker is the only one: more than one address is refused.",
    )
    .active(),
    Property::broker_unset(
        "controller.quorum.voters",
        Kind::List(Items::Any),
        "The controllers, each as `id@host:port`. This broker is the only one: others are refused.",
    )
    .active(),
    Property::broker(
        "default.replication.factor",
        Kind::Int(Bounds::between(1, i16::MAX as i64)),
        "1",
        "Replicas per partition of topics created without a number.",
    )
    .active(),
    Property::broker(
        "delete.topic.enable",
        Kind::Bool,
        "true",
        "Whether topics may be deleted; otherwise TOPIC_DELETION_DISABLED.",
    )
    .active(),
    Property::broker(
        "fetch.max.bytes",
        Kind::Int(Bounds::at_least(1_024)),
        "57671680",
        "Most bytes of records that one fetch is answered with, whatever it asks for. A first \
         batch larger than that is still sent whole.",
    )
    .active(),
    Property::broker(
        "follower.replication.throttled.rate",
        NATURAL_LONG,
        "9223372036854775807",
        "Bytes per second that throttled replicas fetch. There are no followers in this version.",
    )
    .live(),
    Property::broker(
        "group.consumer.assignment.interval.ms",
        NATURAL_INT,
        "1000",
        "Least time between two distributions of a group of the newer protocol (KIP-1263): what changes \
         meanwhile is shared out together, with the first heartbeat after it. 0: with each change.",
    )
    .active()
    .live(),
    Property::broker(
        "group.consumer.assignors",
        Kind::List(Items::OneOf(ASSIGNORS)),
        "uniform,range",
        "Ways to share partitions out in groups of the newer protocol (KIP-848), the preferred one \
         first; members may ask for one of them.",
    )
    .active(),
    Property::broker(
        "group.consumer.heartbeat.interval.ms",
        POSITIVE_INT,
        "5000",
        "How often members of the newer protocol are told to send heartbeats.",
    )
    .active(),
    Property::broker(
        "group.consumer.max.assignment.interval.ms",
        NATURAL_INT,
        "15000",
        "Largest `consumer.assignment.interval.ms` that a group may be given, and \
         largest value of `group.consumer.assignment.interval.ms`.",
    )
    .active(),
    Property::broker(
        "group.consumer.max.heartbeat.interval.ms",
        POSITIVE_INT,
        "15000",
        "Largest `consumer.heartbeat.interval.ms` that a group may be given, and \
         largest value of `group.consumer.heartbeat.interval.ms`.",
    )
    .active(),
    Property::broker(
        "group.consumer.max.session.timeout.ms",
        POSITIVE_INT,
        "60000",
        "Largest `consumer.session.timeout.ms` that a group may be given, and \
         largest value of `group.consumer.session.timeout.ms`.",
    )
    .active(),
    Property::broker(
        "group.consumer.max.size",
        POSITIVE_INT,
        "2147483647",
        "Members that one group of the newer protocol may have; further ones are refused with \
         GROUP_MAX_SIZE_REACHED.",
    )
    .active(),
    Property::broker(
        "group.consumer.migration.policy",
        Kind::AnyCaseOf(MIGRATION_POLICIES),
        "bidirectional",
        "Whether a group with members may change its protocol: `upgrade` lets a member of the newer one \
         into a classic group, `downgrade` makes a group classic again when its last member of the \
         newer one goes, `bidirectional` both, `disabled` neither.",
    )
    .active(),
    Property::broker(
        "group.consumer.min.assignment.interval.ms",
        NATURAL_INT,
        "0",
        "Smallest `consumer.assignment.interval.ms` that a group may be given, and \
         smallest value of `group.consumer.assignment.interval.ms`.",
    )
    .active(),
    Property::broker(
        "group.consumer.min.heartbeat.interval.ms",
        POSITIVE_INT,
        "5000",
        "Smallest `consumer.heartbeat.interval.ms` that a group may be given, and \
         smallest value of `group.consumer.heartbeat.interval.ms`.",
    )
    .active(),
    Property::broker(
        "group.consumer.min.session.timeout.ms",
        POSITIVE_INT,
        "45000",
        "Smallest `consumer.session.timeout.ms` that a group may be given, and \
         smallest value of `group.consumer.session.timeout.ms`.",
    )
    .active(),
    Property::broker(
        "group.consumer.session.timeout.ms",
        POSITIVE_INT,
        "45000",
        "How long a member of the newer protocol may be silent before it is out of its group.",
    )
    .active(),
    Property::broker(
        "group.initial.rebalance.delay.ms",
        NATURAL_INT,
        "3000",
        "How long a new group waits for more members before its first rebalance ends.",
    )
    .active(),
    Property::broker(
        "group.max.session.timeout.ms",
        POSITIVE_INT,
        "1800000",
        "Longest session timeout that a member of the classic protocol may ask for.",
    )
    .active(),
    Property::broker(
        "group.max.size",
        POSITIVE_INT,
        "2147483647",
        "Members that one group of the classic protocol may have; further ones are refused with \
         GROUP_MAX_SIZE_REACHED.",
    )
    .active(),
    Property::broker(
        "group.min.session.timeout.ms",
        POSITIVE_INT,
        "6000",
        "Shortest session timeout that a member of the classic protocol may ask for.",
    )
    .active(),
    Property::broker_unset(
        "inter.broker.listener.name",
        Kind::Text,
        "Listener that brokers reach each other by. It must be the one for clients.",
    ),
    Property::broker(
        "leader.replication.throttled.rate",
        NATURAL_LONG,
        "9223372036854775807",
        "Bytes per second that throttled replicas are sent. There are no followers in this version.",
    )
    .live(),
    Property::broker(
        "listener.security.protocol.map",
        Kind::Text,
        "PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL",
        "Security protocol of each listener, by its name. A listener for clients must be PLAINTEXT \
         in this version.",
    )
    .active(),
    Property::broker(
        "listeners",
        Kind::List(Items::Endpoints),
        "PLAINTEXT://127.0.0.1:9092",
        "Addresses to listen on. Each client is told the host, as it stands here, and the port of the \
         listener that it came by; the flag `--listen` replaces the first one for clients. An empty host is every address (and needs \
         `advertised.listeners`). Kafka's default is `PLAINTEXT://:9092`.",
    )
    .active(),
    Property::broker(
        "log.cleaner.backoff.ms",
        NATURAL_LONG,
        "15000",
        "How long compaction waits before it looks again when it found nothing to do.",
    )
    .active()
    .live(),
    Property::broker(
        "log.cleaner.dedupe.buffer.size",
        POSITIVE_LONG,
        "134217728",
        "Most memory for keys of all rounds of compaction together, in bytes: 24 per key. With more \
         keys than that a log is compacted in several rounds.",
    )
    .active()
    .live(),
    Property::broker(
        "log.cleaner.delete.retention.ms",
        NATURAL_LONG,
        "86400000",
        "Default of the topic property `delete.retention.ms`.",
    )
    .active(),
    Property::broker(
        "log.cleaner.enable",
        Kind::Bool,
        "true",
        "Whether compaction runs at all.",
    )
    .active(),
    Property::broker(
        "log.cleaner.io.buffer.load.factor",
        Kind::Double(0.0, 1.0),
        "0.9",
        "How full the memory for keys gets.",
    )
    .active()
    .live(),
    Property::broker(
        "log.cleaner.io.buffer.size",
        POSITIVE_INT,
        "524288",
        "Bytes of buffers for reading and writing, of all cleaners together.",
    )
    .active()
    .live(),
    Property::broker(
        "log.cleaner.io.max.bytes.per.second",
        Kind::Double(1.0, f64::MAX),
        "1.7976931348623157e308",
        "Most bytes that compaction reads and writes per second, all cleaners together.",
    )
    .active()
    .live(),
    Property::broker(
        "log.cleaner.max.compaction.lag.ms",
        POSITIVE_LONG,
        "9223372036854775807",
        "Default of the topic property `max.compaction.lag.ms`.",
    )
    .active(),
    Property::broker(
        "log.cleaner.min.cleanable.ratio",
        Kind::Double(0.0, 1.0),
        "0.5",
        "Default of the topic property `min.cleanable.dirty.ratio`.",
    )
    .active(),
    Property::broker(
        "log.cleaner.min.compaction.lag.ms",
        NATURAL_LONG,
        "0",
        "Default of the topic property `min.compaction.lag.ms`.",
    )
    .active(),
    Property::broker(
        "log.cleaner.threads",
        POSITIVE_INT,
        "1",
        "Cleaners: logs that are compacted at once, at most one per shard. They run at the lowest \
         priority.",
    )
    .active()
    .live(),
    Property::broker(
        "log.cleanup.policy",
        Kind::List(Items::OneOf(&["compact", "delete"])),
        "delete",
        "Default of the topic property `cleanup.policy`.",
    )
    .active(),
    Property::broker(
        "log.dir",
        Kind::List(Items::Any),
        "data",
        "Directory of the data when `log.dirs` is not set. Kafka's default is `/tmp/kafka-logs`.",
    )
    .active(),
    Property::broker_unset(
        "log.dirs",
        Kind::List(Items::Any),
        "Directories of the data, best on a disk each; the flag `--data-dir` wins over them. A new \
         partition goes where there is most free room for each partition. One that is missing, or \
         fails later, takes its partitions offline, and the others go on.",
    )
    .active(),
    Property::broker(
        "log.flush.interval.messages",
        POSITIVE_LONG,
        "9223372036854775807",
        "Default of the topic property `flush.messages`.",
    )
    .active(),
    Property::broker_unset(
        "log.flush.interval.ms",
        NATURAL_LONG,
        "Default of the topic property `flush.ms`.",
    )
    .active(),
    Property::broker(
        "log.flush.offset.checkpoint.interval.ms",
        NATURAL_INT,
        "60000",
        "How often the recovery points and high watermarks are written to their checkpoints.",
    )
    .active(),
    Property::broker(
        "log.flush.scheduler.interval.ms",
        NATURAL_LONG,
        "9223372036854775807",
        "Default of the topic property `flush.ms` when `log.flush.interval.ms` is not set. Also how \
         often logs are looked at for what is due, at least once a second.",
    )
    .active(),
    Property::broker(
        "log.flush.start.offset.checkpoint.interval.ms",
        NATURAL_INT,
        "60000",
        "How often the log start offsets are written to their checkpoint.",
    ),
    Property::broker(
        "log.index.interval.bytes",
        NATURAL_INT,
        "4096",
        "Default of the topic property `index.interval.bytes`.",
    )
    .active(),
    Property::broker(
        "log.index.size.max.bytes",
        Kind::Int(Bounds::at_least(4)),
        "10485760",
        "Default of the topic property `segment.index.bytes`.",
    )
    .active(),
    Property::broker(
        "log.initial.task.delay.ms",
        NATURAL_LONG,
        "30000",
        "How long after the start the first look for segments to delete is taken.",
    )
    .active(),
    Property::broker(
        "log.local.retention.bytes",
        Kind::Long(Bounds::at_least(-2)),
        "-2",
        "Default of the topic property `local.retention.bytes`.",
    )
    .no_meaning(),
    Property::broker(
        "log.local.retention.ms",
        Kind::Long(Bounds::at_least(-2)),
        "-2",
        "Default of the topic property `local.retention.ms`.",
    )
    .no_meaning(),
    Property::broker(
        "log.message.timestamp.after.max.ms",
        NATURAL_LONG,
        "3600000",
        "Default of the topic property `message.timestamp.after.max.ms`.",
    )
    .active(),
    Property::broker(
        "log.message.timestamp.before.max.ms",
        NATURAL_LONG,
        "9223372036854775807",
        "Default of the topic property `message.timestamp.before.max.ms`.",
    )
    .active(),
    Property::broker(
        "log.message.timestamp.type",
        Kind::OneOf(&["CreateTime", "LogAppendTime"]),
        "CreateTime",
        "Default of the topic property `message.timestamp.type`.",
    )
    .active(),
    Property::broker(
        "log.preallocate",
        Kind::Bool,
        "false",
        "Default of the topic property `preallocate`.",
    ),
    Property::broker(
        "log.retention.bytes",
        ANY_LONG,
        "-1",
        "Default of the topic property `retention.bytes`.",
    )
    .active(),
    Property::broker(
        "log.retention.check.interval.ms",
        POSITIVE_LONG,
        "300000",
        "How often logs are looked through for segments to delete.",
    )
    .active(),
    Property::broker(
        "log.retention.hours",
        Kind::IntOrMinusOne(Bounds::at_least(1)),
        "168",
        "Default of the topic property `retention.ms`, in hours, when neither \
         `log.retention.ms` nor `log.retention.minutes` is set.",
    )
    .active(),
    Property::broker_unset(
        "log.retention.minutes",
        Kind::IntOrMinusOne(Bounds::at_least(1)),
        "Default of the topic property `retention.ms`, in minutes, when `log.retention.ms` is \
         not set.",
    )
    .active(),
    Property::broker_unset(
        "log.retention.ms",
        Kind::LongOrMinusOne(Bounds::at_least(1)),
        "Default of the topic property `retention.ms`.",
    )
    .active(),
    Property::broker(
        "log.roll.hours",
        POSITIVE_INT,
        "168",
        "Default of the topic property `segment.ms`, in hours, when `log.roll.ms` is not set.",
    )
    .active(),
    Property::broker(
        "log.roll.jitter.hours",
        NATURAL_INT,
        "0",
        "Default of the topic property `segment.jitter.ms`, in hours, when \
         `log.roll.jitter.ms` is not set.",
    )
    .active(),
    Property::broker_unset(
        "log.roll.jitter.ms",
        NATURAL_LONG,
        "Default of the topic property `segment.jitter.ms`.",
    )
    .active(),
    Property::broker_unset(
        "log.roll.ms",
        POSITIVE_LONG,
        "Default of the topic property `segment.ms`.",
    )
    .active(),
    Property::broker(
        "log.segment.bytes",
        Kind::Int(Bounds::at_least(1_048_576)),
        "1073741824",
        "Default of the topic property `segment.bytes`.",
    )
    .active(),
    Property::broker(
        "log.segment.delete.delay.ms",
        NATURAL_LONG,
        "60000",
        "Default of the topic property `file.delete.delay.ms`.",
    )
    .active(),
    Property::broker(
        "max.connection.creation.rate",
        POSITIVE_INT,
        "2147483647",
        "Most new connections per second; further ones wait to be accepted.",
    )
    .active()
    .live(),
    Property::broker(
        "max.connections",
        NATURAL_INT,
        "2147483647",
        "Most connections at once; further ones wait to be accepted until one ends.",
    )
    .active()
    .live(),
    Property::broker(
        "max.connections.per.ip",
        NATURAL_INT,
        "2147483647",
        "Most connections at once from one address; further ones are closed.",
    )
    .active()
    .live(),
    Property::broker(
        "max.connections.per.ip.overrides",
        Kind::List(Items::HostLimits),
        "",
        "The same for certain addresses or names of hosts, for example `127.0.0.1:200,build:50`. \
         Names are looked up when the property is set.",
    )
    .active()
    .live(),
    Property::broker(
        "message.max.bytes",
        NATURAL_INT,
        "1048588",
        "Default of the topic property `max.message.bytes`.",
    )
    .active(),
    Property::broker_unset(
        "metadata.log.dir",
        Kind::Text,
        "Directory of the metadata log: one of `log.dirs` (the first of them when this is not set), or \
         one of its own, which then holds nothing else. Without it there is no broker.",
    )
    .active(),
    Property::broker(
        "min.insync.replicas",
        POSITIVE_INT,
        "1",
        "Default of the topic property `min.insync.replicas`.",
    )
    .active(),
    Property::broker(
        "node.id",
        NATURAL_INT,
        "1",
        "This broker's id in its cluster.",
    )
    .active(),
    Property::broker(
        "num.io.threads",
        POSITIVE_INT,
        "8",
        "Kafka's request threads. Here each core has one thread (`--shards`, `--cores`).",
    )
    .no_meaning()
    .live(),
    Property::broker(
        "num.network.threads",
        POSITIVE_INT,
        "3",
        "Kafka's socket threads. Here each core has one thread (`--shards`, `--cores`).",
    )
    .no_meaning()
    .live(),
    Property::broker(
        "num.partitions",
        POSITIVE_INT,
        "1",
        "Partitions of topics created without a number.",
    )
    .active(),
    Property::broker(
        "num.recovery.threads.per.data.dir",
        POSITIVE_INT,
        "2",
        "Kafka's threads for recovery at start. Here each core recovers its own partitions.",
    )
    .no_meaning()
    .live(),
    Property::broker_unset(
        "num.replica.alter.log.dirs.threads",
        POSITIVE_INT,
        "Kafka's threads for moves between directories. Here each core moves one partition at a time.",
    )
    .no_meaning(),
    Property::broker(
        "num.replica.fetchers",
        POSITIVE_INT,
        "1",
        "Kafka's replication threads. Here each core fetches for its own partitions.",
    )
    .no_meaning()
    .live(),
    Property::broker(
        "offset.metadata.max.bytes",
        NATURAL_INT,
        "4096",
        "Longest text that a client may store with a committed offset, in units of UTF-16.",
    )
    .active(),
    Property::broker(
        "offsets.retention.check.interval.ms",
        POSITIVE_LONG,
        "600000",
        "How often groups are searched for offsets whose time is over.",
    )
    .active(),
    Property::broker(
        "offsets.retention.minutes",
        POSITIVE_INT,
        "10080",
        "How long offsets are kept after the last member left their group, or after their commit \
         where nobody joins or their topic is not read any more (KIP-211).",
    )
    .active(),
    Property::broker(
        "offsets.topic.num.partitions",
        Kind::Int(Bounds::between(1, 10_000)),
        "50",
        "Partitions of `__consumer_offsets` when the broker creates it. It never changes \
         afterwards.",
    )
    .active(),
    Property::broker(
        "offsets.topic.replication.factor",
        Kind::Int(Bounds::between(1, i16::MAX as i64)),
        "3",
        "Replicas of `__consumer_offsets` when the broker creates it; with fewer brokers, one \
         on each.",
    )
    .active(),
    Property::broker(
        "offsets.topic.segment.bytes",
        // The bound of `segment.bytes`: with less, the topic could not be made when it is needed.
        Kind::Int(Bounds::at_least(1_048_576)),
        "104857600",
        "Segment size of `__consumer_offsets` when the broker creates it.",
    )
    .active(),
    Property::broker_unset(
        "process.roles",
        Kind::List(Items::OneOf(&["broker", "controller"])),
        "What this process is. It always is both, and one alone is refused.",
    )
    .active(),
    Property::broker(
        "producer.id.expiration.check.interval.ms",
        POSITIVE_INT,
        "600000",
        "How often partitions look for idempotent producers to forget.",
    )
    .active(),
    Property::broker(
        "producer.id.expiration.ms",
        POSITIVE_INT,
        "86400000",
        "An idempotent producer that has not written to a partition for that long is forgotten there; \
         it may then go on at any sequence.",
    )
    .active()
    .live(),
    Property::broker(
        "queued.max.request.bytes",
        Kind::LongOrMinusOne(Bounds::at_least(1)),
        "-1",
        "Bytes of requests that may be in memory at once over all cores; when they are used up, \
         connections are not read. -1: 192 MiB for each core.",
    )
    .active(),
    Property::broker(
        "queued.max.requests",
        POSITIVE_INT,
        "500",
        "Kafka's queue before its request threads. Here each connection has its own bound.",
    )
    .no_meaning(),
    Property::broker(
        "replica.alter.log.dirs.io.max.bytes.per.second",
        NATURAL_LONG,
        "9223372036854775807",
        "Bytes per second that each core copies at most while it moves partitions to other log directories.",
    )
    .active()
    .live(),
    Property::broker(
        "replica.lag.time.max.ms",
        ANY_LONG,
        "30000",
        "A follower that has not caught up for that long leaves the in-sync replicas.",
    ),
    Property::broker(
        "sasl.kerberos.min.time.before.relogin",
        ANY_LONG,
        "60000",
        "Milliseconds between two logins by Kerberos. Authentication does not exist in this version.",
    )
    .live(),
    Property::broker(
        "sasl.kerberos.ticket.renew.jitter",
        Kind::Double(0.0, 1.0),
        "0.05",
        "Random part of the time to the renewal of a Kerberos ticket. Authentication does not exist in this version.",
    )
    .live(),
    Property::broker(
        "sasl.kerberos.ticket.renew.window.factor",
        Kind::Double(0.0, 1.0),
        "0.8",
        "Part of a Kerberos ticket's life after which it is renewed. Authentication does not exist in this version.",
    )
    .live(),
    Property::broker(
        "sasl.login.refresh.buffer.seconds",
        Kind::Short(Bounds::any()),
        "300",
        "Seconds before a credential ends by which it is renewed. Authentication does not exist in this version.",
    )
    .live(),
    Property::broker(
        "sasl.login.refresh.min.period.seconds",
        Kind::Short(Bounds::any()),
        "60",
        "Seconds that a credential is used at least before it is renewed. Authentication does not exist in this version.",
    )
    .live(),
    Property::broker(
        "sasl.login.refresh.window.factor",
        Kind::Double(0.0, 1.0),
        "0.8",
        "Part of a credential's life after which it is renewed. Authentication does not exist in this version.",
    )
    .live(),
    Property::broker(
        "sasl.login.refresh.window.jitter",
        Kind::Double(0.0, 1.0),
        "0.05",
        "Random part of the time to the renewal of a credential. Authentication does not exist in this version.",
    )
    .live(),
    Property::broker(
        "socket.listen.backlog.size",
        POSITIVE_INT,
        "50",
        "Length of the queue of connections that are not accepted yet.",
    ),
    Property::broker(
        "socket.receive.buffer.bytes",
        Kind::IntOrMinusOne(Bounds::at_least(1)),
        "-1",
        "Receive buffer (SO_RCVBUF) of each client's socket. -1: 262144 for clients on the broker's own machine; for \
         others the kernel's tuning. Kafka's default is 102400.",
    )
    .active(),
    Property::broker(
        "socket.request.max.bytes",
        POSITIVE_INT,
        "104857600",
        "Largest request; a larger one closes its connection.",
    )
    .active(),
    Property::broker(
        "socket.send.buffer.bytes",
        Kind::IntOrMinusOne(Bounds::at_least(1)),
        "-1",
        "Send buffer (SO_SNDBUF) of each client's socket. -1: 262144 for clients on the broker's own machine; for others the \
         kernel's tuning, which gives more to those that are far away. Kafka's default is 102400.",
    )
    .active(),
    Property::broker_unset(
        "thalweg.cluster.id",
        Kind::Text,
        "Cluster id given to an empty data directory when it is formatted; random when not set.",
    )
    .active(),
    Property::broker(
        "thalweg.engine",
        Kind::OneOf(&["auto", "ring", "plain"]),
        "auto",
        "How files are written: `ring` by io_uring, `plain` by ordinary system calls on threads \
         of their own. `auto` takes the ring where the kernel allows it.",
    )
    .active(),
    Property::broker(
        "thalweg.log.dirs.headroom.bytes",
        Kind::Long(Bounds::at_least(-1)),
        "-1",
        "Room that must stay free on the disk of each log directory. With less, produce is refused \
         with KAFKA_STORAGE_ERROR until there is a quarter more; everything else goes on. -1: a \
         fiftieth of the file system, at most 1 GiB. 0: produce is refused only by a full disk.",
    )
    .active(),
    Property::broker(
        "thalweg.log.dirs.probe.interval.ms",
        Kind::Long(Bounds::at_least(-1)),
        "10000",
        "A log directory in which nothing was synced for so long is asked by a small write and an fdatasync \
         (`thalweg-probe`) whether its disk still works. -1 or 0: never, so that the failure of an idle disk \
         shows only when it is next written to.",
    )
    .active(),
    Property::broker(
        "thalweg.log.flush.interval.bytes",
        POSITIVE_LONG,
        "67108864",
        "Bytes of a log that may be written and not flushed to the device before that is done in the \
         background. With `thalweg.log.flush.interval.ms` it bounds what a crash of the machine takes \
         and what the start after it checks; nobody waits for it.",
    )
    .active(),
    Property::broker(
        "thalweg.log.flush.interval.ms",
        POSITIVE_LONG,
        "30000",
        "Age of unflushed data after which it is flushed in the background, whatever `flush.ms` says.",
    )
    .active(),
    Property::broker(
        "thalweg.log.scrub.interval.ms",
        Kind::Long(Bounds::at_least(-1)),
        "604800000",
        "Every closed segment is read and checked once in so long, by a thread of the lowest priority: \
         checksums, offsets, and that its indexes agree with it. What is damaged is reported and served \
         no more. -1 or 0: only where somebody met damage.",
    )
    .active()
    .live(),
    Property::broker(
        "thalweg.log.scrub.max.bytes.per.second",
        POSITIVE_LONG,
        "10485760",
        "Bytes per second that these checks may read, of all logs together. Where \
         `thalweg_scrub_due_bytes` keeps growing, it is too little for the interval.",
    )
    .active()
    .live(),
    Property::broker(
        "thalweg.request.progress.timeout.ms",
        POSITIVE_LONG,
        "30000",
        "A request that has begun to arrive must go on at least this often and with a minimum \
         rate, or its connection is closed.",
    )
    .active(),
    Property::broker(
        "thalweg.response.write.timeout.ms",
        POSITIVE_LONG,
        "60000",
        "A client that takes nothing of its answer for that long is disconnected.",
    )
    .active(),
    Property::broker(
        "thalweg.ring.entries",
        Kind::Int(Bounds::between(8, 32_768)),
        "256",
        "Entries of each core's io_uring submission queue.",
    )
    .active(),
    Property::broker(
        "unclean.leader.election.enable",
        Kind::Bool,
        "false",
        "Default of the topic property `unclean.leader.election.enable`.",
    ),
];
