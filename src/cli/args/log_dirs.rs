//! `thalweg log-dirs`.

use clap::{Args, Subcommand};

use super::BrokerArgs;
use super::group::{BrokerHttpArgs, TopicChoice, parse_topic_choice};

/// `thalweg log-dirs`.
#[derive(Args, Debug, Clone)]
pub struct LogDirsArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: LogDirsCommand,
}

/// The subcommands of `thalweg log-dirs`.
#[derive(Subcommand, Debug, Clone)]
pub enum LogDirsCommand {
    /// Show the directories: whether they work, their room, what lies in them, what moves, what is not served
    Describe(LogDirsDescribeArgs),
    /// Move partitions to another log directory of their broker, while they are used
    Move(LogDirsMoveArgs),
}

/// Flags of `thalweg log-dirs describe`.
#[derive(Args, Debug, Clone)]
pub struct LogDirsDescribeArgs {
    /// Show each partition, too
    #[arg(long)]
    pub partitions: bool,
    /// Of this broker; all unless it is given
    #[arg(long, value_name = "ID")]
    pub broker: Option<i32>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Where it tells what is not served.
    #[command(flatten)]
    pub http: BrokerHttpArgs,
    /// Where the broker is.
    #[command(flatten)]
    pub bootstrap: BrokerArgs,
}

/// Flags of `thalweg log-dirs move`.
#[derive(Args, Debug, Clone)]
pub struct LogDirsMoveArgs {
    /// What moves; all partitions of the topic unless some are named
    #[arg(required = true, value_name = "TOPIC[:N,N...]", value_parser = parse_topic_choice)]
    pub topics: Vec<TopicChoice>,
    /// To this log directory, as `describe` shows it; the present one calls a move off
    #[arg(long, value_name = "DIR")]
    pub to: String,
    /// On this broker; needed where there are several
    #[arg(long, value_name = "ID")]
    pub broker: Option<i32>,
    /// End when all of it has moved, not when it has begun, or when nothing was copied for --timeout seconds
    #[arg(long)]
    pub wait: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Where it tells why a partition was not moved.
    #[command(flatten)]
    pub http: BrokerHttpArgs,
    /// Where the broker is.
    #[command(flatten)]
    pub bootstrap: BrokerArgs,
}
