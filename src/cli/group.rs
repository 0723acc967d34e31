//! `thalweg group`: list, describe, history, reset-offsets, delete, delete-offsets, remove-members.

mod describe;
mod history;
mod plan_file;
mod remove_members;
mod reset;

use clap::ValueEnum;
use serde::Serialize;
use thalweg_client::{ClientError, Cluster, GroupFilter};
use thalweg_protocol::ErrorCode;

use crate::args::{
    GroupChoiceArgs, GroupCommand, GroupDeleteArgs, GroupDeleteOffsetsArgs, GroupListArgs,
    TopicChoice,
};
use crate::ends;
use crate::exit::{Exit, Failure, connect};
use crate::output::{self, Align, printable};

/// A topic and one of its partitions.
type TopicPartition = (String, i32);

/// Runs one subcommand of `thalweg group`.
pub(crate) fn run(command: &GroupCommand) -> Result<(), Failure> {
    match command {
        GroupCommand::List(args) => list(args),
        GroupCommand::Describe(args) => describe::run(args),
        GroupCommand::History(args) => history::run(args),
        GroupCommand::ResetOffsets(args) => reset::run(args),
        GroupCommand::Delete(args) => delete(args),
        GroupCommand::DeleteOffsets(args) => delete_offsets(args),
        GroupCommand::RemoveMembers(args) => remove_members::run(args),
    }
}

/// Names of the chosen groups, in the order given.
fn chosen(cluster: &mut Cluster, choice: &GroupChoiceArgs) -> Result<Vec<String>, Failure> {
    if !choice.all_groups {
        return Ok(choice.groups.clone());
    }
    let all = cluster.list_groups(&GroupFilter::default())?;
    Ok(all.into_iter().map(|group| group.name).collect())
}

/// The chosen ones of some partitions; a choice without numbers means all of its topic.
fn is_chosen(choices: &[TopicChoice], of: &TopicPartition) -> bool {
    let (topic, partition) = of;
    choices.iter().any(|choice| {
        choice.name == *topic
            && (choice.partitions.is_empty() || choice.partitions.contains(partition))
    })
}

#[derive(Serialize)]
struct GroupLine {
    name: String,
    r#type: Option<String>,
    state: Option<String>,
    protocol_type: String,
}

/// Kafka's word for a value of an option.
fn word<T: ValueEnum>(choice: &T) -> String {
    let value = choice.to_possible_value();
    value.map_or_else(String::new, |value| value.get_name().to_owned())
}

fn list(args: &GroupListArgs) -> Result<(), Failure> {
    let filter = GroupFilter {
        states: args.state.iter().map(word).collect(),
        kinds: args.types.iter().map(word).collect(),
    };
    let told = |text: String| Some(text).filter(|text| !text.is_empty());
    let groups = connect(&args.broker)?.list_groups(&filter)?;
    let lines: Vec<GroupLine> = groups
        .into_iter()
        .map(|group| GroupLine {
            name: group.name,
            r#type: told(group.kind),
            state: told(group.state),
            protocol_type: group.protocol_type,
        })
        .collect();
    if args.json {
        return Ok(output::json(&lines)?);
    }
    let headings = [
        ("GROUP", Align::Left),
        ("TYPE", Align::Left),
        ("STATE", Align::Left),
        ("PROTOCOL", Align::Left),
    ];
    let row = |line: &GroupLine| {
        vec![
            line.name.clone(),
            output::or_dash(line.r#type.as_ref()),
            output::or_dash(line.state.as_ref()),
            line.protocol_type.clone(),
        ]
    };
    Ok(output::table(
        &headings,
        &lines.iter().map(row).collect::<Vec<_>>(),
    )?)
}

#[derive(Serialize)]
struct DeletedLine {
    name: String,
    deleted: bool,
    error: Option<String>,
}

/// Each group by itself: one that is refused keeps no other.
fn delete(args: &GroupDeleteArgs) -> Result<(), Failure> {
    let mut cluster = connect(&args.broker)?;
    let mut lines = Vec::new();
    let mut first_failure = None;
    for name in chosen(&mut cluster, &args.choice)? {
        let error = cluster.delete_group(&name).err().map(|e| refusal(&name, e));
        if error.is_none() && !args.json {
            output::line(&format!("deleted group {}", printable(&name)))?;
        }
        lines.push(DeletedLine {
            deleted: error.is_none(),
            error: error.as_ref().map(|failure| failure.message.clone()),
            name,
        });
        if let Some(failure) = error {
            match first_failure.take() {
                None => first_failure = Some(failure),
                Some(first) => first_failure = Some(joined(first, &failure)),
            }
        }
    }
    if args.json {
        output::json(&lines)?;
    }
    first_failure.map_or(Ok(()), Err)
}

fn joined(first: Failure, next: &Failure) -> Failure {
    let text = format!("{}\nthalweg: {}", first.message, next.message);
    Failure::new(first.exit, text)
}

/// What the coordinator says against a group, in words that say what to do.
fn refusal(group: &str, error: ClientError) -> Failure {
    match error.code() {
        Some(ErrorCode::NonEmptyGroup) => has_members(group),
        Some(ErrorCode::GroupIdNotFound) => Failure::new(
            Exit::NotFound,
            format!("group {} does not exist", printable(group)),
        ),
        Some(_) | None => Failure::from(error),
    }
}

fn has_members(group: &str) -> Failure {
    let text = format!(
        "group {name} has members, and its offsets are theirs: stop them and try again once `thalweg group \
         describe` says Empty. A static member that is away keeps its place until its session ends: `thalweg \
         group describe {name} --members` shows it, `thalweg group remove-members {name} --instance-id NAME` \
         ends it",
        name = printable(group)
    );
    Failure::new(Exit::Failed, text)
}

#[derive(Serialize)]
struct DeletedOffsetLine {
    topic: String,
    partition: i32,
    deleted: bool,
    error: Option<String>,
}

fn delete_offsets(args: &GroupDeleteOffsetsArgs) -> Result<(), Failure> {
    let mut cluster = connect(&args.broker)?;
    let group = &args.group;
    let committed = cluster.committed_offsets(group)?;
    let mut partitions: Vec<TopicPartition> = committed.into_keys().collect();
    partitions.retain(|of| is_chosen(&args.topics, of));
    if partitions.is_empty() {
        // Whether there is such a group at all.
        cluster
            .describe_group(group)
            .map_err(|e| refusal(group, e))?;
        let text = format!("group {group} has committed nothing there: nothing is deleted");
        return Err(Failure::new(Exit::NotFound, text));
    }
    let outcomes = cluster.delete_offsets(group, &partitions);
    let (mut lines, mut failures) = (Vec::new(), Vec::new());
    for ((topic, partition), outcome) in outcomes.map_err(|e| refusal(group, e))? {
        let error = outcome.err().map(|error| match error.code() {
            Some(ErrorCode::GroupSubscribedToTopic) => format!(
                "members of group {group} read {topic}: stop them, or have them leave the topic out"
            ),
            Some(_) | None => error.to_string(),
        });
        if !args.json && error.is_none() {
            let (group, topic) = (printable(group), printable(&topic));
            output::line(&format!("group {group} forgot {topic}-{partition}"))?;
        }
        if let Some(text) = error.as_ref().filter(|text| !failures.contains(*text)) {
            failures.push(text.clone());
        }
        lines.push(DeletedOffsetLine {
            topic,
            partition,
            deleted: error.is_none(),
            error,
        });
    }
    if args.json {
        output::json(&lines)?;
    }
    ends::told(&failures)
}
