//! `thalweg produce` and `thalweg consume`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use thalweg_client::Position;

use super::moment::parse_moment;
use super::{BrokerArgs, Property, parse_header};

/// Flags of `thalweg produce`.
#[derive(Args, Debug, Clone)]
pub struct ProduceArgs {
    /// Name of the topic; created when the broker allows it (auto.create.topics.enable)
    pub topic: String,
    /// Files whose lines are sent, one file after the other; `-` is stdin [default: stdin]
    #[arg(value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Split each line into key and value at the first occurrence of this text
    #[arg(long, value_name = "TEXT")]
    pub key_separator: Option<String>,
    /// A key or value that reads exactly so is sent as null (a null value is a tombstone)
    #[arg(long, value_name = "TEXT", alias = "null-marker")]
    pub null: Option<String>,
    /// Give every record this header; may be repeated
    #[arg(long = "header", value_name = "NAME=VALUE", value_parser = parse_header)]
    pub headers: Vec<Property>,
    /// Each line is a record as `consume --json` prints it: key, value, headers, timestamp, partition
    #[arg(long, conflicts_with_all = ["key_separator", "null"])]
    pub json: bool,
    /// Send everything to this partition
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(0..),
          conflicts_with = "partitioner")]
    pub partition: Option<i32>,
    /// Which partition a record goes to [default: key; with --json the record's own first]
    #[arg(long, value_enum)]
    pub partitioner: Option<PartitionerChoice>,
    /// Which confirmation to wait for
    #[arg(long, value_enum, default_value_t = AcksChoice::All)]
    pub acks: AcksChoice,
    /// Send without producer id: a batch whose answer is lost may then be stored twice
    #[arg(long)]
    pub no_idempotence: bool,
    /// Compression of batches
    #[arg(long, value_enum, default_value_t = CodecChoice::None)]
    pub compression: CodecChoice,
    /// Size at which a batch is sent, before compression
    #[arg(long, value_name = "BYTES", default_value_t = 256 * 1024,
          value_parser = clap::value_parser!(u32).range(1..=64 * 1024 * 1024))]
    pub batch_bytes: u32,
    /// Where the broker is.
    #[command(flatten)]
    pub broker: BrokerArgs,
}

/// Value of `--partitioner`.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartitionerChoice {
    /// By the key as the Java client does (murmur2); without one as `sticky`
    Key,
    /// One batch after the other, each to the next partition, whatever the key
    Sticky,
    /// Each record to the next partition, whatever the key
    RoundRobin,
}

/// Value of `--acks`.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcksChoice {
    /// None: what was sent may be lost without a word
    #[value(name = "0")]
    None,
    /// The leader has written
    #[value(name = "1")]
    Leader,
    /// All in-sync replicas have written
    #[value(name = "all", alias = "-1")]
    All,
}

/// Value of `--compression`.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum CodecChoice {
    None,
    Gzip,
    Snappy,
    Lz4,
    Zstd,
}

/// Flags of `thalweg consume`.
#[derive(Args, Debug, Clone)]
pub struct ConsumeArgs {
    /// Name of the topic
    pub topic: String,
    /// Read only this partition; may be repeated [default: all]
    #[arg(long = "partition", value_name = "N", value_parser = clap::value_parser!(i32).range(0..))]
    pub partitions: Vec<i32>,
    /// Where to begin: `earliest`, `latest`, an offset, or `@` and a time
    ///
    /// A time is milliseconds since 1970 or ISO 8601: @1767312000000, @2026-01-02T00:00:00Z,
    /// @2026-01-02T01:00+01:00; without a zone it is UTC.
    #[arg(long, value_name = "WHERE", visible_alias = "from", default_value = "earliest",
          value_parser = parse_position, allow_hyphen_values = true)]
    pub offset: Position,
    /// Share the topic with the other members of this consumer group, from what it has committed
    #[arg(long, value_name = "GROUP", conflicts_with_all = ["partitions", "offset"])]
    pub group: Option<String>,
    /// How the group shares out, the preferred way first; separated by commas, or repeated. It takes one that
    /// all its members offer
    ///
    /// [default: range,cooperative-sticky]
    #[arg(
        long,
        value_enum,
        value_name = "ASSIGNOR",
        value_delimiter = ',',
        requires = "group"
    )]
    pub assignor: Vec<AssignorChoice>,
    /// How members agree: `classic`, or `consumer`, where the coordinator shares out (KIP-848)
    #[arg(long, value_enum, value_name = "PROTOCOL", requires = "group", default_value_t = ProtocolChoice::Classic)]
    pub group_protocol: ProtocolChoice,
    /// Which assignor the coordinator is asked to use, with `--group-protocol consumer` [default: its own choice]
    #[arg(
        long,
        value_name = "ASSIGNOR",
        requires = "group",
        conflicts_with = "assignor"
    )]
    pub group_remote_assignor: Option<String>,
    /// Milliseconds of silence after which the group gives this member's share to others, in the classic protocol
    /// [default: 45000]; in the newer one the group has a setting for it
    #[arg(long, value_name = "MILLIS", requires = "group",
          value_parser = clap::value_parser!(u32).range(1..=86_400_000))]
    pub session_timeout: Option<u32>,
    /// Be a static member of this name, whose share waits for it while it is away for less than its session
    #[arg(long, value_name = "NAME", requires = "group", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub group_instance_id: Option<String>,
    /// What to do where the group has no offset, or the wanted offset is not in the log
    ///
    /// [default: earliest; none when --offset is a number]
    #[arg(long, value_enum, value_name = "WHERE")]
    pub offset_reset: Option<ResetChoice>,
    /// End after so many records
    #[arg(long, value_name = "N")]
    pub max_messages: Option<u64>,
    /// End at the records that were the last ones at the start
    #[arg(long)]
    pub exit_at_end: bool,
    /// Print the partition before the value
    #[arg(long)]
    pub print_partition: bool,
    /// Print the offset before the value
    #[arg(long)]
    pub print_offset: bool,
    /// Print the timestamp (milliseconds since 1970) before the value
    #[arg(long)]
    pub print_timestamp: bool,
    /// Print the headers before the value, as NAME=VALUE,NAME=VALUE
    #[arg(long)]
    pub print_headers: bool,
    /// Print the key before the value
    #[arg(long)]
    pub print_key: bool,
    /// Between the printed parts
    #[arg(long, value_name = "TEXT", default_value = "\t")]
    pub separator: String,
    /// Print each record in this form: %t topic, %p partition, %o offset, %T timestamp, %h headers, %k key,
    /// %v value, %% percent; \n, \t, \0 and \\ as in C. Nothing is added
    #[arg(long, value_name = "FORMAT", conflicts_with_all = ["json", "print_partition",
          "print_offset", "print_timestamp", "print_headers", "print_key"])]
    pub format: Option<String>,
    /// Print one JSON object per record
    #[arg(long)]
    pub json: bool,
    /// Where the broker is.
    #[command(flatten)]
    pub broker: BrokerArgs,
}

/// Value of `--group-protocol`.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtocolChoice {
    /// One of the members shares out
    Classic,
    /// The coordinator shares out (KIP-848)
    Consumer,
}

/// Value of `--assignor`.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum AssignorChoice {
    /// Of the topic, a run of partitions to each member
    Range,
    /// One partition to each member in turn
    #[value(name = "roundrobin", alias = "round-robin")]
    RoundRobin,
    /// Even, and as little as possible changes hands
    Sticky,
    /// As sticky, and members keep what they have while the group shares out; not beside others
    CooperativeSticky,
}

/// Value of `--offset-reset`, as Kafka's `auto.offset.reset`.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResetChoice {
    /// Go on at the first record that is there
    Earliest,
    /// Go on behind the last record
    Latest,
    /// Fail
    None,
}

fn parse_position(text: &str) -> Result<Position, String> {
    match (text, text.strip_prefix('@')) {
        ("earliest" | "beginning", _) => Ok(Position::Earliest),
        ("latest" | "end", _) => Ok(Position::Latest),
        (_, Some(moment)) => parse_moment(moment).map(Position::Timestamp),
        (offset, None) => match offset.parse::<i64>() {
            Ok(offset) if offset >= 0 => Ok(Position::Offset(offset)),
            Ok(_) | Err(_) => Err(format!(
                "`{text}` is none of earliest, latest, OFFSET, @MILLISECONDS, @YYYY-MM-DDTHH:MM:SSZ"
            )),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::{Position, parse_position};

    #[test]
    fn positions() {
        assert_eq!(parse_position("end"), Ok(Position::Latest));
        assert_eq!(parse_position("latest"), Ok(Position::Latest));
        assert_eq!(parse_position("earliest"), Ok(Position::Earliest));
        assert_eq!(parse_position("17"), Ok(Position::Offset(17)));
        assert_eq!(parse_position("@17"), Ok(Position::Timestamp(17)));
        let day = Position::Timestamp(1_767_312_000_000);
        assert_eq!(parse_position("@2026-01-02"), Ok(day));
        for bad in ["", "-1", "@", "middle", "2026-01-02"] {
            assert!(parse_position(bad).is_err(), "{bad}");
        }
    }
}
