//! `thalweg group`.

use std::path::PathBuf;

use clap::{ArgGroup, Args, Subcommand, ValueEnum};

use super::BrokerArgs;
use super::moment::{parse_moment, parse_span};

/// `thalweg group`.
#[derive(Args, Debug, Clone)]
pub struct GroupArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: GroupCommand,
}

/// The subcommands of `thalweg group`.
#[derive(Subcommand, Debug, Clone)]
pub enum GroupCommand {
    /// List the groups
    List(GroupListArgs),
    /// Show offsets and lag, members, or the state of groups
    Describe(GroupDescribeArgs),
    /// Show the last rebalances of a group; only a Thalweg broker remembers them
    History(GroupHistoryArgs),
    /// Move the offsets of groups without members; only shows what it would do until --execute
    ResetOffsets(Box<GroupResetArgs>),
    /// Delete groups without members, with their offsets
    Delete(GroupDeleteArgs),
    /// Forget what a group has committed for some topics
    DeleteOffsets(GroupDeleteOffsetsArgs),
    /// Remove members of a group, also static ones that are away
    RemoveMembers(GroupRemoveMembersArgs),
}

/// Which groups.
#[derive(Args, Debug, Clone)]
pub struct GroupChoiceArgs {
    /// Names of groups
    #[arg(
        value_name = "GROUP",
        required_unless_present = "all_groups",
        conflicts_with = "all_groups"
    )]
    pub groups: Vec<String>,
    /// All groups that there are
    #[arg(long)]
    pub all_groups: bool,
}

/// Where a broker tells what Kafka's protocol has no request for.
#[derive(Args, Debug, Clone)]
pub struct BrokerHttpArgs {
    /// Address of the broker's metrics endpoint [default: port 9644 of the bootstrap server's host]
    #[arg(long, value_name = "HOST:PORT")]
    pub http: Option<String>,
}

/// Flags of `thalweg group list`.
#[derive(Args, Debug, Clone)]
pub struct GroupListArgs {
    /// Only groups in these states; separated by commas, or repeated
    #[arg(
        long,
        value_enum,
        value_name = "STATE",
        value_delimiter = ',',
        ignore_case = true
    )]
    pub state: Vec<GroupStateChoice>,
    /// Only groups of these types; separated by commas, or repeated
    #[arg(
        long = "type",
        value_enum,
        value_name = "TYPE",
        value_delimiter = ',',
        ignore_case = true
    )]
    pub types: Vec<GroupTypeChoice>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Where the broker is.
    #[command(flatten)]
    pub broker: BrokerArgs,
}

/// A state of a group, in Kafka's words.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
#[value(rename_all = "PascalCase")]
pub enum GroupStateChoice {
    /// Members join the next generation
    PreparingRebalance,
    /// The leader is sharing out
    CompletingRebalance,
    /// Every member has its share
    Stable,
    /// Nobody is there
    Empty,
    /// It is being deleted
    Dead,
    /// The broker is sharing out
    Assigning,
    /// Members take over what the broker gave them
    Reconciling,
    /// A streams group lacks topics
    NotReady,
}

/// A type of group, in Kafka's words.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum GroupTypeChoice {
    Classic,
    Consumer,
    Share,
    Streams,
}

/// Flags of `thalweg group describe`.
#[derive(Args, Debug, Clone)]
pub struct GroupDescribeArgs {
    /// Which groups.
    #[command(flatten)]
    pub choice: GroupChoiceArgs,
    /// Show committed offsets and lag by partition (the default)
    #[arg(long, conflicts_with_all = ["members", "state"])]
    pub offsets: bool,
    /// Show members and what they read
    #[arg(long, conflicts_with = "state")]
    pub members: bool,
    /// Show the state only
    #[arg(long)]
    pub state: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Where lag in bytes and seconds is to be had.
    #[command(flatten)]
    pub http: BrokerHttpArgs,
    /// Where the broker is.
    #[command(flatten)]
    pub broker: BrokerArgs,
}

/// Flags of `thalweg group history`.
#[derive(Args, Debug, Clone)]
pub struct GroupHistoryArgs {
    /// Name of the group
    #[arg(value_name = "GROUP")]
    pub group: String,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Where the broker tells it.
    #[command(flatten)]
    pub http: BrokerHttpArgs,
    /// Where the broker is.
    #[command(flatten)]
    pub broker: BrokerArgs,
}

/// Where offsets are moved to.
#[derive(Args, Debug, Clone)]
#[group(required = true, multiple = false)]
pub struct ResetToArgs {
    /// To the first record that is there
    #[arg(long)]
    pub to_earliest: bool,
    /// Behind the last record
    #[arg(long)]
    pub to_latest: bool,
    /// To what is committed, or the end where nothing is, within what the log has
    #[arg(long)]
    pub to_current: bool,
    /// To this offset, within what the log has
    #[arg(long, value_name = "OFFSET", value_parser = clap::value_parser!(i64).range(0..))]
    pub to_offset: Option<i64>,
    /// By so many records, forward or (negative) back, within what the log has
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub shift_by: Option<i64>,
    /// To the first record of this time or later: ISO 8601 (UTC without a zone) or milliseconds since 1970
    #[arg(long, value_name = "TIME", value_parser = parse_moment)]
    pub to_datetime: Option<i64>,
    /// To the first record that is no older than this: PnDTnHnMnS, for example PT1H30M
    #[arg(long, value_name = "DURATION", value_parser = parse_span)]
    pub by_duration: Option<i64>,
    /// To what a file says, as --export prints it: lines of [GROUP,]TOPIC,PARTITION,OFFSET; `-` is stdin
    #[arg(long, value_name = "FILE")]
    pub from_file: Option<PathBuf>,
}

/// Flags of `thalweg group reset-offsets`.
#[derive(Args, Debug, Clone)]
pub struct GroupResetArgs {
    /// Which groups.
    #[command(flatten)]
    pub choice: GroupChoiceArgs,
    /// Where to.
    #[command(flatten)]
    pub to: ResetToArgs,
    /// Of this topic, or these partitions of it; may be repeated
    #[arg(long = "topic", value_name = "TOPIC[:N,N...]", value_parser = parse_topic_choice,
          required_unless_present_any = ["all_topics", "from_file"],
          conflicts_with_all = ["all_topics", "from_file"])]
    pub topics: Vec<TopicChoice>,
    /// Of all topics for which the group has committed something
    #[arg(long, conflicts_with = "from_file")]
    pub all_topics: bool,
    /// Do it
    #[arg(long)]
    pub execute: bool,
    /// Only show what would be done (the default)
    #[arg(long, conflicts_with = "execute")]
    pub dry_run: bool,
    /// Print the new offsets as lines for --from-file
    #[arg(long, conflicts_with = "json")]
    pub export: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Where the broker is.
    #[command(flatten)]
    pub broker: BrokerArgs,
}

/// Flags of `thalweg group delete`.
#[derive(Args, Debug, Clone)]
pub struct GroupDeleteArgs {
    /// Which groups.
    #[command(flatten)]
    pub choice: GroupChoiceArgs,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Where the broker is.
    #[command(flatten)]
    pub broker: BrokerArgs,
}

/// Flags of `thalweg group delete-offsets`.
#[derive(Args, Debug, Clone)]
pub struct GroupDeleteOffsetsArgs {
    /// Name of the group
    #[arg(value_name = "GROUP")]
    pub group: String,
    /// Of this topic, or these partitions of it; may be repeated
    #[arg(long = "topic", value_name = "TOPIC[:N,N...]", value_parser = parse_topic_choice,
          required = true)]
    pub topics: Vec<TopicChoice>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Where the broker is.
    #[command(flatten)]
    pub broker: BrokerArgs,
}

/// Flags of `thalweg group remove-members`.
#[derive(Args, Debug, Clone)]
#[command(group(ArgGroup::new("members").required(true).args(["instance_ids", "all"])))]
pub struct GroupRemoveMembersArgs {
    /// Name of the group
    #[arg(value_name = "GROUP")]
    pub group: String,
    /// The static member with this group.instance.id; may be repeated
    #[arg(long = "instance-id", value_name = "NAME")]
    pub instance_ids: Vec<String>,
    /// All members that there are
    #[arg(long)]
    pub all: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Where the broker is.
    #[command(flatten)]
    pub broker: BrokerArgs,
}

/// Value of `--topic`: a topic, and which of its partitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicChoice {
    /// Its name.
    pub name: String,
    /// Empty: all.
    pub partitions: Vec<i32>,
}

pub(super) fn parse_topic_choice(text: &str) -> Result<TopicChoice, String> {
    let (name, list) = match text.split_once(':') {
        Some((name, list)) => (name, Some(list)),
        None => (text, None),
    };
    let index = |item: &str| item.trim().parse::<i32>().ok().filter(|index| *index >= 0);
    let partitions: Option<Vec<i32>> = list.map_or(Some(Vec::new()), |list| {
        list.split(',').map(index).collect()
    });
    match partitions {
        Some(partitions) if !name.is_empty() => Ok(TopicChoice {
            name: name.to_owned(),
            partitions,
        }),
        Some(_) | None => Err(format!(
            "`{text}` is neither a topic nor TOPIC:N,N with numbers of partitions"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::{TopicChoice, parse_topic_choice};

    #[test]
    fn topics_with_and_without_partitions() {
        let choice = |name: &str, partitions: &[i32]| TopicChoice {
            name: name.to_owned(),
            partitions: partitions.to_vec(),
        };
        assert_eq!(parse_topic_choice("t"), Ok(choice("t", &[])));
        assert_eq!(parse_topic_choice("t:0,2"), Ok(choice("t", &[0, 2])));
        for bad in ["", ":1", "t:", "t:x", "t:-1", "t:1,,2", "t:1:2"] {
            assert!(parse_topic_choice(bad).is_err(), "{bad}");
        }
    }
}
