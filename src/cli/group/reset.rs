//! `thalweg group reset-offsets`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Read};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;
use thalweg_client::{Cluster, MissingTopic, OffsetSpec};
use thalweg_protocol::ErrorCode;

use super::{TopicPartition, chosen, has_members, plan_file};
use crate::args::{GroupResetArgs, ResetToArgs, TopicChoice};
use crate::ends::told;
use crate::exit::{Exit, Failure, connect};
use crate::output::{self, Align, or_dash};

/// A larger file of offsets is taken for a wrong path.
const PLAN_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Where offsets go. Each but `Earliest` and `Latest` ends within what the log has.
enum Target {
    Earliest,
    Latest,
    /// What is committed, or else the end.
    Current,
    Offset(i64),
    Shift(i64),
    /// The first record of this time or later, in milliseconds since 1970.
    Time(i64),
    /// By group (`None`: any) and partition.
    File(BTreeMap<(Option<String>, TopicPartition), i64>),
}

#[derive(Serialize)]
struct Report {
    executed: bool,
    offsets: Vec<Move>,
}

/// One offset and where it goes.
#[derive(Serialize)]
struct Move {
    group: String,
    topic: String,
    partition: i32,
    current_offset: Option<i64>,
    new_offset: i64,
    /// Null when it was done, or only shown.
    error: Option<String>,
}

pub(super) fn run(args: &GroupResetArgs) -> Result<(), Failure> {
    let target = target(&args.to)?;
    let mut cluster = connect(&args.broker)?;
    let groups = chosen(&mut cluster, &args.choice)?;
    // All are looked at before the first is touched.
    for group in &groups {
        refuse_live(&mut cluster, group)?;
    }
    let mut moves = Vec::new();
    for group in &groups {
        plan(&mut cluster, group, args, &target, &mut moves)?;
    }
    if moves.is_empty() {
        let text = "no partition fits: nothing is reset. --all-topics means those for which the group \
                    has committed something; name others with --topic";
        return Err(Failure::new(Exit::NotFound, text));
    }
    let mut failures = Vec::new();
    if args.execute {
        for group in &groups {
            execute(&mut cluster, group, &mut moves, &mut failures)?;
        }
    }
    print(args, moves, &groups)?;
    told(&failures)
}

fn target(to: &ResetToArgs) -> Result<Target, Failure> {
    let given = [
        to.to_earliest.then_some(Target::Earliest),
        to.to_latest.then_some(Target::Latest),
        to.to_current.then_some(Target::Current),
        to.to_offset.map(Target::Offset),
        to.shift_by.map(Target::Shift),
        to.to_datetime.map(Target::Time),
        to.by_duration
            .map(|span| Target::Time(now_ms().saturating_sub(span).max(0))),
    ];
    if let Some(target) = given.into_iter().flatten().next() {
        return Ok(target);
    }
    let path = to
        .from_file
        .as_deref()
        .ok_or_else(|| Failure::new(Exit::Usage, "say where to, for example --to-earliest"))?;
    let planned = plan_file::parse(&read_plan(path)?)
        .map_err(|text| Failure::new(Exit::Usage, format!("{}: {text}", path.display())))?;
    let planned = planned.into_iter().map(|p| ((p.group, p.of), p.offset));
    Ok(Target::File(planned.collect()))
}

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
    })
}

fn read_plan(path: &Path) -> Result<String, Failure> {
    let is_stdin = path == Path::new("-");
    let opened: io::Result<Box<dyn Read>> = match is_stdin {
        true => Ok(Box::new(io::stdin())),
        false => fs::File::open(path).map(|file| Box::new(file) as Box<dyn Read>),
    };
    let mut text = String::new();
    let read = opened.and_then(|file| file.take(PLAN_BYTES_MAX + 1).read_to_string(&mut text));
    let failed = |error: io::Error| {
        let exit = match error.kind() {
            io::ErrorKind::NotFound => Exit::NotFound,
            _other => Exit::Failed,
        };
        Failure::new(exit, format!("cannot read {}: {error}", path.display()))
    };
    if read.map_err(failed)? as u64 > PLAN_BYTES_MAX {
        let text = format!("{} is too large for a list of offsets", path.display());
        return Err(Failure::new(Exit::Usage, text));
    }
    Ok(text)
}

/// The offsets of a group with members are theirs. A group that does not exist yet is none of those.
fn refuse_live(cluster: &mut Cluster, group: &str) -> Result<(), Failure> {
    match cluster.describe_group(group) {
        Ok(described) if described.members.is_empty() && described.state == "Empty" => Ok(()),
        Ok(_) => Err(has_members(group)),
        Err(error) if error.code() == Some(ErrorCode::GroupIdNotFound) => Ok(()),
        Err(error) => Err(Failure::from(error)),
    }
}

/// Adds the moves of one group.
fn plan(
    cluster: &mut Cluster,
    group: &str,
    args: &GroupResetArgs,
    target: &Target,
    moves: &mut Vec<Move>,
) -> Result<(), Failure> {
    let committed = cluster.committed_offsets(group)?;
    let current: BTreeMap<TopicPartition, i64> = committed
        .into_iter()
        .map(|(of, found)| (of, found.offset))
        .collect();
    let partitions: BTreeSet<TopicPartition> = match target {
        Target::File(planned) => {
            let of_group = |name: &Option<String>| name.as_deref().is_none_or(|n| n == group);
            let rows = planned.keys().filter(|(name, _)| of_group(name));
            rows.map(|(_, of)| of.clone()).collect()
        }
        Target::Earliest
        | Target::Latest
        | Target::Current
        | Target::Offset(_)
        | Target::Shift(_)
        | Target::Time(_) => match args.all_topics {
            true => current.keys().cloned().collect(),
            false => named(cluster, &args.topics)?,
        },
    };
    let mut by_topic: BTreeMap<String, Vec<i32>> = BTreeMap::new();
    for (topic, partition) in partitions {
        by_topic.entry(topic).or_default().push(partition);
    }
    for (topic, partitions) in by_topic {
        plan_topic(cluster, group, &topic, &partitions, target, &current, moves)?;
    }
    Ok(())
}

/// The partitions that the command line names.
fn named(
    cluster: &mut Cluster,
    choices: &[TopicChoice],
) -> Result<BTreeSet<TopicPartition>, Failure> {
    let mut partitions = BTreeSet::new();
    for choice in choices {
        let topic = cluster.topic(&choice.name, MissingTopic::Refuse)?;
        let known: Vec<i32> = topic.partitions.iter().map(|p| p.index).collect();
        if let Some(missing) = choice.partitions.iter().find(|p| !known.contains(p)) {
            let text = format!("topic {} has no partition {missing}", choice.name);
            return Err(Failure::new(Exit::NotFound, text));
        }
        let chosen = match choice.partitions.is_empty() {
            true => known,
            false => choice.partitions.clone(),
        };
        partitions.extend(chosen.into_iter().map(|p| (choice.name.clone(), p)));
    }
    Ok(partitions)
}

fn plan_topic(
    cluster: &mut Cluster,
    group: &str,
    topic: &str,
    partitions: &[i32],
    target: &Target,
    current: &BTreeMap<TopicPartition, i64>,
    moves: &mut Vec<Move>,
) -> Result<(), Failure> {
    let starts = cluster.offsets(topic, partitions, OffsetSpec::Earliest)?;
    let ends = cluster.offsets(topic, partitions, OffsetSpec::Latest)?;
    let by_time = match target {
        Target::Time(ms) => cluster.offsets(topic, partitions, OffsetSpec::Timestamp(*ms))?,
        Target::Earliest
        | Target::Latest
        | Target::Current
        | Target::Offset(_)
        | Target::Shift(_)
        | Target::File(_) => BTreeMap::new(),
    };
    for partition in partitions {
        let of = (topic.to_owned(), *partition);
        let offset = |found: &BTreeMap<i32, thalweg_client::FoundOffset>| {
            found.get(partition).and_then(|f| f.offset)
        };
        let (start, end) = (offset(&starts).unwrap_or(0), offset(&ends).unwrap_or(0));
        let committed = current.get(&of).copied();
        let wanted = match target {
            Target::Earliest => start,
            Target::Latest => end,
            Target::Current => committed.unwrap_or(end),
            Target::Offset(offset) => *offset,
            Target::Shift(by) => {
                let from = committed.ok_or_else(|| nothing_to_shift(group, &of))?;
                from.saturating_add(*by)
            }
            // Nothing is so young: behind the last record.
            Target::Time(_) => offset(&by_time).unwrap_or(end),
            Target::File(planned) => {
                let own = planned.get(&(Some(group.to_owned()), of.clone()));
                let any = || planned.get(&(None, of.clone()));
                own.or_else(any).copied().or(committed).unwrap_or(end)
            }
        };
        let (topic, partition) = of;
        moves.push(Move {
            group: group.to_owned(),
            topic,
            partition,
            current_offset: committed,
            new_offset: within(wanted, start, end),
            error: None,
        });
    }
    Ok(())
}

/// The nearest offset that the log has, its end included.
fn within(wanted: i64, start: i64, end: i64) -> i64 {
    wanted.min(end).max(start)
}

fn nothing_to_shift(group: &str, (topic, partition): &TopicPartition) -> Failure {
    let text = format!(
        "group {group} has no committed offset for {topic}-{partition} that could be shifted: leave the \
         partition out, or use --to-offset"
    );
    Failure::new(Exit::Failed, text)
}

fn execute(
    cluster: &mut Cluster,
    group: &str,
    moves: &mut [Move],
    failures: &mut Vec<String>,
) -> Result<(), Failure> {
    let of_group = moves.iter().filter(|m| m.group == group);
    let offsets: BTreeMap<TopicPartition, i64> = of_group
        .map(|m| ((m.topic.clone(), m.partition), m.new_offset))
        .collect();
    if offsets.is_empty() {
        return Ok(());
    }
    let mut outcomes = cluster.commit_offsets(group, &offsets)?;
    for one in moves.iter_mut().filter(|m| m.group == group) {
        let outcome = outcomes.remove(&(one.topic.clone(), one.partition));
        let error = match outcome {
            Some(Ok(())) => None,
            // A member joined since it was looked at.
            Some(Err(error)) if error.code() == Some(ErrorCode::UnknownMemberId) => {
                Some(has_members(group).message)
            }
            Some(Err(error)) => Some(error.to_string()),
            None => Some(format!(
                "the broker does not mention {}-{}",
                one.topic, one.partition
            )),
        };
        if let Some(text) = error.as_ref().filter(|text| !failures.contains(*text)) {
            failures.push(text.clone());
        }
        one.error = error;
    }
    Ok(())
}

fn print(args: &GroupResetArgs, moves: Vec<Move>, groups: &[String]) -> Result<(), Failure> {
    let executed = args.execute;
    if args.json {
        let offsets = moves;
        return Ok(output::json(&Report { executed, offsets })?);
    }
    if args.export {
        for one in &moves {
            let group = (groups.len() > 1).then_some(one.group.as_str());
            let of = (one.topic.clone(), one.partition);
            output::line(&plan_file::line(group, &of, one.new_offset))?;
        }
    } else {
        print_table(&moves)?;
    }
    if !executed {
        eprintln!("thalweg: nothing was changed; add --execute to do it");
    }
    Ok(())
}

fn print_table(moves: &[Move]) -> Result<(), Failure> {
    let headings = [
        ("GROUP", Align::Left),
        ("TOPIC", Align::Left),
        ("PARTITION", Align::Right),
        ("CURRENT", Align::Right),
        ("NEW", Align::Right),
        ("", Align::Left),
    ];
    let row = |m: &Move| {
        let refused = m.error.as_ref().map_or("", |_| "refused");
        vec![
            m.group.clone(),
            m.topic.clone(),
            m.partition.to_string(),
            or_dash(m.current_offset),
            m.new_offset.to_string(),
            refused.to_owned(),
        ]
    };
    Ok(output::table(
        &headings,
        &moves.iter().map(row).collect::<Vec<_>>(),
    )?)
}

#[cfg(test)]
mod tests {
    use super::within;

    #[test]
    fn offsets_stay_within_the_log() {
        assert_eq!(within(7, 5, 10), 7);
        assert_eq!(within(3, 5, 10), 5);
        assert_eq!(within(11, 5, 10), 10);
        assert_eq!(within(i64::MAX, 0, 0), 0);
    }
}
