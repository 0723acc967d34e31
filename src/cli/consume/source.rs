//! Where records come from: partitions that the command chose, or those that a group gave it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use thalweg_client::{
    Assignor, Cluster, Consumer, ConsumerOptions, Fetched, GroupConsumer, GroupOptions,
    GroupProtocol, Position,
};

use crate::args::{AssignorChoice, ConsumeArgs, ProtocolChoice};
use crate::exit::{Exit, Failure};
use crate::interrupt::Interrupt;

fn assignor(choice: &AssignorChoice) -> Assignor {
    match choice {
        AssignorChoice::Range => Assignor::Range,
        AssignorChoice::RoundRobin => Assignor::RoundRobin,
        AssignorChoice::Sticky => Assignor::Sticky,
        AssignorChoice::CooperativeSticky => Assignor::CooperativeSticky,
    }
}

/// `None` for the one that a member has by default.
fn protocol(args: &ConsumeArgs) -> Result<Option<GroupProtocol>, Failure> {
    let usage = |text: &str| Err(Failure::new(Exit::Usage, text));
    match (args.group_protocol, &args.group_remote_assignor) {
        (ProtocolChoice::Classic, Some(_)) => {
            usage("--group-remote-assignor needs --group-protocol consumer")
        }
        (ProtocolChoice::Consumer, _) if !args.assignor.is_empty() => usage(
            "--assignor is of the classic protocol; with --group-protocol consumer the coordinator shares \
             out: --group-remote-assignor says how",
        ),
        (ProtocolChoice::Consumer, _) if args.session_timeout.is_some() => usage(
            "--session-timeout is of the classic protocol; with --group-protocol consumer the group says it: \
             thalweg config alter group GROUP --set consumer.session.timeout.ms=MILLIS",
        ),
        (ProtocolChoice::Classic, None) if args.assignor.is_empty() => Ok(None),
        (ProtocolChoice::Classic, None) => {
            let assignors = args.assignor.iter().map(assignor).collect();
            Ok(Some(GroupProtocol::Classic { assignors }))
        }
        (ProtocolChoice::Consumer, remote_assignor) => Ok(Some(GroupProtocol::Consumer {
            remote_assignor: remote_assignor.clone(),
        })),
    }
}

pub(super) enum Source {
    Assigned {
        consumer: Box<Consumer>,
        partitions: Vec<i32>,
    },
    Member {
        consumer: Box<GroupConsumer>,
        interrupt: Interrupt,
    },
}

impl Source {
    pub(super) fn assigned(
        cluster: Cluster,
        topic: &str,
        positions: &BTreeMap<i32, Position>,
        options: ConsumerOptions,
    ) -> Result<Source, Failure> {
        let mut consumer = Box::new(Consumer::new(cluster, options));
        for (partition, position) in positions {
            consumer.assign(topic, *partition, *position)?;
        }
        let partitions = positions.keys().copied().collect();
        Ok(Source::Assigned {
            consumer,
            partitions,
        })
    }

    pub(super) fn member(
        cluster: Cluster,
        group: &str,
        args: &ConsumeArgs,
        options: ConsumerOptions,
    ) -> Result<Source, Failure> {
        let interrupt = Interrupt::watch()?;
        let mut group = GroupOptions::new(group, &args.topic);
        group.instance_id.clone_from(&args.group_instance_id);
        if let Some(millis) = args.session_timeout {
            group.session_timeout = Duration::from_millis(u64::from(millis));
        }
        // Some of them may get lost on the way.
        group.heartbeat_interval = group.heartbeat_interval.min(group.session_timeout / 10);
        if let Some(protocol) = protocol(args)? {
            group.protocol = protocol;
        }
        let consumer = Box::new(GroupConsumer::new(cluster, group, options)?);
        Ok(Source::Member {
            consumer,
            interrupt,
        })
    }

    pub(super) fn cluster(&mut self) -> &mut Cluster {
        match self {
            Source::Assigned { consumer, .. } => consumer.cluster(),
            Source::Member { consumer, .. } => consumer.cluster(),
        }
    }

    pub(super) fn poll(&mut self) -> Result<Vec<Fetched>, Failure> {
        Ok(match self {
            Source::Assigned { consumer, .. } => consumer.poll()?,
            Source::Member { consumer, .. } => consumer.poll()?,
        })
    }

    /// How often the partitions were chosen; 0 before the first time.
    pub(super) fn assignments(&self) -> u64 {
        match self {
            Source::Assigned { .. } => 1,
            Source::Member { consumer, .. } => consumer.assignments(),
        }
    }

    pub(super) fn partitions(&self) -> Vec<i32> {
        match self {
            Source::Assigned { partitions, .. } => partitions.clone(),
            Source::Member { consumer, .. } => {
                consumer.assigned().iter().map(|(_, p)| *p).collect()
            }
        }
    }

    /// Offset of the next record of a partition, `None` when it is no longer read.
    pub(super) fn position(&self, topic: &str, partition: i32) -> Option<i64> {
        match self {
            Source::Assigned { consumer, .. } => consumer.position(topic, partition),
            Source::Member { consumer, .. } => consumer.position(topic, partition),
        }
    }

    /// Partitions that are to be read and have no leader at the moment.
    pub(super) fn leaderless(&self) -> BTreeSet<i32> {
        let leaderless = match self {
            Source::Assigned { consumer, .. } => consumer.leaderless(),
            Source::Member { consumer, .. } => consumer.leaderless(),
        };
        leaderless.iter().map(|(_, partition)| *partition).collect()
    }

    /// Everything before `next` is printed.
    pub(super) fn consumed(&mut self, topic: &str, partition: i32, next: i64) {
        match self {
            Source::Assigned { .. } => {}
            Source::Member { consumer, .. } => consumer.consumed(topic, partition, next),
        }
    }

    /// A partition is read to its end. A member keeps it: it is the group's to take away.
    pub(super) fn finish(&mut self, topic: &str, partition: i32) {
        match self {
            Source::Assigned { consumer, .. } => consumer.unassign(topic, partition),
            Source::Member { .. } => {}
        }
    }

    pub(super) fn is_interrupted(&self) -> bool {
        match self {
            Source::Assigned { .. } => false,
            Source::Member { interrupt, .. } => interrupt.has_come(),
        }
    }

    /// Commits and leaves the group, if there is one.
    pub(super) fn leave(&mut self) -> Result<(), Failure> {
        match self {
            Source::Assigned { .. } => Ok(()),
            Source::Member { consumer, .. } => Ok(consumer.leave()?),
        }
    }
}
