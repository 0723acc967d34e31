//! The command line, as `clap` derives it.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  the operation failed, or `inspect` found damage
  2  the command line is wrong; nothing was tried
  3  no broker could be reached
  4  the topic, partition or file does not exist
  5  the topic exists already";

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
}

/// Flags of `thalweg serve`.
#[derive(Args, Debug, Clone)]
pub struct ServeArgs {
    /// Directory of the logs (Kafka's `log.dirs`); formatted when it is empty [default: data]
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// Address to listen on [default: 127.0.0.1:9092]
    #[arg(long, value_name = "HOST:PORT")]
    pub listen: Option<String>,
    /// Number of shards (threads that own partitions) [default: one per allowed core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub shards: Option<u16>,
    /// Cores the shards are pinned to, for example 0,2-5 [default: those the process may use]
    #[arg(long, value_name = "LIST", value_parser = parse_cores)]
    pub cores: Option<CoreList>,
    /// Set a broker property by its Kafka name; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = parse_property)]
    pub properties: Vec<Property>,
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

    use super::{Arguments, CoreList, MetricsListen, parse_cores, parse_metrics_listen};

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
    fn metrics_addresses() {
        assert_eq!(parse_metrics_listen("none"), Ok(MetricsListen::Off));
        assert!(parse_metrics_listen("127.0.0.1:9644").is_ok());
        assert!(parse_metrics_listen("9644").is_err());
    }
}
