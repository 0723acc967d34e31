//! `thalweg group remove-members`.

use serde::Serialize;
use thalweg_client::{Cluster, MemberName};
use thalweg_protocol::ErrorCode;

use super::{joined, refusal};
use crate::args::GroupRemoveMembersArgs;
use crate::exit::{Exit, Failure, connect};
use crate::output::{self, printable};

#[derive(Serialize)]
struct RemovedLine {
    member_id: Option<String>,
    instance_id: Option<String>,
    removed: bool,
    error: Option<String>,
}

/// Each member by itself: one that is refused keeps no other.
pub(super) fn run(args: &GroupRemoveMembersArgs) -> Result<(), Failure> {
    let mut cluster = connect(&args.broker)?;
    let group = printable(&args.group);
    let members = wanted(&mut cluster, args)?;
    let outcomes = match members.is_empty() {
        true => Vec::new(),
        false => cluster.remove_members(&args.group, &members)?,
    };
    let (mut lines, mut failed) = (Vec::new(), None::<Failure>);
    for (member, outcome) in members.into_iter().zip(outcomes) {
        let failure = outcome.err().map(|error| match error.code() {
            Some(ErrorCode::UnknownMemberId) => unknown(&group, &member),
            Some(_) | None => Failure::from(error),
        });
        if failure.is_none() && !args.json {
            output::line(&format!("removed {} from group {group}", told(&member)))?;
        }
        let (member_id, instance_id) = match member {
            MemberName::Instance(instance) => (None, Some(instance)),
            MemberName::Id(id) => (Some(id), None),
        };
        lines.push(RemovedLine {
            member_id,
            instance_id,
            removed: failure.is_none(),
            error: failure.as_ref().map(|failure| failure.message.clone()),
        });
        failed = match (failed, failure) {
            (Some(first), Some(next)) => Some(joined(first, &next)),
            (first, next) => first.or(next),
        };
    }
    if args.json {
        output::json(&lines)?;
    }
    failed.map_or(Ok(()), Err)
}

/// Those named, or all of a group that there is.
fn wanted(
    cluster: &mut Cluster,
    args: &GroupRemoveMembersArgs,
) -> Result<Vec<MemberName>, Failure> {
    let described = cluster
        .describe_group(&args.group)
        .map_err(|error| refusal(&args.group, error))?;
    Ok(match args.all {
        true => described.members.iter().map(|m| m.name()).collect(),
        false => {
            let named = args.instance_ids.iter().cloned();
            named.map(MemberName::Instance).collect()
        }
    })
}

fn told(member: &MemberName) -> String {
    match member {
        MemberName::Instance(instance) => format!("instance {}", printable(instance)),
        MemberName::Id(id) => format!("member {}", printable(id)),
    }
}

fn unknown(group: &str, member: &MemberName) -> Failure {
    let told = told(member);
    match member {
        MemberName::Instance(_) => {
            let text = format!(
                "group {group} has no {told}; `thalweg group describe {group} --members` shows those that it has"
            );
            Failure::new(Exit::NotFound, text)
        }
        MemberName::Id(_) => {
            let text = format!("{told} of group {group} is gone already");
            Failure::new(Exit::Failed, text)
        }
    }
}
