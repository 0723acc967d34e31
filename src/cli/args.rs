//! The command line, as `clap` derives it.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use thalweg_client::Position;
use thalweg_types::Uuid;

const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  the operation failed, or `inspect` found damage
  2  the command line or the configuration is wrong; nothing was tried
  3  no broker could be reached
  4  the topic, partition or file does not exist
  5  the topic exists already, or the directory is formatted already";

/// A Kafka-compatible log broker, and the tools to work with it.
#[derive(Parser, Debug)]
#[command(name = "thalweg", version, about, after_help = EXIT_CODES, propagate_version = true)]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Run a broker until SIGTERM or SIGINT
    Serve(ServeArgs),
    /// Give an empty data directory its identity, for a broker that is started with --config
    Format(FormatArgs),
    /// Create, list, describe, alter and delete topics
    Topic(TopicArgs),
    /// Show and change settings of topics and brokers
    Config(ConfigArgs),
    /// Send lines from stdin to a topic
    Produce(ProduceArgs),
    /// Print the records of a topic
    Consume(ConsumeArgs),
    /// Show and verify log files, without a broker
    Inspect(InspectArgs),
}

/// Where the broker is.
#[derive(Args, Debug, Clone)]
pub struct BrokerArgs {
    /// Address of a broker; several, separated by commas, are tried in turn
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:9092")]
    pub bootstrap_server: String,
    /// How long an operation is tried again before it fails
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    pub timeout: u32,
}

/// `thalweg topic`.
#[derive(Args, Debug, Clone)]
pub struct TopicArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: TopicCommand,
}

/// The subcommands of `thalweg topic`.
#[derive(Subcommand, Debug, Clone)]
pub enum TopicCommand {
    /// Create a topic
    Create(TopicCreateArgs),
    /// List the topics
    List(TopicListArgs),
    /// Show partitions: leader, epoch, replicas, offsets, and the core each lives on
    Describe(TopicDescribeArgs),
    /// Add partitions, change settings
    Alter(TopicAlterArgs),
    /// Delete topics and their records
    Delete(TopicDeleteArgs),
}

/// Flags of `thalweg topic alter`.
#[derive(Args, Debug, Clone)]
pub struct TopicAlterArgs {
    /// Name of the topic
    pub name: String,
    /// Number of partitions from now on; it can only grow
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(1..))]
    pub partitions: Option<i32>,
    /// Set a property of the topic; may be repeated
    #[arg(long = "config", value_name = "KEY=VALUE", value_parser = parse_property)]
    pub configs: Vec<Property>,
    /// Give a property back to the broker's default; may be repeated
    #[arg(long = "delete-config", value_name = "KEY")]
    pub deleted_configs: Vec<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Where the broker is.
    #[command(flatten)]
    pub broker: BrokerArgs,
}

/// `thalweg config`.
#[derive(Args, Debug, Clone)]
pub struct ConfigArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: ConfigCommand,
}

/// The subcommands of `thalweg config`.
#[derive(Subcommand, Debug, Clone)]
pub enum ConfigCommand {
    /// Show settings and where they come from
    Describe(ConfigDescribeArgs),
    /// Change settings while the broker runs
    Alter(ConfigAlterArgs),
}

/// Whose settings.
#[derive(Args, Debug, Clone)]
pub struct ConfigOwnerArgs {
    /// What has the settings
    #[arg(value_enum)]
    pub kind: ConfigOwnerKind,
    /// Name of the topic, or id of the broker [default: all brokers]
    pub name: Option<String>,
}

/// What has settings.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum ConfigOwnerKind {
    Topic,
    Broker,
}

/// Flags of `thalweg config describe`.
#[derive(Args, Debug, Clone)]
pub struct ConfigDescribeArgs {
    /// Whose settings.
    #[command(flatten)]
    pub owner: ConfigOwnerArgs,
    /// Show defaults too
    #[arg(long)]
    pub all: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Where the broker is.
    #[command(flatten)]
    pub broker: BrokerArgs,
}

/// Flags of `thalweg config alter`.
#[derive(Args, Debug, Clone)]
pub struct ConfigAlterArgs {
    /// Whose settings.
    #[command(flatten)]
    pub owner: ConfigOwnerArgs,
    /// Give a setting a value; may be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse_property)]
    pub set: Vec<Property>,
    /// Give a setting back to its default; may be repeated
    #[arg(long, value_name = "KEY")]
    pub delete: Vec<String>,
    /// Add items to a list; may be repeated
    #[arg(long, value_name = "KEY=ITEMS", value_parser = parse_property)]
    pub append: Vec<Property>,
    /// Take items out of a list; may be repeated
    #[arg(long, value_name = "KEY=ITEMS", value_parser = parse_property)]
    pub subtract: Vec<Property>,
    /// Only check whether the broker would take it
    #[arg(long)]
    pub validate_only: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Where the broker is.
    #[command(flatten)]
    pub broker: BrokerArgs,
}

/// Flags of `thalweg topic create`.
#[derive(Args, Debug, Clone)]
pub struct TopicCreateArgs {
    /// Name of the topic
    pub name: String,
    /// Number of partitions [default: the broker's num.partitions]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(1..))]
    pub partitions: Option<i32>,
    /// Number of replicas [default: the broker's default.replication.factor]
    #[arg(long, value_name = "R", value_parser = clap::value_parser!(i16).range(1..))]
    pub replication_factor: Option<i16>,
    /// Set a property of the topic; may be repeated
    #[arg(long = "config", value_name = "KEY=VALUE", value_parser = parse_property)]
    pub configs: Vec<Property>,
    /// Succeed when the topic exists already (its partitions and properties are not compared)
    #[arg(long)]
    pub if_not_exists: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Where the broker is.
    #[command(flatten)]
    pub broker: BrokerArgs,
}

/// Flags of `thalweg topic list`.
#[derive(Args, Debug, Clone)]
pub struct TopicListArgs {
    /// Include the cluster's own topics
    #[arg(long)]
    pub internal: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Where the broker is.
    #[command(flatten)]
    pub broker: BrokerArgs,
}

/// Flags of `thalweg topic describe`.
#[derive(Args, Debug, Clone)]
pub struct TopicDescribeArgs {
    /// Names of topics [default: all but the cluster's own]
    pub names: Vec<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Where the broker is.
    #[command(flatten)]
    pub broker: BrokerArgs,
}

/// Flags of `thalweg topic delete`.
#[derive(Args, Debug, Clone)]
pub struct TopicDeleteArgs {
    /// Names of topics
    #[arg(required = true)]
    pub names: Vec<String>,
    /// Succeed when a topic does not exist
    #[arg(long)]
    pub if_exists: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Where the broker is.
    #[command(flatten)]
    pub broker: BrokerArgs,
}

/// Flags of `thalweg produce`.
#[derive(Args, Debug, Clone)]
pub struct ProduceArgs {
    /// Name of the topic; created when the broker allows it (auto.create.topics.enable)
    pub topic: String,
    /// Split each line into key and value at the first occurrence of this text
    #[arg(long, value_name = "TEXT")]
    pub key_separator: Option<String>,
    /// Send everything to this partition [default: by key, else spread]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(0..))]
    pub partition: Option<i32>,
    /// Which confirmation to wait for
    #[arg(long, value_enum, default_value_t = AcksChoice::All)]
    pub acks: AcksChoice,
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
    /// Where to begin: `beginning`, `end`, an offset, or `@` and milliseconds since 1970
    #[arg(long, value_name = "WHERE", default_value = "beginning", value_parser = parse_position)]
    pub from: Position,
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
    /// Print the key before the value
    #[arg(long)]
    pub print_key: bool,
    /// Between the printed parts
    #[arg(long, value_name = "TEXT", default_value = "\t")]
    pub separator: String,
    /// Print each record in this form: %t topic, %p partition, %o offset, %T timestamp, %k key, %v value,
    /// %% percent; \n, \t, \0 and \\ as in C. Nothing is added
    #[arg(long, value_name = "FORMAT", conflicts_with_all = ["json", "print_partition",
          "print_offset", "print_timestamp", "print_key"])]
    pub format: Option<String>,
    /// Print one JSON object per record
    #[arg(long)]
    pub json: bool,
    /// Where the broker is.
    #[command(flatten)]
    pub broker: BrokerArgs,
}

/// Flags of `thalweg inspect`.
#[derive(Args, Debug, Clone)]
pub struct InspectArgs {
    /// A segment or index file, a partition directory, or a data directory
    #[arg(required = true, value_name = "FILE|DIR")]
    pub paths: Vec<PathBuf>,
    /// Check every batch: checksum, record structure, offsets, and indexes against the log
    #[arg(long)]
    pub verify: bool,
    /// Print each record, not only batches
    #[arg(long)]
    pub records: bool,
    /// Print one JSON object per finding
    #[arg(long)]
    pub json: bool,
}

/// Where the settings of a broker come from.
#[derive(Args, Debug, Clone)]
pub struct SettingsArgs {
    /// File of properties, in the syntax of Kafka's server.properties and with its names
    #[arg(long, short, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Directory of the logs, wins over log.dirs [default: data]
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// Set a property by its Kafka name, wins over the file; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = parse_property)]
    pub properties: Vec<Property>,
}

/// Flags of `thalweg format`, named as those of Kafka's StorageTool.
#[derive(Args, Debug, Clone)]
pub struct FormatArgs {
    /// Where the settings come from.
    #[command(flatten)]
    pub settings: SettingsArgs,
    /// Id of the cluster [default: thalweg.cluster.id, else random]
    #[arg(long, short = 't', value_name = "ID", value_parser = parse_cluster_id)]
    pub cluster_id: Option<String>,
    /// Succeed when the directory is formatted already, and leave it as it is
    #[arg(long, short = 'g')]
    pub ignore_formatted: bool,
    /// Taken for the sake of Kafka's scripts: this broker always is its own controller
    #[arg(long, short)]
    pub standalone: bool,
}

/// Flags of `thalweg serve`.
#[derive(Args, Debug, Clone)]
pub struct ServeArgs {
    /// Where the settings come from.
    ///
    /// Without a file, an empty directory is formatted; with one, only `thalweg format` does so.
    #[command(flatten)]
    pub settings: SettingsArgs,
    /// Address to listen on, wins over listeners [default: 127.0.0.1:9092]
    #[arg(long, value_name = "HOST:PORT")]
    pub listen: Option<String>,
    /// Number of shards (threads that own partitions) [default: one per allowed core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub shards: Option<u16>,
    /// Cores the shards are pinned to, for example 0,2-5 [default: those the process may use]
    #[arg(long, value_name = "LIST", value_parser = parse_cores)]
    pub cores: Option<CoreList>,
    /// Least severe level that is logged, or a filter such as `info,thalweg_storage=debug`
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    pub log_level: String,
    /// Form of the log lines on stderr
    #[arg(long, value_enum, default_value_t = LogFormat::Human)]
    pub log_format: LogFormat,
    /// Address of the metrics and health endpoints, or `none`
    ///
    /// [default: 127.0.0.1:9644, or no endpoint when that address is taken]
    #[arg(long, value_name = "HOST:PORT|none", value_parser = parse_metrics_listen)]
    pub metrics_listen: Option<MetricsListen>,
}

/// Form of log lines.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// One readable line per event
    Human,
    /// One JSON object per line
    Json,
}

/// Value of `--metrics-listen`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricsListen {
    /// `none`: no endpoint.
    Off,
    /// Serve metrics and health at this address.
    At(SocketAddr),
}

/// Value of `--cores`: indexes as the kernel counts them, in the order given, without repeats.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoreList(pub Vec<usize>);

/// One `key=value`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Property {
    /// Before the first `=`, trimmed.
    pub key: String,
    /// After it, trimmed; may be empty.
    pub value: String,
}

/// Largest core index that `--cores` accepts, so that a slip such as `0-40000000` is an error
/// and not a long list.
const CORE_INDEX_MAX: usize = 4_095;

fn parse_core(text: &str) -> Result<usize, String> {
    match text.trim().parse::<usize>() {
        Ok(core) if core <= CORE_INDEX_MAX => Ok(core),
        Ok(_) => Err(format!("core {} is above {CORE_INDEX_MAX}", text.trim())),
        Err(_) => Err(format!(
            "`{text}` is no core number; write for example 0,2-5"
        )),
    }
}

fn parse_cores(text: &str) -> Result<CoreList, String> {
    let mut cores = Vec::new();
    for item in text.split(',') {
        let (first, last) = match item.split_once('-') {
            Some((first, last)) => (parse_core(first)?, parse_core(last)?),
            None => {
                let core = parse_core(item)?;
                (core, core)
            }
        };
        if first > last {
            return Err(format!("the range `{item}` runs backwards"));
        }
        for core in first..=last {
            if cores.contains(&core) {
                return Err(format!("core {core} is named twice"));
            }
            cores.push(core);
        }
    }
    Ok(CoreList(cores))
}

pub(crate) fn parse_property(text: &str) -> Result<Property, String> {
    match text.split_once('=') {
        Some((key, value)) if !key.trim().is_empty() => Ok(Property {
            key: key.trim().to_owned(),
            value: value.trim().to_owned(),
        }),
        Some(_) | None => Err(format!("`{text}` is not KEY=VALUE")),
    }
}

fn parse_position(text: &str) -> Result<Position, String> {
    let number = |digits: &str| {
        let value = digits.parse::<i64>().ok().filter(|n| *n >= 0);
        value.ok_or_else(|| format!("`{text}` is none of beginning, end, OFFSET, @MILLISECONDS"))
    };
    match (text, text.strip_prefix('@')) {
        ("beginning", _) => Ok(Position::Earliest),
        ("end", _) => Ok(Position::Latest),
        (_, Some(ms)) => number(ms).map(Position::Timestamp),
        (offset, None) => number(offset).map(Position::Offset),
    }
}

fn parse_cluster_id(text: &str) -> Result<String, String> {
    text.parse::<Uuid>()
        .map(|_| text.to_owned())
        .map_err(|_| format!("`{text}` is not 22 characters of base64, as cluster ids are"))
}

fn parse_metrics_listen(text: &str) -> Result<MetricsListen, String> {
    if text == "none" {
        return Ok(MetricsListen::Off);
    }
    text.parse::<SocketAddr>()
        .map(MetricsListen::At)
        .map_err(|_| {
            format!("`{text}` is neither an address such as 127.0.0.1:9644 nor the word none")
        })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::{
        Arguments, CoreList, MetricsListen, Position, parse_cores, parse_metrics_listen,
        parse_position,
    };

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn core_lists() {
        assert_eq!(parse_cores("0,2-4"), Ok(CoreList(vec![0, 2, 3, 4])));
        for bad in ["", "a", "3-1", "1,1", "0-40000000", "-1", "1,"] {
            assert!(parse_cores(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn positions() {
        assert_eq!(parse_position("end"), Ok(Position::Latest));
        assert_eq!(parse_position("17"), Ok(Position::Offset(17)));
        assert_eq!(parse_position("@17"), Ok(Position::Timestamp(17)));
        for bad in ["", "-1", "@", "middle"] {
            assert!(parse_position(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn metrics_addresses() {
        assert_eq!(parse_metrics_listen("none"), Ok(MetricsListen::Off));
        assert!(parse_metrics_listen("127.0.0.1:9644").is_ok());
        assert!(parse_metrics_listen("9644").is_err());
    }
}
