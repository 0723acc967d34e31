//! `thalweg topic`: create, list, describe, alter, delete.

use std::collections::BTreeMap;

use serde::Serialize;
use thalweg_client::{
    Change, Cluster, ConfigChange, ConfigOwner, FoundOffset, NewTopic, OffsetSpec, Partition, Topic,
};

use crate::args::{
    TopicAlterArgs, TopicCommand, TopicCreateArgs, TopicDeleteArgs, TopicDescribeArgs,
    TopicListArgs,
};
use crate::config::check_set;
use crate::ends::{known_offsets, told};
use crate::exit::{Exit, Failure, connect};
use crate::output::{self, Align, or_dash};

/// Runs one subcommand of `thalweg topic`.
pub(crate) fn run(command: TopicCommand) -> Result<(), Failure> {
    match command {
        TopicCommand::Create(args) => create(&args),
        TopicCommand::List(args) => list(&args),
        TopicCommand::Describe(args) => describe(&args),
        TopicCommand::Alter(args) => alter(&args),
        TopicCommand::Delete(args) => delete(&args),
    }
}

#[derive(Serialize)]
struct CreatedLine {
    name: String,
    id: Option<String>,
    partitions: Option<i32>,
    replication_factor: Option<i16>,
    created: bool,
}

fn create(args: &TopicCreateArgs) -> Result<(), Failure> {
    let mut cluster = connect(&args.broker)?;
    let outcome = cluster.create_topic(&NewTopic {
        name: args.name.clone(),
        partitions: args.partitions,
        replication_factor: args.replication_factor,
        configs: args
            .configs
            .iter()
            .map(|p| (p.key.clone(), p.value.clone()))
            .collect(),
    });
    let name = args.name.clone();
    let line = match outcome.map_err(Failure::from) {
        Ok(topic) => CreatedLine {
            name,
            id: (!topic.id.is_zero()).then(|| topic.id.to_string()),
            partitions: (topic.partitions >= 0).then_some(topic.partitions),
            replication_factor: (topic.replication_factor >= 0).then_some(topic.replication_factor),
            created: true,
        },
        Err(failure) if failure.exit == Exit::AlreadyExists && args.if_not_exists => CreatedLine {
            name,
            id: None,
            partitions: None,
            replication_factor: None,
            created: false,
        },
        Err(failure) => return Err(failure),
    };
    if args.json {
        return Ok(output::json(&line)?);
    }
    let text = match (line.created, line.partitions) {
        (false, _) => format!("topic {} exists already", line.name),
        (true, Some(1)) => format!("created topic {} with 1 partition", line.name),
        (true, Some(n)) => format!("created topic {} with {n} partitions", line.name),
        (true, None) => format!("created topic {}", line.name),
    };
    Ok(output::line(&text)?)
}

#[derive(Serialize)]
struct TopicLine {
    name: String,
    id: String,
    internal: bool,
    partitions: usize,
    replication_factor: usize,
}

fn list(args: &TopicListArgs) -> Result<(), Failure> {
    let mut cluster = connect(&args.broker)?;
    let topics = cluster.list_topics()?;
    let lines: Vec<TopicLine> = topics
        .into_iter()
        .filter(|t| args.internal || !t.is_internal)
        .map(|t| TopicLine {
            id: t.id.to_string(),
            internal: t.is_internal,
            partitions: t.partitions.len(),
            replication_factor: t.partitions.first().map_or(0, |p| p.replicas.len()),
            name: t.name,
        })
        .collect();
    if args.json {
        return Ok(output::json(&lines)?);
    }
    let headings = [
        ("TOPIC", Align::Left),
        ("PARTITIONS", Align::Right),
        ("REPLICAS", Align::Right),
        ("ID", Align::Left),
    ];
    let row = |t: &TopicLine| {
        vec![
            t.name.clone(),
            t.partitions.to_string(),
            t.replication_factor.to_string(),
            t.id.clone(),
        ]
    };
    Ok(output::table(
        &headings,
        &lines.iter().map(row).collect::<Vec<_>>(),
    )?)
}

#[derive(Serialize)]
struct TopicDescription {
    name: String,
    id: String,
    internal: bool,
    partitions: Vec<PartitionLine>,
}

#[derive(Serialize)]
struct PartitionLine {
    partition: i32,
    /// Broker id; null when there is none.
    leader: Option<i32>,
    leader_epoch: i32,
    replicas: Vec<i32>,
    isr: Vec<i32>,
    offline: Vec<i32>,
    start_offset: Option<i64>,
    end_offset: Option<i64>,
    /// Null from brokers that have no fixed core per partition.
    core: Option<i32>,
}

fn describe(args: &TopicDescribeArgs) -> Result<(), Failure> {
    let mut cluster = connect(&args.broker)?;
    let topics = cluster.list_topics()?;
    let known = |name: &String| topics.iter().any(|t| t.name == *name);
    if let Some(missing) = args.names.iter().find(|name| !known(name)) {
        return Err(Failure::new(
            Exit::NotFound,
            format!("topic {missing} does not exist"),
        ));
    }
    let (mut described, mut failures) = (Vec::new(), Vec::new());
    for topic in &topics {
        let wanted = if args.names.is_empty() {
            !topic.is_internal
        } else {
            args.names.contains(&topic.name)
        };
        if wanted {
            described.push(describe_one(&mut cluster, topic, &mut failures)?);
        }
    }
    if args.json {
        output::json(&described)?;
    } else {
        print_descriptions(&described)?;
    }
    told(&failures)
}

fn describe_one(
    cluster: &mut Cluster,
    topic: &Topic,
    failures: &mut Vec<String>,
) -> Result<TopicDescription, Failure> {
    let mut known = |spec| known_offsets(cluster, topic, spec, failures);
    let (starts, ends) = (known(OffsetSpec::Earliest)?, known(OffsetSpec::Latest)?);
    let leaderless = topic.partitions.iter().filter(|p| p.leader < 0);
    failures.extend(leaderless.map(|p| format!("{}-{} has no leader", topic.name, p.index)));
    let lines = topic.partitions.iter();
    let partitions = lines.map(|p| partition_line(p, &starts, &ends)).collect();
    let (name, id) = (topic.name.clone(), topic.id.to_string());
    Ok(TopicDescription {
        name,
        id,
        internal: topic.is_internal,
        partitions,
    })
}

fn partition_line(
    p: &Partition,
    starts: &BTreeMap<i32, FoundOffset>,
    ends: &BTreeMap<i32, FoundOffset>,
) -> PartitionLine {
    PartitionLine {
        partition: p.index,
        leader: (p.leader >= 0).then_some(p.leader),
        leader_epoch: p.leader_epoch,
        replicas: p.replicas.clone(),
        isr: p.isr.clone(),
        offline: p.offline.clone(),
        start_offset: starts.get(&p.index).and_then(|f| f.offset),
        end_offset: ends.get(&p.index).and_then(|f| f.offset),
        core: p.core,
    }
}

fn print_descriptions(topics: &[TopicDescription]) -> Result<(), Failure> {
    for (i, topic) in topics.iter().enumerate() {
        if i > 0 {
            output::line("")?;
        }
        print_description(topic)?;
    }
    Ok(())
}

fn print_description(topic: &TopicDescription) -> Result<(), Failure> {
    let count = topic.partitions.len();
    output::line(&format!(
        "Topic {}  id {}  partitions {count}",
        topic.name, topic.id
    ))?;
    let headings = [
        ("PARTITION", Align::Right),
        ("LEADER", Align::Right),
        ("EPOCH", Align::Right),
        ("REPLICAS", Align::Left),
        ("ISR", Align::Left),
        ("START", Align::Right),
        ("END", Align::Right),
        ("CORE", Align::Right),
    ];
    let row = |p: &PartitionLine| {
        vec![
            p.partition.to_string(),
            or_dash(p.leader),
            p.leader_epoch.to_string(),
            joined(&p.replicas),
            joined(&p.isr),
            or_dash(p.start_offset),
            or_dash(p.end_offset),
            or_dash(p.core),
        ]
    };
    Ok(output::table(
        &headings,
        &topic.partitions.iter().map(row).collect::<Vec<_>>(),
    )?)
}

fn joined(ids: &[i32]) -> String {
    ids.iter().map(i32::to_string).collect::<Vec<_>>().join(",")
}

#[derive(Serialize)]
struct AlteredLine {
    name: String,
    partitions: Option<i32>,
    configs: usize,
}

/// Settings first: they are refused as a whole, and nothing has happened then.
fn alter(args: &TopicAlterArgs) -> Result<(), Failure> {
    let set = args.configs.iter();
    let set = set.map(|p| ConfigChange::Set(p.key.clone(), p.value.clone()));
    let delete = args.deleted_configs.iter().cloned();
    let changes: Vec<ConfigChange> = set.chain(delete.map(ConfigChange::Delete)).collect();
    if changes.is_empty() && args.partitions.is_none() {
        let text = "nothing to change: give --partitions, --config or --delete-config";
        return Err(Failure::new(Exit::Usage, text));
    }
    let mut cluster = connect(&args.broker)?;
    if !changes.is_empty() {
        let owner = ConfigOwner::Topic(args.name.clone());
        check_set(&mut cluster, &owner, &args.deleted_configs)?;
        cluster.alter_configs(&owner, &changes, Change::Make)?;
    }
    if let Some(count) = args.partitions {
        cluster.create_partitions(&args.name, count)?;
    }
    if args.json {
        return Ok(output::json(&AlteredLine {
            name: args.name.clone(),
            partitions: args.partitions,
            configs: changes.len(),
        })?);
    }
    Ok(output::line(&format!("altered topic {}", args.name))?)
}

#[derive(Serialize)]
struct DeletedLine {
    name: String,
    deleted: bool,
}

fn delete(args: &TopicDeleteArgs) -> Result<(), Failure> {
    let mut cluster = connect(&args.broker)?;
    let mut lines = Vec::new();
    for name in &args.names {
        let deleted = match cluster.delete_topic(name).map_err(Failure::from) {
            Ok(()) => true,
            Err(failure) if failure.exit == Exit::NotFound && args.if_exists => false,
            Err(failure) => return Err(failure),
        };
        if !args.json {
            let outcome = if deleted {
                "deleted topic"
            } else {
                "there is no topic"
            };
            output::line(&format!("{outcome} {name}"))?;
        }
        lines.push(DeletedLine {
            name: name.clone(),
            deleted,
        });
    }
    if args.json {
        Ok(output::json(&lines)?)
    } else {
        Ok(())
    }
}
