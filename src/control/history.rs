//! The last rebalances of a group, as its coordinator remembers them.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use thalweg_reactor::{mailbox, oneshot};

use crate::lag::{GroupQuestion, ask};
use crate::requests::ShardCommand;

/// Ids of members, the first few of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberNames {
    /// The first ones.
    pub members: Vec<String>,
    /// How many there were beyond.
    pub more: u64,
}

/// One rebalance, as `/groups/NAME/history` tells it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RebalanceLine {
    /// In milliseconds since 1970.
    pub began_ms: i64,
    /// What began it, in words.
    pub cause: String,
    /// The generation that it ended in; `None` while it goes on.
    pub generation: Option<i32>,
    /// How long it took, so far while it goes on.
    pub took_ms: u64,
    /// How long partitions had no owner at most.
    pub unowned_ms: u64,
    /// New members.
    pub joined: MemberNames,
    /// Members that left.
    pub left: MemberNames,
    /// Members that were silent.
    pub timed_out: MemberNames,
}

/// The history of one group, as `/groups/NAME/history` tells it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryAnswer {
    /// Name of the group.
    pub group: String,
    /// `cluster.id`.
    pub cluster_id: String,
    /// Oldest first; `None` when there is no such group, or its coordinator is not here.
    pub rebalances: Option<Vec<RebalanceLine>>,
}

/// Asks the shards for the one that has the group.
pub(crate) async fn look(
    shards: &[mailbox::Sender<ShardCommand>],
    group: &str,
    wait_max: Duration,
) -> Option<Vec<RebalanceLine>> {
    for shard in shards {
        let (reply, answer) = oneshot::channel();
        let question = GroupQuestion::History {
            group: group.to_owned(),
            reply,
        };
        if let Some(Some(found)) = ask(shard, question, answer, wait_max).await {
            return Some(found);
        }
    }
    None
}
