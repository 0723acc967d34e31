//! One group of many members: what it costs the broker until each has its share.

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use clap::ValueEnum;
use serde::Serialize;
use thalweg_client::{ConnectOptions, Connection};
use thalweg_protocol::ErrorCode;
use thalweg_protocol::Request;
use thalweg_protocol::messages::consumer_group_heartbeat_request::TopicPartitions;
use thalweg_protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use thalweg_protocol::messages::{
    ConsumerGroupHeartbeatRequest, HeartbeatRequest, JoinGroupResponse, SyncGroupRequest,
};
use thalweg_types::Uuid;

use super::{find_coordinator, join_request, refused};
use crate::cpu;
use crate::idle::allow_files;
use crate::stage;
use crate::target::{Target, TargetArgs};

const GROUP: &str = "bench-rebalance";
const TOPIC: &str = "bench-rebalance";
/// Bytes of each member's share in the classic protocol.
const SHARE_BYTES: usize = 60;
/// Rounds of heartbeats after which a group of the newer protocol has settled, or never will.
const ROUNDS_MAX: usize = 200;

/// Flags of `groups rebalance`.
#[derive(clap::Args, Clone, Debug)]
pub struct RebalanceOptions {
    /// What to look at.
    #[command(flatten)]
    pub target: TargetArgs,
    /// Members, each with a connection of its own
    #[arg(long, default_value_t = 1_000)]
    pub members: usize,
    /// How they share out
    #[arg(long, value_enum, default_value_t = Protocol::Classic)]
    pub protocol: Protocol,
}

/// Value of `--protocol`.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// Its leader shares out
    Classic,
    /// The coordinator shares out (KIP-848); as many partitions as members
    Consumer,
}

#[derive(Serialize)]
struct Report {
    members: usize,
    protocol: Protocol,
    /// From no member to all with their shares.
    first_cpu_seconds: f64,
    /// Once more with all of them; in the newer protocol because a tenth of them leaves.
    again_cpu_seconds: f64,
}

/// Measures and prints.
///
/// # Errors
/// When the broker does not start, or refuses.
pub fn run(options: &RebalanceOptions) -> Result<()> {
    allow_files(2 * options.members as u64)?;
    let mut target = options.target.clone();
    // Long enough for all members to come while the first one waits.
    target
        .properties
        .push("group.initial.rebalance.delay.ms=2000".to_owned());
    // Each change is shared out, which costs most, and no heartbeat is only one that waits for the next time.
    target
        .properties
        .push("group.consumer.assignment.interval.ms=0".to_owned());
    let target = Target::ready(&target)?;
    let pid = target
        .pid
        .context("whose CPU? give --broker-pid with --against")?;
    let address = target.address().to_string();
    let mut cluster = stage::cluster(&address)?;
    stage::create_topic(&mut cluster, TOPIC, options.members, &Default::default())?;
    let mut connections = Vec::new();
    for _ in 0..options.members {
        connections.push(Connection::connect(&address, &ConnectOptions::default())?);
    }
    find_coordinator(&mut connections[0], GROUP)?;
    let time = |work: &mut dyn FnMut() -> Result<()>| -> Result<f64> {
        let before = cpu::process_time(pid)?;
        work()?;
        Ok((cpu::process_time(pid)? - before).as_secs_f64())
    };
    let (first, again) = match options.protocol {
        Protocol::Classic => {
            let mut group = Classic::new(connections);
            let first = time(&mut || group.join_first())?;
            (first, time(&mut || group.join_again())?)
        }
        Protocol::Consumer => {
            let mut group = Newer::new(connections);
            let first = time(&mut || group.settle())?;
            (first, time(&mut || group.leave_some())?)
        }
    };
    let report = Report {
        members: options.members,
        protocol: options.protocol,
        first_cpu_seconds: first,
        again_cpu_seconds: again,
    };
    println!("{}", serde_json::to_string_pretty(&report)?);
    target.stop()
}

/// Sends on all connections, then takes an answer from each.
fn everybody<R: Request>(
    connections: &mut [Connection],
    mut request: impl FnMut(usize) -> R,
) -> Result<Vec<R::Response>> {
    let mut tickets = Vec::new();
    for (n, connection) in connections.iter_mut().enumerate() {
        tickets.push(connection.send(&request(n))?);
    }
    let mut answers = Vec::new();
    for (connection, ticket) in connections.iter_mut().zip(tickets) {
        answers.push(connection.receive(ticket)?);
    }
    Ok(answers)
}

struct Classic {
    connections: Vec<Connection>,
    ids: Vec<String>,
    generation: i32,
}

impl Classic {
    fn new(connections: Vec<Connection>) -> Classic {
        Classic {
            ids: Vec::new(),
            generation: 0,
            connections,
        }
    }

    fn join_first(&mut self) -> Result<()> {
        let named = everybody(&mut self.connections, |_| join_request(GROUP, "", TOPIC))?;
        for answer in &named {
            let code = ErrorCode::from_code(answer.error_code);
            ensure!(code == Some(ErrorCode::MemberIdRequired), "{code:?}");
        }
        self.ids = named.into_iter().map(|answer| answer.member_id).collect();
        let ids = &self.ids;
        let joined = everybody(&mut self.connections, |n| {
            join_request(GROUP, &ids[n], TOPIC)
        })?;
        self.share_out(&joined)
    }

    /// The leader begins; the others hear of it by their heartbeats.
    fn join_again(&mut self) -> Result<()> {
        let ids = &self.ids;
        let leader = self.connections.first_mut().context("members")?;
        let ticket = leader.send(&join_request(GROUP, &ids[0], TOPIC))?;
        let (_, others) = self.connections.split_at_mut(1);
        let generation_id = self.generation;
        let heard = everybody(others, |n| HeartbeatRequest {
            group_id: GROUP.to_owned(),
            generation_id,
            member_id: ids[n + 1].clone(),
            ..Default::default()
        })?;
        for answer in &heard {
            let code = ErrorCode::from_code(answer.error_code);
            ensure!(code == Some(ErrorCode::RebalanceInProgress), "{code:?}");
        }
        let mut joined = everybody(others, |n| join_request(GROUP, &ids[n + 1], TOPIC))?;
        joined.insert(0, self.connections[0].receive(ticket)?);
        self.share_out(&joined)
    }

    fn share_out(&mut self, joined: &[JoinGroupResponse]) -> Result<()> {
        for answer in joined {
            refused("JoinGroup", answer.error_code)?;
        }
        let all = joined
            .iter()
            .find(|answer| answer.leader == answer.member_id);
        let leader = all.context("nobody leads")?;
        ensure!(leader.members.len() == joined.len(), "some are not in it");
        // The first one leads from now on, so that it can begin the next round.
        let leads = self.ids.iter().position(|id| *id == leader.member_id);
        let leads = leads.context("a stranger leads")?;
        self.ids.swap(0, leads);
        self.connections.swap(0, leads);
        self.generation = leader.generation_id;
        let shares = leader
            .members
            .iter()
            .map(|member| SyncGroupRequestAssignment {
                member_id: member.member_id.clone(),
                assignment: Bytes::from_static(&[7; SHARE_BYTES]),
            });
        let mut shares: Vec<_> = shares.collect();
        let (ids, generation_id) = (&self.ids, self.generation);
        let synced = everybody(&mut self.connections, |n| SyncGroupRequest {
            group_id: GROUP.to_owned(),
            generation_id,
            member_id: ids[n].clone(),
            assignments: match n {
                0 => std::mem::take(&mut shares),
                _ => Vec::new(),
            },
            ..Default::default()
        })?;
        for answer in &synced {
            refused("SyncGroup", answer.error_code)?;
            ensure!(answer.assignment.len() == SHARE_BYTES, "a share is missing");
        }
        Ok(())
    }
}

struct Member {
    id: String,
    epoch: i32,
    owned: Vec<TopicPartitions>,
    /// Whether the coordinator has not heard of `owned` yet.
    is_news: bool,
}

struct Newer {
    connections: Vec<Connection>,
    members: Vec<Member>,
}

impl Newer {
    fn new(connections: Vec<Connection>) -> Newer {
        let member = |n: usize| Member {
            id: Uuid((n as u128 + 1).to_be_bytes()).to_string(),
            epoch: 0,
            owned: Vec::new(),
            is_news: true,
        };
        Newer {
            members: (0..connections.len()).map(member).collect(),
            connections,
        }
    }

    fn request(member: &Member) -> ConsumerGroupHeartbeatRequest {
        let joins = member.epoch == 0;
        ConsumerGroupHeartbeatRequest {
            group_id: GROUP.to_owned(),
            member_id: member.id.clone(),
            member_epoch: member.epoch,
            rebalance_timeout_ms: if joins { 300_000 } else { -1 },
            subscribed_topic_names: joins.then(|| vec![TOPIC.to_owned()]),
            topic_partitions: member.is_news.then(|| member.owned.clone()),
            ..Default::default()
        }
    }

    /// Heartbeats of all, until nothing changes any more.
    fn settle(&mut self) -> Result<()> {
        for _ in 0..ROUNDS_MAX {
            let members = &self.members;
            let answers = everybody(&mut self.connections, |n| Newer::request(&members[n]))?;
            let mut is_settled = true;
            for (member, answer) in self.members.iter_mut().zip(answers) {
                refused("ConsumerGroupHeartbeat", answer.error_code)?;
                is_settled &= member.epoch == answer.member_epoch && answer.assignment.is_none();
                member.epoch = answer.member_epoch;
                member.is_news = answer.assignment.is_some();
                if let Some(share) = answer.assignment {
                    let own = |topic: thalweg_protocol::messages::consumer_group_heartbeat_response::TopicPartitions| {
                        TopicPartitions {
                            topic_id: topic.topic_id,
                            partitions: topic.partitions,
                        }
                    };
                    member.owned = share.topic_partitions.into_iter().map(own).collect();
                }
            }
            if is_settled {
                let owned = self.members.iter().flat_map(|m| &m.owned);
                let count: usize = owned.map(|topic| topic.partitions.len()).sum();
                if count >= self.members.len() {
                    return Ok(());
                }
            }
        }
        anyhow::bail!("the group has not settled after {ROUNDS_MAX} heartbeats of each")
    }

    /// A tenth leaves, and the others take over.
    fn leave_some(&mut self) -> Result<()> {
        let stay = self.members.len() - self.members.len() / 10;
        let gone: Vec<Member> = self.members.drain(stay..).collect();
        let mut connections: Vec<Connection> = self.connections.drain(stay..).collect();
        let left = everybody(&mut connections, |n| ConsumerGroupHeartbeatRequest {
            group_id: GROUP.to_owned(),
            member_id: gone[n].id.clone(),
            member_epoch: -1,
            ..Default::default()
        })?;
        for answer in left {
            refused("leave", answer.error_code)?;
        }
        self.settle()
    }
}
