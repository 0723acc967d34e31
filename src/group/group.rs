//! One group: its state and what can be read from it. What changes it stands in `membership` (joining,
//! living, leaving) and `rebalance` (the phases).

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::rc::Rc;

use bytes::Bytes;
use thalweg_protocol::messages::GroupMetadataValue;
use thalweg_protocol::messages::group_metadata_value::MemberMetadata;
use thalweg_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use thalweg_protocol::messages::join_group_response::JoinGroupResponseMember;
use thalweg_types::TimestampMs;
use thalweg_types::limits::{MEMBER_CLIENT_ID_BYTES_MAX, TURN_ELEMENTS_MAX};

use crate::ask::WriteId;
use crate::consumer::{ConsumerGroup, ConsumerState, Key};
use crate::ends::Ends;
use crate::history::History;
use crate::member::{Member, Waiting};
use crate::offsets::Offsets;
use crate::pending_offsets::PendingOffsets;
use crate::record::Record;
use crate::subscription::{self, CONSUMER};

/// Bytes that an id handed out takes at most, its timer included.
const PENDING_MEMBER_BYTES: usize = MEMBER_CLIENT_ID_BYTES_MAX + 160;

/// Members that a record names, and that are not taken in yet.
pub(crate) type Members = std::vec::IntoIter<MemberMetadata>;

/// Where a group stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// No member; perhaps offsets.
    Empty,
    /// Members join the next generation.
    PreparingRebalance,
    /// They are joined and wait for the leader to share out.
    CompletingRebalance,
    /// Everybody has its share.
    Stable,
    /// Being deleted.
    Dead,
}

impl State {
    pub(crate) const ALL: [State; 5] = [
        State::Empty,
        State::PreparingRebalance,
        State::CompletingRebalance,
        State::Stable,
        State::Dead,
    ];

    /// Kafka's name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            State::Empty => "Empty",
            State::PreparingRebalance => "PreparingRebalance",
            State::CompletingRebalance => "CompletingRebalance",
            State::Stable => "Stable",
            State::Dead => "Dead",
        }
    }
}

/// Where a group stands, in either protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shown {
    /// Of the classic protocol.
    Classic(State),
    /// Of the newer one.
    Consumer(ConsumerState),
}

impl Shown {
    /// Kafka's name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Shown::Classic(state) => state.name(),
            Shown::Consumer(state) => state.name(),
        }
    }
}

/// The first rebalance of a group waits for members that may be starting (KIP-134).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InitialDelay {
    /// Of the rebalance timeout, what the waits after this one may take.
    pub(crate) remaining_ms: u64,
    /// Length of the wait that runs.
    pub(crate) wait_ms: u64,
    /// A member came during it.
    pub(crate) extended: bool,
}

/// A consumer group of the classic protocol, or just a place for offsets.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) id: Rc<str>,
    pub(crate) state: State,
    pub(crate) state_since: TimestampMs,
    pub(crate) generation: i32,
    pub(crate) protocol_type: Option<String>,
    pub(crate) protocol: Option<String>,
    pub(crate) leader: Option<Rc<str>>,
    pub(crate) members: BTreeMap<Rc<str>, Member>,
    /// Id of the static member of each instance.
    pub(crate) instances: HashMap<Rc<str>, Rc<str>>,
    /// Members that know each protocol.
    pub(crate) supporters: HashMap<Box<str>, usize>,
    /// Ids handed out and not used yet, with their deadlines (KIP-394).
    pub(crate) pending: BTreeMap<Rc<str>, u64>,
    /// Members that wait for the answer to a JoinGroup.
    pub(crate) joining: usize,
    /// Members that have not synced in this generation.
    pub(crate) unsynced: usize,
    pub(crate) initial: Option<InitialDelay>,
    pub(crate) join_due: Option<u64>,
    pub(crate) sync_due: Option<u64>,
    /// The shares of this generation are being written.
    pub(crate) is_assigning: bool,
    /// The group as one of the newer protocol; it has no classic members then.
    pub(crate) consumer: Option<Box<ConsumerGroup>>,
    /// Records that the log does not hold as they should be.
    pub(crate) unlogged: BTreeSet<Key>,
    /// The last write of such records.
    pub(crate) last_log: Option<WriteId>,
    /// The last write of offsets that a client commits.
    pub(crate) last_commit: Option<WriteId>,
    pub(crate) offsets: Offsets,
    /// In transactions that have not ended.
    pub(crate) pending_offsets: PendingOffsets,
    /// Bytes of the members.
    pub(crate) member_bytes: usize,
    /// The log may hold a record of the group itself.
    pub(crate) is_recorded: bool,
    /// Writes on their way.
    pub(crate) writes: usize,
    /// Those of them that end offsets which nobody asked to end.
    pub(crate) ends: Ends,
    /// Its last rebalances.
    pub(crate) history: History,
}

impl Group {
    pub(crate) fn new(id: Rc<str>, now: TimestampMs) -> Group {
        Group {
            id,
            state: State::Empty,
            state_since: now,
            generation: 0,
            protocol_type: None,
            protocol: None,
            leader: None,
            members: BTreeMap::new(),
            instances: HashMap::new(),
            supporters: HashMap::new(),
            pending: BTreeMap::new(),
            joining: 0,
            unsynced: 0,
            initial: None,
            join_due: None,
            sync_due: None,
            is_assigning: false,
            consumer: None,
            unlogged: BTreeSet::new(),
            last_log: None,
            last_commit: None,
            offsets: Offsets::default(),
            pending_offsets: PendingOffsets::default(),
            member_bytes: 0,
            is_recorded: false,
            writes: 0,
            ends: Ends::default(),
            history: History::default(),
        }
    }

    /// As a record of the log says it, without the members that it names: those are for
    /// [`Group::restore_some`], as they may be many.
    fn restore(&mut self, value: GroupMetadataValue) -> Members {
        self.generation = value.generation;
        self.protocol_type = Some(value.protocol_type).filter(|kind| !kind.is_empty());
        self.protocol = value.protocol;
        self.leader = value.leader.map(Rc::from);
        self.state_since = TimestampMs(value.current_state_timestamp);
        self.is_recorded = true;
        self.members.clear();
        self.instances.clear();
        self.supporters.clear();
        self.member_bytes = 0;
        self.state = match value.members.is_empty() {
            true => State::Empty,
            false => State::Stable,
        };
        value.members.into_iter()
    }

    /// Takes in as many of the members that a record names as one turn of the core may, and takes them from `members`. They
    /// are alive until their sessions end.
    pub(crate) fn restore_some(&mut self, members: &mut Members) {
        let protocol = self.protocol.clone().unwrap_or_default();
        for member in members.by_ref().take(TURN_ELEMENTS_MAX) {
            self.insert(restored(member, &protocol));
        }
        // A record of another writer may name a leader that is not there.
        if members.len() == 0 && self.state == State::Stable && !self.has_leader() {
            self.leader = self.members.keys().next().cloned();
        }
    }

    /// Replays a record of this group, but for the members that it names, which are returned.
    pub(crate) fn replay(&mut self, record: Record) -> Members {
        match record {
            Record::Offset {
                topic,
                partition,
                value,
                ..
            } => {
                match value {
                    Some(_) => self.pending_offsets.supersede(&topic, partition),
                    None => self.pending_offsets.clear(&topic, partition),
                }
                self.offsets.put(&topic, partition, value);
            }
            Record::Group {
                value: Some(value), ..
            } => return self.restore(value),
            Record::Group { value: None, .. } => {
                self.restore(GroupMetadataValue::default());
                self.is_recorded = false;
            }
            Record::Consumer { record, .. } => self.replay_consumer(record),
        }
        Members::default()
    }

    /// Members of either protocol.
    pub(crate) fn member_count(&self) -> usize {
        let newer = self.consumer.as_ref().map_or(0, |c| c.members.len());
        self.members.len() + newer
    }

    /// Where the group stands, in whichever protocol.
    pub(crate) fn shown(&self) -> Shown {
        match (&self.consumer, self.state) {
            (_, State::Dead) | (None, _) => Shown::Classic(self.state),
            (Some(consumer), _) => Shown::Consumer(consumer.state()),
        }
    }

    pub(crate) fn has_leader(&self) -> bool {
        let leader = self.leader.as_ref();
        leader.is_some_and(|leader| self.members.contains_key(leader))
    }

    pub(crate) fn is_leader(&self, member: &str) -> bool {
        self.leader.as_deref() == Some(member)
    }

    pub(crate) fn transition(&mut self, state: State, now: TimestampMs) {
        self.state = state;
        self.state_since = now;
    }

    /// Adds a member, keeping the counts.
    pub(crate) fn insert(&mut self, member: Member) {
        // A damaged record may name a member or an instance twice.
        self.take(&member.id);
        if let Some(instance) = &member.instance {
            if let Some(another) = self.instances.get(instance).cloned() {
                self.take(&another);
            }
            let id = Rc::clone(&member.id);
            self.instances.insert(Rc::clone(instance), id);
        }
        self.member_bytes += member.bytes();
        self.count_protocols(&member.protocols, 1);
        self.joining += usize::from(matches!(member.waiting, Waiting::Join(_)));
        self.unsynced += usize::from(!member.synced);
        self.members.insert(Rc::clone(&member.id), member);
    }

    /// Takes a member out, keeping the counts.
    pub(crate) fn take(&mut self, id: &str) -> Option<Member> {
        let member = self.members.remove(id)?;
        if let Some(instance) = &member.instance {
            self.instances.remove(instance);
        }
        self.member_bytes -= member.bytes();
        self.count_protocols(&member.protocols, -1);
        self.joining -= usize::from(matches!(member.waiting, Waiting::Join(_)));
        self.unsynced -= usize::from(!member.synced);
        Some(member)
    }

    fn count_protocols(&mut self, protocols: &[(Box<str>, Bytes)], by: isize) {
        let mut counted: HashSet<&str> = HashSet::new();
        for (name, _) in protocols.iter().filter(|(name, _)| counted.insert(name)) {
            if let Some(count) = self.supporters.get_mut(name) {
                *count = count.saturating_add_signed(by);
                if *count == 0 {
                    self.supporters.remove(name);
                }
            } else if by > 0 {
                self.supporters.insert(name.clone(), 1);
            }
        }
    }

    /// True when a member with these protocols can be one of the group.
    pub(crate) fn supports(&self, kind: &str, protocols: &[JoinGroupRequestProtocol]) -> bool {
        if kind.is_empty() || protocols.is_empty() {
            return false;
        }
        if self.members.is_empty() {
            return true;
        }
        let all = self.members.len();
        let common = |p: &JoinGroupRequestProtocol| {
            self.supporters.get(p.name.as_str()).copied() == Some(all)
        };
        self.protocol_type.as_deref() == Some(kind) && protocols.iter().any(common)
    }

    /// The protocol that most members like best among those that all know; the leader's order
    /// decides a tie.
    pub(crate) fn select_protocol(&self) -> Option<String> {
        let all = self.members.len();
        let is_common = |name: &str| self.supporters.get(name).copied() == Some(all);
        let mut votes: HashMap<&str, usize> = HashMap::new();
        for member in self.members.values() {
            if let Some((name, _)) = member.protocols.iter().find(|(n, _)| is_common(n)) {
                *votes.entry(name).or_default() += 1;
            }
        }
        let most = votes.values().copied().max()?;
        let leader = self.leader.as_ref().and_then(|id| self.members.get(id))?;
        let order = leader.protocols.iter().map(|(name, _)| &**name);
        let chosen = order
            .into_iter()
            .find(|name| votes.get(name) == Some(&most))?;
        Some(chosen.to_owned())
    }

    /// Longest rebalance timeout of the members.
    pub(crate) fn rebalance_ms(&self) -> u64 {
        let timeouts = self.members.values().map(|member| member.rebalance_ms);
        timeouts.max().unwrap_or(0)
    }

    /// What the leader needs in order to share out.
    pub(crate) fn subscriptions(&self) -> Vec<JoinGroupResponseMember> {
        let protocol = self.protocol.as_deref().unwrap_or_default();
        let one = |member: &Member| JoinGroupResponseMember {
            member_id: member.id.to_string(),
            group_instance_id: member.instance.as_deref().map(str::to_owned),
            metadata: member.metadata(protocol),
        };
        self.members.values().map(one).collect()
    }

    /// The group as a record, with the shares that `share` gives.
    pub(crate) fn value(&self, share: impl Fn(&Member) -> Bytes) -> GroupMetadataValue {
        let protocol = self.protocol.as_deref().unwrap_or_default();
        let members = self.members.values().map(|member| MemberMetadata {
            member_id: member.id.to_string(),
            group_instance_id: member.instance.as_deref().map(str::to_owned),
            client_id: member.client_id.to_string(),
            client_host: member.client_host.to_string(),
            rebalance_timeout: i32::try_from(member.rebalance_ms).unwrap_or(i32::MAX),
            session_timeout: i32::try_from(member.session_ms).unwrap_or(i32::MAX),
            subscription: member.metadata(protocol),
            assignment: share(member),
        });
        GroupMetadataValue {
            protocol_type: self.protocol_type.clone().unwrap_or_default(),
            generation: self.generation,
            protocol: self.protocol.clone(),
            leader: self.leader.as_ref().map(ToString::to_string),
            current_state_timestamp: self.state_since.0,
            members: members.collect(),
        }
    }

    /// True when deleting offsets of `topic` would take them from a member at work.
    pub(crate) fn is_subscribed(&self, topic: &str) -> bool {
        !self.subscribed_among([topic]).is_empty()
    }

    /// Those of `topics` whose offsets members at work go by.
    pub(crate) fn subscribed_among<'t>(
        &self,
        topics: impl IntoIterator<Item = &'t str>,
    ) -> HashSet<&'t str> {
        let topics = topics.into_iter();
        if let Some(consumer) = &self.consumer {
            return topics.filter(|name| consumer.is_subscribed(name)).collect();
        }
        if self.members.is_empty() || self.protocol_type.as_deref() != Some(CONSUMER) {
            return HashSet::new();
        }
        let topics: HashSet<&str> = topics.collect();
        let Some(protocol) = &self.protocol else {
            // Not decided yet: all that can be told is that consumers are joining.
            return topics;
        };
        let mut subscribed = HashSet::new();
        for member in self.members.values() {
            let metadata = member.metadata(protocol);
            let Some(names) = subscription::topics_of(&metadata) else {
                return topics;
            };
            let known = names.iter().filter_map(|name| topics.get::<str>(name));
            subscribed.extend(known);
        }
        subscribed
    }

    /// Nothing would be missed: no member, no offset, no record.
    pub(crate) fn is_forgettable(&self) -> bool {
        self.state == State::Empty
            && self.members.is_empty()
            && self.pending.is_empty()
            && self.offsets.is_empty()
            && self.pending_offsets.is_empty()
            && !self.is_recorded
            && self.writes == 0
            && self.unlogged.is_empty()
            && self
                .consumer
                .as_ref()
                .is_none_or(|c| c.epoch == 0 && c.members.is_empty())
    }

    /// What the group counts for in the bounds.
    pub(crate) fn bytes(&self) -> usize {
        const GROUP_BYTES: usize = 512;
        let pending = self.pending.len() * PENDING_MEMBER_BYTES;
        let consumer = self.consumer.as_ref().map_or(0, |c| c.bytes());
        let own = GROUP_BYTES + self.id.len() + self.member_bytes + pending + consumer;
        own + self.offsets.bytes() + self.pending_offsets.bytes() + self.history.bytes()
    }
}

fn restored(member: MemberMetadata, protocol: &str) -> Member {
    let session_ms = u64::from(member.session_timeout.max(0).unsigned_abs());
    Member {
        id: member.member_id.into(),
        instance: member.group_instance_id.map(Rc::from),
        client_id: member.client_id.into(),
        client_host: member.client_host.into(),
        session_ms,
        rebalance_ms: u64::try_from(member.rebalance_timeout).unwrap_or(session_ms),
        protocols: vec![(
            protocol.into(),
            Bytes::copy_from_slice(&member.subscription),
        )],
        assignment: Bytes::copy_from_slice(&member.assignment),
        waiting: Waiting::No,
        is_new: false,
        synced: true,
        due: 0,
        timer_at: 0,
    }
}
