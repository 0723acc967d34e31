//! The command line, as `clap` derives it.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use thalweg_types::Uuid;

mod admin;
#[cfg(test)]
mod documented;
mod group;
mod log_dirs;
mod moment;
mod records;

pub use admin::{
    ConfigAlterArgs, ConfigArgs, ConfigCommand, ConfigDescribeArgs, ConfigOwnerArgs,
    ConfigOwnerKind, TopicAlterArgs, TopicArgs, TopicCommand, TopicCreateArgs, TopicDeleteArgs,
    TopicDescribeArgs, TopicListArgs,
};
pub use group::{
    BrokerHttpArgs, GroupArgs, GroupChoiceArgs, GroupCommand, GroupDeleteArgs,
    GroupDeleteOffsetsArgs, GroupDescribeArgs, GroupHistoryArgs, GroupListArgs,
    GroupRemoveMembersArgs, GroupResetArgs, GroupStateChoice, GroupTypeChoice, ResetToArgs,
    TopicChoice,
};
pub use log_dirs::{LogDirsArgs, LogDirsCommand, LogDirsDescribeArgs, LogDirsMoveArgs};
pub(crate) use moment::format_moment;
pub use records::{
    AcksChoice, AssignorChoice, CodecChoice, ConsumeArgs, PartitionerChoice, ProduceArgs,
    ProtocolChoice, ResetChoice,
};

const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  the operation failed, `inspect` found damage, or `doctor` a problem
  2  the command line or the configuration is wrong; nothing was tried
  3  no broker could be reached
  4  the topic, partition, group or file does not exist
  5  the topic exists already, or the directory is formatted already
  6  the broker ended because its disk failed";

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
    /// Show and change settings of topics, brokers and groups
    Config(ConfigArgs),
    /// List, describe and delete consumer groups, move their offsets
    Group(GroupArgs),
    /// Show what is in which log directory, move partitions between them
    LogDirs(LogDirsArgs),
    /// Send lines of stdin or files to a topic
    Produce(ProduceArgs),
    /// Print the records of a topic
    Consume(ConsumeArgs),
    /// Watch what a broker does: cores, busy partitions, background work, what requests wait for
    Top(TopArgs),
    /// Show and verify log files, without a broker
    Inspect(InspectArgs),
    /// Make damaged logs of a stopped broker start again; without --yes only say how
    Repair(RepairArgs),
    /// Look at this machine before a broker runs on it: what hurts, and what to do
    Doctor(DoctorArgs),
    /// Print a script that teaches a shell to complete `thalweg`
    Completions(CompletionsArgs),
}

/// Flags of `thalweg completions`.
#[derive(Args, Debug, Clone)]
pub struct CompletionsArgs {
    /// Which shell
    #[arg(value_enum)]
    pub shell: ShellChoice,
}

/// A shell that `thalweg completions` knows.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum ShellChoice {
    Bash,
    Zsh,
    Fish,
}

/// Where the broker is.
#[derive(Args, Debug, Clone)]
pub struct BrokerArgs {
    /// Address of a broker; several, separated by commas, are tried in turn
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:9092",
          value_parser = parse_bootstrap)]
    pub bootstrap_server: String,
    /// How long an operation may take: to connect, to be answered, to be tried again
    #[arg(long, value_name = "SECONDS", default_value_t = 30,
          value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub timeout: u32,
}

/// Flags of `thalweg top`.
#[derive(Args, Debug, Clone)]
pub struct TopArgs {
    /// Address of the broker's metrics endpoint
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:9644",
          value_parser = parse_bootstrap)]
    pub http: String,
    /// Time between two frames
    #[arg(long, value_name = "SECONDS", default_value_t = 2,
          value_parser = clap::value_parser!(u32).range(1..=3_600))]
    pub interval: u32,
    /// Partitions, and slow requests, that are shown
    #[arg(long, value_name = "N", default_value_t = 10,
          value_parser = clap::value_parser!(u16).range(1..=200))]
    pub rows: u16,
    /// Print one frame, after one interval, and end; the same where there is no terminal
    #[arg(long)]
    pub once: bool,
    /// Print one JSON object per frame
    #[arg(long)]
    pub json: bool,
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

/// Flags of `thalweg repair`.
#[derive(Args, Debug, Clone)]
pub struct RepairArgs {
    /// Where the settings come from.
    #[command(flatten)]
    pub settings: SettingsArgs,
    /// Only these partitions, as TOPIC-PARTITION [default: all]
    #[arg(value_name = "PARTITION")]
    pub partitions: Vec<String>,
    /// Do it. What is cut off is lost
    #[arg(long)]
    pub yes: bool,
}

/// Flags of `thalweg doctor`.
#[derive(Args, Debug, Clone)]
pub struct DoctorArgs {
    /// Where the data will be: only the directory of the logs matters.
    #[command(flatten)]
    pub settings: SettingsArgs,
    /// Measure the disk too: write, read and fdatasync for a few seconds
    #[arg(long)]
    pub probe: bool,
    /// How long to measure
    #[arg(long, value_name = "SECONDS", default_value_t = 6, requires = "probe",
          value_parser = clap::value_parser!(u16).range(1..=600))]
    pub seconds: u16,
    /// Print one JSON object
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

/// Like [`parse_property`], with the value as it stands.
fn parse_header(text: &str) -> Result<Property, String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok(Property {
            key: key.to_owned(),
            value: value.to_owned(),
        }),
        Some(_) | None => Err(format!("`{text}` is not NAME=VALUE")),
    }
}

fn parse_cluster_id(text: &str) -> Result<String, String> {
    text.parse::<Uuid>()
        .map(|_| text.to_owned())
        .map_err(|_| format!("`{text}` is not 22 characters of base64, as cluster ids are"))
}

/// Host names are looked up later; here only the form is checked.
fn parse_bootstrap(text: &str) -> Result<String, String> {
    for item in text.split(',').map(str::trim) {
        let (host, port) = match item.rsplit_once(':') {
            Some((host, port)) if !host.contains(':') || host.ends_with(']') => (host, port),
            Some(_) => {
                return Err(format!(
                    "`{item}` is not HOST:PORT; an IPv6 address stands in brackets, as in [::1]:9092"
                ));
            }
            None => return Err(format!("`{item}` has no port; write {item}:9092")),
        };
        if host.is_empty() || !port.parse::<u16>().is_ok_and(|port| port > 0) {
            return Err(format!("`{item}` is not HOST:PORT"));
        }
    }
    Ok(text.to_owned())
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
        Arguments, CoreList, MetricsListen, parse_bootstrap, parse_cores, parse_metrics_listen,
    };

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn members_that_are_not_named_are_asked_for() {
        let words = ["thalweg", "group", "remove-members", "g"];
        let parsed = |more: &[&str]| {
            let words = words.iter().chain(more);
            Arguments::command().try_get_matches_from(words)
        };
        let said = parsed(&[]).expect_err("neither").to_string();
        assert!(
            said.contains("--instance-id") && said.contains("--all"),
            "{said}"
        );
        assert!(parsed(&["--all"]).is_ok());
        assert!(parsed(&["--instance-id", "a", "--instance-id", "b"]).is_ok());
        assert!(parsed(&["--all", "--instance-id", "a"]).is_err());
    }

    #[test]
    fn core_lists() {
        assert_eq!(parse_cores("0,2-4"), Ok(CoreList(vec![0, 2, 3, 4])));
        for bad in ["", "a", "3-1", "1,1", "0-40000000", "-1", "1,"] {
            assert!(parse_cores(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn bootstrap_servers() {
        for good in ["localhost:9092", "a:1, b:2", "[::1]:9092", "10.0.0.1:65535"] {
            assert!(parse_bootstrap(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            "a:1,",
            "127.0.0.1:",
            ":9092",
            "a:0",
            "a:65536",
            "::1:9092",
            "a:b",
        ] {
            assert!(parse_bootstrap(bad).is_err(), "{bad}");
        }
        let told = parse_bootstrap("127.0.0.1").unwrap_err();
        assert!(told.ends_with("write 127.0.0.1:9092"), "{told}");
    }

    #[test]
    fn metrics_addresses() {
        assert_eq!(parse_metrics_listen("none"), Ok(MetricsListen::Off));
        assert!(parse_metrics_listen("127.0.0.1:9644").is_ok());
        assert!(parse_metrics_listen("9644").is_err());
    }
}
