//! `groups`: what consumer groups and their offsets cost.
//!
//! [`rebalance`] and [`commit`] count CPU time of the broker, [`held`] its memory, and [`start`] looks at a broker that
//! reads its groups again. Each prints one JSON object.

pub mod commit;
pub mod held;
pub mod rebalance;
pub mod start;

use anyhow::{Result, bail};
use clap::Subcommand;
use thalweg_client::Connection;
use thalweg_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use thalweg_protocol::messages::{
    FindCoordinatorRequest, JoinGroupRequest, OffsetCommitRequest,
    join_group_request::JoinGroupRequestProtocol,
};
use thalweg_protocol::{ErrorCode, Request};

/// What is looked at.
#[derive(Subcommand, Clone, Debug)]
pub enum GroupsCommand {
    /// CPU time of the broker while one group of many members shares out
    Rebalance(rebalance::RebalanceOptions),
    /// Memory of the broker with many groups of one member that do nothing
    Held(held::HeldOptions),
    /// CPU time of the broker per offset commit, beside that of a one-record produce
    Commit(commit::CommitOptions),
    /// A cold start with many committed offsets, under a steady produce
    Start(start::StartOptions),
}

/// Runs one.
///
/// # Errors
/// When the broker does not start, or answers something else than it should.
pub fn run(command: &GroupsCommand) -> Result<()> {
    match command {
        GroupsCommand::Rebalance(options) => rebalance::run(options),
        GroupsCommand::Held(options) => held::run(options),
        GroupsCommand::Commit(options) => commit::run(options),
        GroupsCommand::Start(options) => start::run(options),
    }
}

/// The last version of FindCoordinator that names one group, and of OffsetCommit that names topics.
const FIND_ONE: i16 = 3;
pub(crate) const COMMIT_BY_NAME: i16 = 9;
/// The longest that a broker allows unless it is told otherwise, in milliseconds.
const SESSION_MS: i32 = 1_800_000;

/// Names the broker's code.
fn refused(what: &str, code: i16) -> Result<()> {
    match ErrorCode::from_code(code) {
        Some(ErrorCode::None) => Ok(()),
        Some(known) => bail!("{what}: {}", known.name()),
        None => bail!("{what}: error {code}"),
    }
}

/// Looks for the coordinator until there is one: the first to look makes the offsets topic.
fn find_coordinator(connection: &mut Connection, group: &str) -> Result<()> {
    let request = FindCoordinatorRequest {
        key: group.to_owned(),
        ..Default::default()
    };
    let answer = connection.call_at(&request, FIND_ONE)?;
    refused("FindCoordinator", answer.error_code)
}

/// Sends all requests, and takes their answers in order.
fn exchange<R: Request>(
    connection: &mut Connection,
    requests: &[R],
    version: Option<i16>,
) -> Result<Vec<R::Response>> {
    let mut tickets = Vec::new();
    for request in requests {
        tickets.push(match version {
            Some(version) => connection.send_at(request, version)?,
            None => connection.send(request)?,
        });
    }
    let mut answers = Vec::new();
    for ticket in tickets {
        answers.push(connection.receive(ticket)?);
    }
    Ok(answers)
}

/// As a consumer of one topic joins, with its subscription in the bytes of Kafka's clients.
fn join_request(group: &str, member: &str, topic: &str) -> JoinGroupRequest {
    let name = topic.as_bytes();
    let mut metadata = vec![
        0,
        0,
        0,
        0,
        0,
        1,
        0,
        u8::try_from(name.len()).unwrap_or(u8::MAX),
    ];
    metadata.extend_from_slice(name);
    metadata.extend_from_slice(&[0xff; 4]);
    JoinGroupRequest {
        group_id: group.to_owned(),
        session_timeout_ms: SESSION_MS,
        rebalance_timeout_ms: SESSION_MS,
        member_id: member.to_owned(),
        protocol_type: "consumer".to_owned(),
        protocols: vec![JoinGroupRequestProtocol {
            name: "range".to_owned(),
            metadata: metadata.into(),
        }],
        ..Default::default()
    }
}

/// A commit of `offset` for the first partitions of a topic, by a member or (generation -1) by nobody.
pub(crate) fn commit_request(
    group: &str,
    member: (&str, i32),
    topic: &str,
    partitions: std::ops::Range<i32>,
    offset: i64,
) -> OffsetCommitRequest {
    let row = |partition_index| OffsetCommitRequestPartition {
        partition_index,
        committed_offset: offset,
        committed_metadata: Some(String::new()),
        ..Default::default()
    };
    OffsetCommitRequest {
        group_id: group.to_owned(),
        member_id: member.0.to_owned(),
        generation_id_or_member_epoch: member.1,
        topics: vec![OffsetCommitRequestTopic {
            name: topic.to_owned(),
            partitions: partitions.map(row).collect(),
            ..Default::default()
        }],
        ..Default::default()
    }
}
