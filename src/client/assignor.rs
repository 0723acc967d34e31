//! Who in a group reads what: Kafka's assignors for the classic protocol, as its leader applies them.
//!
//! The coordinator passes on what members say and what the leader decides without looking, so clients of
//! any maker may share a group if they offer an assignor of the same name and read each other's bytes
//! (`wire`). Shares need not be those that another client would have computed: there is one leader.

mod sticky;
#[cfg(test)]
mod tests;
mod wire;

use std::collections::{BTreeMap, BTreeSet};

pub(crate) use wire::{
    Subscription, decode_assignment, decode_subscription, encode_assignment, encode_subscription,
};

/// A topic and one of its partitions.
pub(crate) type TopicPartition = (String, i32);

/// The share of each member.
pub(crate) type Shares = BTreeMap<String, Vec<TopicPartition>>;

/// A way to share out partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Assignor {
    /// Of each topic, a run of partitions to each member.
    Range,
    /// One partition of all topics to each member in turn.
    RoundRobin,
    /// Even, and as little as possible changes hands (KIP-54).
    Sticky,
    /// As `Sticky`, and members go on reading what they keep (KIP-429).
    CooperativeSticky,
}

impl Assignor {
    /// All of them.
    pub const ALL: [Assignor; 4] = [
        Assignor::Range,
        Assignor::RoundRobin,
        Assignor::Sticky,
        Assignor::CooperativeSticky,
    ];

    /// Its name in every client.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Assignor::Range => "range",
            Assignor::RoundRobin => "roundrobin",
            Assignor::Sticky => "sticky",
            Assignor::CooperativeSticky => "cooperative-sticky",
        }
    }

    pub(crate) fn by_name(name: &str) -> Option<Assignor> {
        Assignor::ALL.into_iter().find(|one| one.name() == name)
    }

    /// Whether members may keep partitions while they join.
    pub(crate) fn is_cooperative(self) -> bool {
        match self {
            Assignor::Range | Assignor::RoundRobin | Assignor::Sticky => false,
            Assignor::CooperativeSticky => true,
        }
    }

    /// Shares out the partitions of these topics (name and number). Each member has an entry.
    pub(crate) fn share_out(
        self,
        members: &[Subscriber],
        partitions: &BTreeMap<String, i32>,
    ) -> Shares {
        match self {
            Assignor::Range => range(members, partitions),
            Assignor::RoundRobin => round_robin(members, partitions),
            Assignor::Sticky => sticky::share_out(members, partitions),
            Assignor::CooperativeSticky => {
                let mut shares = sticky::share_out(members, partitions);
                hold_back(&mut shares, members);
                shares
            }
        }
    }
}

/// A member of the group, as its leader is told of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Subscriber {
    pub(crate) member_id: String,
    /// `group.instance.id`.
    pub(crate) instance_id: Option<String>,
    pub(crate) topics: Vec<String>,
    /// What it says it had.
    pub(crate) owned: Vec<TopicPartition>,
    /// In which generation; -1 when it does not say.
    pub(crate) generation: i32,
}

impl Subscriber {
    /// A member by what it brings along when it joins, as this assignor reads it.
    pub(crate) fn new(
        member_id: &str,
        instance_id: Option<&str>,
        subscription: Subscription,
        assignor: Assignor,
    ) -> Subscriber {
        let user_data = subscription.user_data.as_deref().unwrap_or_default();
        let (owned, generation) = match assignor {
            Assignor::Range | Assignor::RoundRobin => (Vec::new(), -1),
            Assignor::Sticky => wire::decode_sticky(user_data).unwrap_or((Vec::new(), -1)),
            Assignor::CooperativeSticky => {
                let said = subscription.generation;
                let generation = said.or_else(|| wire::decode_cooperative(user_data));
                (subscription.owned, generation.unwrap_or(-1))
            }
        };
        Subscriber {
            member_id: member_id.to_owned(),
            instance_id: instance_id.map(str::to_owned),
            topics: subscription.topics,
            owned,
            generation,
        }
    }

    /// Static members come first, by their instances, so that a restart does not change the order.
    fn order(&self) -> (bool, &str) {
        match &self.instance_id {
            Some(instance) => (false, instance),
            None => (true, &self.member_id),
        }
    }
}

fn in_order(members: &[Subscriber]) -> Vec<&Subscriber> {
    let mut sorted: Vec<&Subscriber> = members.iter().collect();
    sorted.sort_by(|a, b| a.order().cmp(&b.order()));
    sorted
}

/// An entry without partitions for each member.
fn nothing_for(members: &[Subscriber]) -> Shares {
    let entry = |member: &Subscriber| (member.member_id.clone(), Vec::new());
    members.iter().map(entry).collect()
}

/// Gives each topic's partitions, in order, to its subscribers in their order; when they do not divide
/// evenly, the first ones get one more.
fn range(members: &[Subscriber], partitions: &BTreeMap<String, i32>) -> Shares {
    let mut shares = nothing_for(members);
    let members = in_order(members);
    for (topic, count) in partitions {
        let subscribed = members.iter().filter(|m| m.topics.contains(topic));
        let subscribed: Vec<&&Subscriber> = subscribed.collect();
        let Some(each) = i32::try_from(subscribed.len()).ok().filter(|n| *n > 0) else {
            continue;
        };
        let (share, more) = (count / each, count % each);
        let mut next = 0;
        for (at, member) in (0..).zip(subscribed) {
            let end = next + share + i32::from(at < more);
            let given = (next..end).map(|p| (topic.clone(), p));
            shares
                .entry(member.member_id.clone())
                .or_default()
                .extend(given);
            next = end;
        }
    }
    shares
}

/// Gives the partitions of all topics, in order, to the members in turn, passing over those who do not
/// subscribe.
fn round_robin(members: &[Subscriber], partitions: &BTreeMap<String, i32>) -> Shares {
    let mut shares = nothing_for(members);
    let members = in_order(members);
    let mut turn = 0;
    for (topic, count) in partitions {
        for partition in 0..*count {
            let from_here = (turn..members.len()).chain(0..turn);
            let next = from_here
                .into_iter()
                .find(|at| members[*at].topics.contains(topic));
            let Some(at) = next else { break };
            let share = shares.entry(members[at].member_id.clone()).or_default();
            share.push((topic.clone(), partition));
            turn = (at + 1) % members.len();
        }
    }
    shares
}

/// What one member has and another is to get goes to nobody yet: the one gives it up when it sees its new
/// share and joins again, and in that round the other gets it.
fn hold_back(shares: &mut Shares, members: &[Subscriber]) {
    let mut claims: BTreeMap<&TopicPartition, BTreeSet<&str>> = BTreeMap::new();
    for member in members {
        for of in &member.owned {
            claims.entry(of).or_default().insert(&member.member_id);
        }
    }
    for (member, share) in shares {
        share.retain(|of| {
            let claimants = claims.get(of);
            claimants.is_none_or(|claimants| claimants.contains(member.as_str()))
        });
    }
}
