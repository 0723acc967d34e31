//! A group of the newer protocol (KIP-848): the coordinator shares out, and each member moves towards
//! its share by itself. Members of the classic protocol may be in it, too.
//!
//! What changes in memory is marked ([`Key`]) and written at the end of the event, and whoever was
//! told something waits for that write. A mark stays until its value is in the log, so a write that
//! fails is made up for by the next one.
//!
//! `heartbeat` is what members do, `share` who is to have what, `reconcile` how they get there, and
//! `log` what of it is written.

mod admin;
mod assignor;
mod classic_members;
mod coordinate;
mod heartbeat;
mod leave;
mod log;
mod member;
mod partitions;
mod pattern;
mod reconcile;
mod record;
mod share;
mod since;
mod subscribers;

use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use thalweg_protocol::ErrorCode;
use thalweg_types::TopicId;

use crate::topics::Topics;
use crate::turn::Turn;

pub use assignor::Assignor;
pub(crate) use log::Key;
pub(crate) use member::{ConsumerMember, MemberState};
pub(crate) use partitions::Partitions;
pub use record::ConsumerRecord;
use subscribers::{Names, Subscribers};

/// First version of OffsetCommit with the epoch of a member.
const COMMIT_VERSION_EPOCHS: i16 = 9;

/// Bytes that a group takes beside its members.
const GROUP_BYTES: usize = 512;

/// Bytes that a name or a pattern takes beside its text.
const NAME_BYTES: usize = 96;

/// Bytes that a name which a pattern matches takes beside its text: each pattern has its own copy.
const MATCHED_BYTES: usize = 48;

/// Where a group stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConsumerState {
    /// No member.
    Empty,
    /// Something changed since partitions were shared out.
    Assigning,
    /// Members move towards their shares.
    Reconciling,
    /// Everybody has its share.
    Stable,
}

/// Which offsets a commit may move.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Movable<'m> {
    All,
    /// Of partitions that a member has had since an epoch.
    Since(i32, &'m ConsumerMember),
}

impl Movable<'_> {
    /// Whether the offset of a partition may move.
    pub(crate) fn check(self, topic: TopicId, partition: i32) -> Result<(), ErrorCode> {
        match self {
            Movable::All => Ok(()),
            Movable::Since(epoch, member) => match member.since.of(topic, partition) {
                Some(since) if since <= epoch => Ok(()),
                Some(_) | None => Err(member.stale()),
            },
        }
    }
}

/// Why a member is refused, with words for its log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) code: ErrorCode,
    pub(crate) message: String,
}

impl Refusal {
    pub(crate) fn new(code: ErrorCode, message: impl Into<String>) -> Refusal {
        Refusal {
            code,
            message: message.into(),
        }
    }
}

/// What a pattern means now.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pattern {
    /// Members that subscribe by it.
    pub(crate) members: usize,
    /// Names that it matches, sorted.
    pub(crate) topics: Rc<[Rc<str>]>,
    /// Version of the topics that it was held against; `None` = not yet in this life.
    pub(crate) seen: Option<u64>,
    /// Wall clock of that.
    pub(crate) at_ms: i64,
}

/// What a pattern that matches these names counts for in the bounds.
pub(crate) fn bytes_of_pattern<'n>(regex: &str, names: impl Iterator<Item = &'n str>) -> usize {
    let names = names.map(|name| MATCHED_BYTES + name.len());
    NAME_BYTES + regex.len() + names.sum::<usize>()
}

impl Pattern {
    fn bytes(&self, regex: &str) -> usize {
        bytes_of_pattern(regex, self.topics.iter().map(|name| &**name))
    }
}

/// The state of a group.
#[derive(Debug, Default)]
pub(crate) struct ConsumerGroup {
    /// Grows with every change that asks for another distribution.
    pub(crate) epoch: i32,
    /// Of the topics that are subscribed to, as they were for `epoch`.
    pub(crate) metadata_hash: i64,
    /// Epoch that `targets` are for.
    pub(crate) target_epoch: i32,
    /// When they were decided, in monotonic milliseconds; `None` = not in this life.
    pub(crate) decided_at: Option<u64>,
    /// The same by the wall clock, for the log.
    pub(crate) decided_wall_ms: i64,
    pub(crate) members: BTreeMap<Rc<str>, ConsumerMember>,
    /// Member of each instance.
    pub(crate) instances: HashMap<Rc<str>, Rc<str>>,
    /// What each member is to have.
    pub(crate) targets: BTreeMap<Rc<str>, Partitions>,
    /// Who holds a partition, be it to give it up.
    pub(crate) holders: HashMap<(TopicId, i32), Rc<str>>,
    /// What members subscribe to by name.
    pub(crate) subscribers: Subscribers,
    pub(crate) patterns: BTreeMap<Rc<str>, Pattern>,
    /// Version of the topics when they were last looked at; `None` = not yet in this life.
    pub(crate) seen: Option<u64>,
    /// Members that have all that they are to have.
    pub(crate) settled: usize,
    /// Members that speak the classic protocol.
    pub(crate) classic_members: usize,
    bytes: usize,
}

impl ConsumerGroup {
    pub(crate) fn state(&self) -> ConsumerState {
        if self.members.is_empty() {
            ConsumerState::Empty
        } else if self.epoch > self.target_epoch {
            ConsumerState::Assigning
        } else if self.settled < self.members.len() {
            ConsumerState::Reconciling
        } else {
            ConsumerState::Stable
        }
    }

    /// The epoch in which every member has come to, if they all have.
    pub(crate) fn settled_in(&self) -> Option<i32> {
        match self.state() {
            ConsumerState::Empty | ConsumerState::Stable => Some(self.epoch),
            ConsumerState::Assigning | ConsumerState::Reconciling => None,
        }
    }

    /// What the group counts for in the bounds.
    pub(crate) fn bytes(&self) -> usize {
        GROUP_BYTES + self.bytes + self.subscribers.bytes()
    }

    /// Whether a member may be `next`, where it is `known` now; `matched` is what its pattern matches if that is a new
    /// one. The coordinator has looked whether it has room for a new member.
    pub(crate) fn has_room_for(
        &self,
        turn: &Turn<'_>,
        known: Option<&ConsumerMember>,
        next: &ConsumerMember,
        matched: &[Rc<str>],
    ) -> bool {
        let growth = self.growth(known, next, matched);
        growth == 0
            || (known.is_none() || turn.may_grow)
                && self.bytes() + growth <= turn.settings.group_bytes_max
    }

    /// By how much the group grows when a member that is `known` becomes `next`.
    fn growth(
        &self,
        known: Option<&ConsumerMember>,
        next: &ConsumerMember,
        matched: &[Rc<str>],
    ) -> usize {
        let before = known.map_or_else(Names::default, |known| Rc::clone(&known.topics));
        let regex = known.and_then(|known| known.regex.as_ref());
        let (mut more, mut less) = self.subscribers.changes(&before, &next.topics);
        more += next.bytes();
        less += known.map_or(0, ConsumerMember::bytes);
        if regex != next.regex.as_ref() {
            let new = next.regex.as_ref();
            let new = new.filter(|regex| !self.patterns.contains_key(*regex));
            let matched = matched.iter().map(|name| &**name);
            more += new.map_or(0, |regex| bytes_of_pattern(regex, matched));
            let gone = regex.and_then(|regex| self.patterns.get_key_value(regex));
            let gone = gone.filter(|(_, pattern)| pattern.members == 1);
            less += gone.map_or(0, |(regex, pattern)| pattern.bytes(regex));
        }
        more.saturating_sub(less)
    }

    /// Whether a member of this id or of this instance is in the group.
    pub(crate) fn knows(&self, id: &str, instance: Option<&str>) -> bool {
        self.members.contains_key(id) || instance.is_some_and(|id| self.instances.contains_key(id))
    }

    fn is_settled(&self, member: &ConsumerMember) -> bool {
        member.state == MemberState::Stable && member.epoch == self.target_epoch
    }

    /// Adds a member, keeping the counts. Whoever of the same name or instance was there goes.
    pub(crate) fn put(&mut self, member: ConsumerMember) {
        self.take(&member.id);
        if let Some(instance) = &member.instance {
            if let Some(another) = self.instances.get(instance).cloned() {
                self.take(&another);
            }
            self.instances
                .insert(Rc::clone(instance), Rc::clone(&member.id));
        }
        for held in member.held() {
            self.holders.insert(held, Rc::clone(&member.id));
        }
        self.subscribers.add(&member.topics);
        if let Some(regex) = &member.regex {
            self.pattern(regex).members += 1;
        }
        self.settled += usize::from(self.is_settled(&member));
        self.classic_members += usize::from(member.classic.is_some());
        self.bytes += member.bytes();
        self.members.insert(Rc::clone(&member.id), member);
    }

    /// What a pattern means; nothing yet when it is new.
    fn pattern(&mut self, regex: &Rc<str>) -> &mut Pattern {
        if !self.patterns.contains_key(regex) {
            self.bytes += Pattern::default().bytes(regex);
        }
        self.patterns.entry(Rc::clone(regex)).or_default()
    }

    /// A pattern matches these names now, by that wall clock.
    fn match_topics(&mut self, regex: &Rc<str>, topics: Rc<[Rc<str>]>, at_ms: i64) {
        let pattern = self.pattern(regex);
        let before = pattern.bytes(regex);
        pattern.topics = topics;
        pattern.at_ms = at_ms;
        let now = pattern.bytes(regex);
        self.bytes = self.bytes - before + now;
    }

    /// Takes a member out, keeping the counts. Its pattern stays until
    /// [`ConsumerGroup::drop_unused_patterns`].
    pub(crate) fn take(&mut self, id: &str) -> Option<ConsumerMember> {
        let member = self.members.remove(id)?;
        if let Some(instance) = &member.instance {
            self.instances.remove(instance);
        }
        self.release(id, member.held());
        self.subscribers.remove(&member.topics);
        self.leave_pattern(member.regex.as_ref());
        self.settled -= usize::from(self.is_settled(&member));
        self.classic_members -= usize::from(member.classic.is_some());
        self.bytes -= member.bytes();
        Some(member)
    }

    /// Changes a member that stays who it is, by id and instance, keeping the counts. What does not change costs
    /// nothing, however much there is of it.
    pub(crate) fn change(&mut self, id: &str, change: impl FnOnce(&mut ConsumerMember)) {
        let Some((id, mut member)) = self.members.remove_entry(id) else {
            return;
        };
        let was = member.clone();
        self.settled -= usize::from(self.is_settled(&was));
        self.classic_members -= usize::from(was.classic.is_some());
        self.bytes -= was.bytes();
        change(&mut member);
        self.settled += usize::from(self.is_settled(&member));
        self.classic_members += usize::from(member.classic.is_some());
        self.bytes += member.bytes();
        if (&was.assigned, &was.revoking) != (&member.assigned, &member.revoking) {
            let (had, has) = (was.all_held(), member.all_held());
            self.release(&id, had.without(&has).iter());
            for held in has.without(&had).iter() {
                self.holders.insert(held, Rc::clone(&id));
            }
        }
        self.subscribers.replace(&was.topics, &member.topics);
        if was.regex != member.regex {
            self.leave_pattern(was.regex.as_ref());
            if let Some(regex) = &member.regex {
                self.pattern(regex).members += 1;
            }
        }
        self.members.insert(id, member);
    }

    /// A member holds these no more.
    fn release(&mut self, id: &str, held: impl Iterator<Item = (TopicId, i32)>) {
        for held in held {
            let holder = self.holders.get(&held);
            if holder.is_some_and(|holder| **holder == *id) {
                self.holders.remove(&held);
            }
        }
    }

    /// A member subscribes by this pattern no more. It stays until [`ConsumerGroup::drop_unused_patterns`].
    fn leave_pattern(&mut self, regex: Option<&Rc<str>>) {
        if let Some(pattern) = regex.and_then(|regex| self.patterns.get_mut(regex)) {
            pattern.members -= 1;
        }
    }

    /// Forgets patterns that nobody subscribes by, and says which.
    pub(crate) fn drop_unused_patterns(&mut self) -> Vec<Rc<str>> {
        let unused = self
            .patterns
            .iter()
            .filter(|(_, pattern)| pattern.members == 0);
        let unused: Vec<Rc<str>> = unused.map(|(regex, _)| Rc::clone(regex)).collect();
        for regex in &unused {
            self.drop_if_unused(regex);
        }
        unused
    }

    /// Forgets a pattern if nobody subscribes by it, however many others there are. True when that was so.
    pub(crate) fn drop_if_unused(&mut self, regex: &Rc<str>) -> bool {
        let pattern = self.patterns.get(regex);
        let is_unused = pattern.is_some_and(|pattern| pattern.members == 0);
        if is_unused && let Some(pattern) = self.patterns.remove(regex) {
            self.bytes -= pattern.bytes(regex);
        }
        is_unused
    }

    /// Sets what a member is to have, or with `None` that it is to have nothing. True when that is
    /// another word than before.
    pub(crate) fn set_target(&mut self, id: &Rc<str>, target: Option<Partitions>) -> bool {
        let bytes_of = |target: &Partitions| NAME_BYTES + target.bytes();
        if self.targets.get(id) == target.as_ref() {
            return false;
        }
        let before = match target {
            Some(target) => {
                self.bytes += bytes_of(&target);
                self.targets.insert(Rc::clone(id), target)
            }
            None => self.targets.remove(id),
        };
        if let Some(before) = before {
            self.bytes -= bytes_of(&before);
        }
        true
    }

    pub(crate) fn set_target_epoch(&mut self, epoch: i32) {
        self.target_epoch = epoch;
        let settled = self
            .members
            .values()
            .filter(|member| self.is_settled(member));
        self.settled = settled.count();
    }

    /// What a member is to have of its topics. The last distribution may be older than its subscription, and what
    /// it does not subscribe to any more it gives up at once.
    pub(crate) fn target_of(
        &self,
        member: &ConsumerMember,
        topics: &Topics,
    ) -> Cow<'_, Partitions> {
        let Some(target) = self.targets.get(&member.id) else {
            return Cow::default();
        };
        if self.target_epoch >= self.epoch {
            return Cow::Borrowed(target);
        }
        let pattern = member.regex.as_ref();
        let pattern = pattern.and_then(|regex| self.patterns.get(regex));
        let has = |names: &[Rc<str>], name: &str| {
            names.binary_search_by(|known| (**known).cmp(name)).is_ok()
        };
        let subscribed = target.topics().filter_map(|(id, list)| {
            let name = topics.name(id)?;
            let is_subscribed =
                has(&member.topics, &name) || pattern.is_some_and(|p| has(&p.topics, &name));
            is_subscribed.then(|| (id, list.to_vec()))
        });
        Cow::Owned(Partitions::of(subscribed))
    }

    /// True when a member is subscribed to `topic`, by name or by pattern.
    pub(crate) fn is_subscribed(&self, topic: &str) -> bool {
        let matches = |pattern: &Pattern| {
            let topics = &pattern.topics;
            topics.binary_search_by(|name| (**name).cmp(topic)).is_ok()
        };
        self.subscribers.contains(topic) || self.patterns.values().any(matches)
    }

    /// Which offsets a commit may move: a member in its epoch all, in an older one those of partitions
    /// that it has had since then (KIP-1251), and nobody's client all while there is no member.
    pub(crate) fn check_commit(
        &self,
        id: &str,
        epoch: i32,
        version: i16,
    ) -> Result<Movable<'_>, ErrorCode> {
        if epoch < 0 && self.members.is_empty() {
            return Ok(Movable::All);
        }
        let member = self.members.get(id).ok_or(ErrorCode::UnknownMemberId)?;
        if member.classic.is_none() && version < COMMIT_VERSION_EPOCHS {
            return Err(ErrorCode::UnsupportedVersion);
        }
        match epoch.cmp(&member.epoch) {
            Ordering::Equal => Ok(Movable::All),
            Ordering::Less => Ok(Movable::Since(epoch, member)),
            Ordering::Greater => Err(member.stale()),
        }
    }

    /// Whether somebody may read offsets as `id` in `epoch`; without either anybody may.
    pub(crate) fn check_fetch(&self, id: Option<&str>, epoch: i32) -> Result<(), ErrorCode> {
        if epoch < 0 && id.is_none_or(str::is_empty) {
            return Ok(());
        }
        let id = id.unwrap_or_default();
        let member = self.members.get(id).ok_or(ErrorCode::UnknownMemberId)?;
        match epoch == member.epoch {
            true => Ok(()),
            false => Err(member.stale()),
        }
    }

    /// Checks what must be true between two events.
    ///
    /// # Panics
    /// When something is not.
    pub(crate) fn check(&self, group: &str) {
        let members = || self.members.values();
        let held: Vec<_> = members().flat_map(ConsumerMember::held).collect();
        assert_eq!(held.len(), self.holders.len(), "{group}: held once each");
        for member in members() {
            for place in member.held() {
                assert_eq!(self.holders[&place], member.id, "{group}: {place:?}");
            }
            if let Some(instance) = &member.instance {
                assert_eq!(self.instances[instance], member.id, "{group}: {instance}");
            }
            let waits = member.state == MemberState::Unrevoked;
            assert_eq!(waits, !member.revoking.is_empty(), "{group}: {}", member.id);
            assert!(member.epoch <= self.epoch, "{group}: {}", member.id);
            member.since.check(&member.all_held());
        }
        let statics = members().filter(|m| m.instance.is_some()).count();
        assert_eq!(statics, self.instances.len(), "{group}: instances");
        let settled = members().filter(|m| self.is_settled(m)).count();
        assert_eq!(settled, self.settled, "{group}: settled");
        let classic = members().filter(|m| m.classic.is_some()).count();
        assert_eq!(classic, self.classic_members, "{group}: classic members");
        self.subscribers
            .check(group, members().map(|member| &member.topics));
        for (regex, pattern) in &self.patterns {
            let users = members()
                .filter(|m| m.regex.as_ref() == Some(regex))
                .count();
            assert_eq!(users, pattern.members, "{group}: {regex}");
        }
        let patterns = self.patterns.iter();
        let bytes = members().map(ConsumerMember::bytes).sum::<usize>()
            + patterns
                .map(|(regex, pattern)| {
                    let names = pattern.topics.iter();
                    let names = names.map(|name| MATCHED_BYTES + name.len());
                    NAME_BYTES + regex.len() + names.sum::<usize>()
                })
                .sum::<usize>()
            + self
                .targets
                .values()
                .map(|t| NAME_BYTES + t.bytes())
                .sum::<usize>();
        assert_eq!(bytes, self.bytes, "{group}: bytes");
        let mut shared_out = HashMap::new();
        for (id, target) in &self.targets {
            for place in target.iter() {
                let twice = shared_out.insert(place, id);
                assert!(twice.is_none(), "{group}: {place:?} is for two");
            }
        }
    }
}
