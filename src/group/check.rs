//! What must be true of a coordinator between two events. Tests call it after each.

use std::collections::HashMap;
use std::rc::Rc;

use crate::coordinator::Coordinator;
use crate::group::{Group, State};
use crate::member::{Member, Waiting};
use crate::tally::Tally;
use crate::timers::{Timer, Timers};

impl Coordinator {
    /// Checks every invariant.
    ///
    /// # Panics
    /// When one does not hold.
    pub fn check(&self) {
        let mut timers = 0;
        for (id, group) in &self.groups {
            assert_eq!(id, &group.id);
            assert!(!group.is_forgettable(), "{id}: nothing is left of it");
            timers += check_timers(group, &self.timers, self.is_loading());
            check_counts(group);
            check_state(group);
            if let Some(consumer) = group.consumer.as_deref().filter(|_| !self.is_loading()) {
                assert!(group.members.is_empty(), "{id}: members of both kinds");
                consumer.check(id);
            }
            assert_eq!(group.offsets.iter().count(), group.offsets.len(), "{id}");
            group.pending_offsets.check(id);
            let writes = self.writes.pending.values();
            let of_group = writes.filter(|pending| pending.group == *id).count();
            assert_eq!(of_group, group.writes, "{id}: writes on their way");
        }
        if !self.is_loading() {
            let timers = timers + self.sweeps.timers();
            assert_eq!(timers, self.timers.len(), "each timer belongs to somebody");
        }
        self.transactions
            .check(self.groups.values().map(|group| &**group));
        let mut tally = Tally::default();
        self.groups.values().for_each(|group| tally.add(group));
        assert_eq!(tally, self.tally(), "the sums");
    }
}

fn check_timers(group: &Group, timers: &Timers, is_loading: bool) -> usize {
    if is_loading {
        return 0;
    }
    let id = || Rc::clone(&group.id);
    for member in group.members.values() {
        assert!(
            member.timer_at <= member.due,
            "{}: fires too late",
            member.id
        );
        let timer = Timer::Session(id(), Rc::clone(&member.id));
        assert!(timers.contains(member.timer_at, timer), "{}", member.id);
    }
    let mut of_consumer = 0;
    for member in group.consumer.iter().flat_map(|c| c.members.values()) {
        let timer = Timer::Session(id(), Rc::clone(&member.id));
        assert!(timers.contains(member.timer_at, timer), "{}", member.id);
        assert!(member.timer_at <= member.due, "{}: too late", member.id);
        of_consumer += 1;
        if let Some((at, _)) = member.deadline {
            let timer = Timer::Deadline(id(), Rc::clone(&member.id));
            assert!(timers.contains(at, timer), "{}", member.id);
            of_consumer += 1;
        }
    }
    for (member, due) in &group.pending {
        let timer = Timer::Pending(id(), Rc::clone(member));
        assert!(timers.contains(*due, timer), "{member}");
    }
    if let Some(due) = group.join_due {
        assert!(timers.contains(due, Timer::Join(id())), "{}", group.id);
    }
    if let Some(due) = group.sync_due {
        assert!(timers.contains(due, Timer::Sync(id())), "{}", group.id);
    }
    let phases = usize::from(group.join_due.is_some()) + usize::from(group.sync_due.is_some());
    group.members.len() + group.pending.len() + phases + of_consumer
}

fn check_counts(group: &Group) {
    let members = || group.members.values();
    let id = &group.id;
    let joining = members().filter(|m| matches!(m.waiting, Waiting::Join(_)));
    assert_eq!(joining.count(), group.joining, "{id}: joining");
    let unsynced = members().filter(|m| !m.synced).count();
    assert_eq!(unsynced, group.unsynced, "{id}: unsynced");
    let of_instances = members().filter_map(|m| m.instance.as_ref().map(|i| (i, &m.id)));
    assert_eq!(
        of_instances.collect::<HashMap<_, _>>(),
        group.instances.iter().collect(),
        "{id}: instances"
    );
    let bytes: usize = members().map(Member::bytes).sum();
    assert_eq!(bytes, group.member_bytes, "{id}: bytes of members");
    for (protocol, count) in &group.supporters {
        let knows = |m: &&Member| m.protocols.iter().any(|(name, _)| name == protocol);
        assert_eq!(members().filter(knows).count(), *count, "{id}: {protocol}");
    }
}

fn check_state(group: &Group) {
    let id = &group.id;
    let waits = |wanted: fn(Waiting) -> bool| group.members.values().any(|m| wanted(m.waiting));
    let joins = waits(|w| matches!(w, Waiting::Join(_)));
    let syncs = waits(|w| matches!(w, Waiting::Sync(_)));
    match group.state {
        State::Empty | State::Dead => {
            assert!(group.members.is_empty(), "{id}: members of an empty group");
            assert!(group.join_due.is_none() && group.sync_due.is_none(), "{id}");
        }
        State::PreparingRebalance => {
            assert!(group.join_due.is_some(), "{id}: a round without an end");
            assert!(
                group.sync_due.is_none() && !syncs,
                "{id}: of the last round"
            );
        }
        State::CompletingRebalance | State::Stable => {
            assert!(group.has_leader(), "{id}: nobody leads");
            assert!(group.protocol.is_some(), "{id}: no protocol");
            assert!(group.join_due.is_none() && !joins, "{id}: joining is over");
            assert!(group.initial.is_none(), "{id}: the first round is over");
        }
    }
    assert!(
        group.state != State::Stable || !syncs,
        "{id}: shares are out"
    );
    assert!(
        !group.is_assigning || group.state == State::CompletingRebalance,
        "{id}: shares are being written"
    );
}
