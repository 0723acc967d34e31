//! `thalweg group describe`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use thalweg_client::{
    Cluster, CommittedOffset, DescribedGroup, FoundOffset, GroupMember, OffsetSpec, Topic,
};

use super::{TopicPartition, chosen, refusal};
use crate::args::GroupDescribeArgs;
use crate::broker_http::{BrokerHttp, segment};
use crate::ends::{known_offsets, told};
use crate::exit::{Failure, connect};
use crate::output::{self, Align, or_dash, printable};

#[derive(Serialize)]
struct Description {
    name: String,
    state: String,
    r#type: &'static str,
    protocol_type: String,
    assignor: Option<String>,
    coordinator: CoordinatorLine,
    /// Null in the classic protocol.
    group_epoch: Option<i32>,
    /// Null in the classic protocol.
    assignment_epoch: Option<i32>,
    members: Vec<MemberLine>,
    /// Null unless offsets were asked for.
    offsets: Option<Vec<OffsetLine>>,
}

#[derive(Serialize)]
struct CoordinatorLine {
    id: i32,
    address: String,
}

#[derive(Serialize)]
struct MemberLine {
    member_id: String,
    instance_id: Option<String>,
    client_id: String,
    host: String,
    epoch: Option<i32>,
    /// A static member that is not there; null in the classic protocol.
    away: Option<bool>,
    topics: Vec<String>,
    topic_regex: Option<String>,
    assignment: Vec<ShareLine>,
    target: Option<Vec<ShareLine>>,
}

#[derive(Serialize)]
struct ShareLine {
    topic: String,
    partitions: Vec<i32>,
}

#[derive(Serialize)]
struct OffsetLine {
    topic: String,
    partition: i32,
    committed_offset: Option<i64>,
    committed_leader_epoch: Option<i32>,
    metadata: Option<String>,
    start_offset: Option<i64>,
    end_offset: Option<i64>,
    /// Records that are not read; null when one of the ends is not known.
    lag: Option<i64>,
    /// The next four only a Thalweg broker tells.
    lag_stable: Option<i64>,
    lag_bytes: Option<u64>,
    lag_seconds: Option<f64>,
    removal_seconds: Option<f64>,
    member_id: Option<String>,
    client_id: Option<String>,
    host: Option<String>,
}

/// Begin and end of partitions, asked for once per topic.
struct Ends {
    topics: BTreeMap<String, Topic>,
    known: BTreeMap<String, [BTreeMap<i32, FoundOffset>; 2]>,
    failures: Vec<String>,
}

impl Ends {
    fn of(
        &mut self,
        cluster: &mut Cluster,
        (topic, partition): &TopicPartition,
    ) -> Result<[Option<i64>; 2], Failure> {
        if !self.known.contains_key(topic) {
            let found = match self.topics.get(topic) {
                None => Default::default(), // deleted since
                Some(topic) => {
                    let mut ask = |spec| known_offsets(cluster, topic, spec, &mut self.failures);
                    [ask(OffsetSpec::Earliest)?, ask(OffsetSpec::Latest)?]
                }
            };
            self.known.insert(topic.clone(), found);
        }
        let offset = |of: &BTreeMap<i32, FoundOffset>| of.get(partition).and_then(|f| f.offset);
        let known = self
            .known
            .get(topic)
            .map(|ends| ends.each_ref().map(offset));
        Ok(known.unwrap_or_default())
    }
}

pub(super) fn run(args: &GroupDescribeArgs) -> Result<(), Failure> {
    let mut cluster = connect(&args.broker)?;
    let names = chosen(&mut cluster, &args.choice)?;
    let wants_offsets = !args.members && !args.state;
    let topics = match wants_offsets {
        true => cluster.list_topics()?,
        false => Vec::new(),
    };
    let mut ends = Ends {
        topics: topics.into_iter().map(|t| (t.name.clone(), t)).collect(),
        known: BTreeMap::new(),
        failures: Vec::new(),
    };
    let http = BrokerHttp::of(&args.http, &args.broker, cluster.cluster_id());
    let mut described = Vec::new();
    for name in &names {
        let group = cluster.describe_group(name);
        let group = group.map_err(|error| refusal(name, error))?;
        let offsets = match wants_offsets {
            true => {
                let committed = cluster.committed_offsets(name)?;
                let mut lines = offset_lines(&mut cluster, &mut ends, &group, &committed)?;
                add_broker_lag(&mut lines, name, &http)?;
                Some(lines)
            }
            false => None,
        };
        described.push(description(group, offsets));
    }
    if args.json {
        output::json(&described)?;
    } else {
        for (at, group) in described.iter().enumerate() {
            if at > 0 {
                output::line("")?;
            }
            print(group, args)?;
        }
    }
    told(&ends.failures)
}

/// Lag as a broker tells it over HTTP.
#[derive(Deserialize)]
struct BrokerLag {
    partitions: Vec<BrokerLagLine>,
}

#[derive(Deserialize)]
struct BrokerLagLine {
    topic: String,
    partition: i32,
    /// Brokers of before do not tell.
    stable_records: Option<i64>,
    bytes: Option<u64>,
    seconds: Option<f64>,
    removal_seconds: Option<f64>,
}

/// Adds what only the broker knows. It looks a moment later: lag that has gone meanwhile is gone.
fn add_broker_lag(lines: &mut [OffsetLine], group: &str, http: &BrokerHttp) -> Result<(), Failure> {
    let path = format!("/groups/{}/lag", segment(group));
    let Some(found) = http.find::<BrokerLag>(&path, "lag in bytes and seconds")? else {
        return Ok(());
    };
    let found = found.partitions.into_iter();
    let mut found: BTreeMap<TopicPartition, BrokerLagLine> = found
        .map(|lag| ((lag.topic.clone(), lag.partition), lag))
        .collect();
    for line in lines {
        if let Some(lag) = found.remove(&(line.topic.clone(), line.partition)) {
            line.lag_stable = lag.stable_records;
            line.lag_bytes = lag.bytes;
            line.lag_seconds = lag.seconds;
            line.removal_seconds = lag.removal_seconds;
        }
    }
    Ok(())
}

/// A line for each partition that is committed for or read.
fn offset_lines(
    cluster: &mut Cluster,
    ends: &mut Ends,
    group: &DescribedGroup,
    committed: &BTreeMap<TopicPartition, CommittedOffset>,
) -> Result<Vec<OffsetLine>, Failure> {
    let mut partitions: BTreeMap<&TopicPartition, Option<&GroupMember>> =
        committed.keys().map(|of| (of, None)).collect();
    for member in &group.members {
        partitions.extend(member.assignment.iter().map(|of| (of, Some(member))));
    }
    let mut lines = Vec::new();
    for (of, member) in partitions {
        let [start_offset, end_offset] = ends.of(cluster, of)?;
        let known = committed.get(of);
        let committed_offset = known.map(|c| c.offset);
        lines.push(OffsetLine {
            topic: of.0.clone(),
            partition: of.1,
            committed_offset,
            committed_leader_epoch: known.and_then(|c| c.leader_epoch),
            metadata: known.map(|c| c.metadata.clone()),
            start_offset,
            end_offset,
            lag: lag(committed_offset, end_offset),
            lag_stable: None,
            lag_bytes: None,
            lag_seconds: None,
            removal_seconds: None,
            member_id: member.map(|m| m.member_id.clone()),
            client_id: member.map(|m| m.client_id.clone()),
            host: member.map(|m| m.host.clone()),
        });
    }
    Ok(lines)
}

/// An offset beyond the end is that of a log that lost its tail, and no reason for a negative number.
fn lag(committed: Option<i64>, end: Option<i64>) -> Option<i64> {
    Some(end?.saturating_sub(committed?).max(0))
}

fn description(group: DescribedGroup, offsets: Option<Vec<OffsetLine>>) -> Description {
    Description {
        name: group.name,
        state: group.state,
        r#type: group.kind.name(),
        protocol_type: group.protocol_type,
        assignor: Some(group.assignor).filter(|name| !name.is_empty()),
        coordinator: CoordinatorLine {
            id: group.coordinator.id,
            address: group.coordinator.address(),
        },
        group_epoch: group.epochs.map(|(group, _)| group),
        assignment_epoch: group.epochs.map(|(_, assignment)| assignment),
        members: group.members.into_iter().map(member_line).collect(),
        offsets,
    }
}

fn member_line(member: GroupMember) -> MemberLine {
    MemberLine {
        away: member.is_away(),
        member_id: member.member_id,
        instance_id: member.instance_id,
        client_id: member.client_id,
        host: member.host,
        epoch: member.epoch,
        topics: member.topics,
        topic_regex: member.topic_regex,
        assignment: share(member.assignment),
        target: member.target.map(share),
    }
}

fn share(partitions: Vec<TopicPartition>) -> Vec<ShareLine> {
    let mut by_topic: BTreeMap<String, Vec<i32>> = BTreeMap::new();
    for (topic, partition) in partitions {
        by_topic.entry(topic).or_default().push(partition);
    }
    let line = |(topic, mut partitions): (String, Vec<i32>)| {
        partitions.sort_unstable();
        ShareLine { topic, partitions }
    };
    by_topic.into_iter().map(line).collect()
}

fn print(group: &Description, args: &GroupDescribeArgs) -> Result<(), Failure> {
    let mut head = format!(
        "Group {}  state {}  type {}  members {}  coordinator {} ({})",
        printable(&group.name),
        group.state,
        group.r#type,
        group.members.len(),
        group.coordinator.id,
        group.coordinator.address,
    );
    if let Some(assignor) = &group.assignor {
        head.push_str(&format!("  assignor {}", printable(assignor)));
    }
    if let (Some(epoch), Some(assignment)) = (group.group_epoch, group.assignment_epoch) {
        head.push_str(&format!("  epoch {epoch}  assignment epoch {assignment}"));
    }
    output::line(&head)?;
    if args.members {
        return print_members(&group.members);
    }
    group.offsets.as_deref().map_or(Ok(()), print_offsets)
}

fn print_members(members: &[MemberLine]) -> Result<(), Failure> {
    let headings = [
        ("MEMBER", Align::Left),
        ("INSTANCE", Align::Left),
        ("CLIENT", Align::Left),
        ("HOST", Align::Left),
        ("EPOCH", Align::Right),
        ("PARTITIONS", Align::Right),
        ("READS", Align::Left),
    ];
    let row = |m: &MemberLine| {
        let count: usize = m.assignment.iter().map(|s| s.partitions.len()).sum();
        let shares = m.assignment.iter().map(|s| {
            let numbers: Vec<String> = s.partitions.iter().map(i32::to_string).collect();
            format!("{}:{}", s.topic, numbers.join(","))
        });
        vec![
            m.member_id.clone(),
            or_dash(m.instance_id.as_ref()),
            m.client_id.clone(),
            m.host.clone(),
            match m.away {
                Some(true) => "away".to_owned(),
                Some(false) | None => or_dash(m.epoch),
            },
            count.to_string(),
            or_dash(Some(shares.collect::<Vec<_>>().join(" ")).filter(|text| !text.is_empty())),
        ]
    };
    Ok(output::table(
        &headings,
        &members.iter().map(row).collect::<Vec<_>>(),
    )?)
}

fn print_offsets(offsets: &[OffsetLine]) -> Result<(), Failure> {
    let headings = [
        ("TOPIC", Align::Left),
        ("PARTITION", Align::Right),
        ("COMMITTED", Align::Right),
        ("END", Align::Right),
        ("LAG", Align::Right),
        ("BYTES", Align::Right),
        ("BEHIND", Align::Right),
        ("REMOVED IN", Align::Right),
        ("CLIENT", Align::Left),
        ("HOST", Align::Left),
        ("MEMBER", Align::Left),
    ];
    let row = |o: &OffsetLine| {
        vec![
            o.topic.clone(),
            o.partition.to_string(),
            or_dash(o.committed_offset),
            or_dash(o.end_offset),
            or_dash(o.lag),
            or_dash(o.lag_bytes),
            or_dash(o.lag_seconds.map(span)),
            or_dash(o.removal_seconds.map(span)),
            or_dash(o.client_id.as_ref()),
            or_dash(o.host.as_ref()),
            or_dash(o.member_id.as_ref()),
        ]
    };
    Ok(output::table(
        &headings,
        &offsets.iter().map(row).collect::<Vec<_>>(),
    )?)
}

/// Seconds for people: in the largest unit of which there are two.
fn span(seconds: f64) -> String {
    let units = [(86_400.0, "d"), (3_600.0, "h"), (60.0, "m")];
    match units.iter().find(|(size, _)| seconds >= 2.0 * size) {
        Some((size, unit)) => format!("{:.0}{unit}", (seconds / size).floor()),
        None if seconds >= 10.0 => format!("{seconds:.0}s"),
        None => format!("{seconds:.1}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::{lag, span};

    #[test]
    fn spans_for_people() {
        let told = [0.0, 0.25, 59.6, 119.0, 120.0, 7_200.0, 600_000.0].map(span);
        assert_eq!(told, ["0.0s", "0.2s", "60s", "119s", "2m", "2h", "6d"]);
    }

    #[test]
    fn lag_needs_both_ends_and_is_never_negative() {
        assert_eq!(lag(Some(3), Some(10)), Some(7));
        assert_eq!(lag(Some(12), Some(10)), Some(0));
        assert_eq!(lag(None, Some(10)), None);
        assert_eq!(lag(Some(3), None), None);
    }
}
