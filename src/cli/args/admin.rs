//! `thalweg topic` and `thalweg config`.

use clap::{Args, Subcommand, ValueEnum};

use super::{BrokerArgs, Property, parse_property};

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
    /// Name of the topic or group, or id of the broker; `broker` without one means all brokers
    pub name: Option<String>,
}

/// What has settings.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigOwnerKind {
    /// What differs in one topic
    Topic,
    /// One broker, by its id; without one as `broker-default`
    Broker,
    /// What is set for all brokers
    BrokerDefault,
    /// The log levels of one broker, by its id
    BrokerLogger,
    /// One consumer group, also before it exists
    Group,
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
