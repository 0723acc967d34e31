//! Making a group ready when its log was replayed, some of its members at a time.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};
use std::rc::Rc;

use crate::group::Group;
use crate::sweep::{Point, Stand};
use crate::turn::Turn;

impl Group {
    /// Members have a session's time to show up from now on: those behind `after`, as many as are `left` of the
    /// turn.
    pub(crate) fn begin_sessions(
        &mut self,
        turn: &mut Turn<'_>,
        after: Option<Rc<str>>,
        left: &mut usize,
    ) -> Stand {
        let consumer = self.consumer.as_deref();
        let (ids, rest) = match consumer {
            Some(consumer) => some_of(&consumer.members, after, left),
            None => some_of(&self.members, after, left),
        };
        let is_newer = consumer.is_some();
        for id in &ids {
            match is_newer {
                true => self.consumer_loaded(turn, id),
                false => self.restart_session(turn, id),
            }
        }
        if rest == Stand::Done {
            if let Some(consumer) = self.consumer.as_deref_mut() {
                consumer.drop_left_overs();
            }
            if self.members.len() > turn.settings.group_size_max {
                self.prepare(turn);
            }
        }
        rest
    }
}

/// The next ids, one at least where there is one, and where to go on behind them.
fn some_of<M>(
    members: &BTreeMap<Rc<str>, M>,
    after: Option<Rc<str>>,
    left: &mut usize,
) -> (Vec<Rc<str>>, Stand) {
    let from = after.as_deref().map_or(Unbounded, Excluded);
    let mut behind = members.range::<str, _>((from, Unbounded));
    let ids = behind.by_ref().take((*left).max(1));
    let ids: Vec<Rc<str>> = ids.map(|(id, _)| Rc::clone(id)).collect();
    *left = left.saturating_sub(ids.len());
    let rest = match behind.next() {
        Some(_) => Stand::Behind(Point::Member(ids.last().cloned())),
        None => Stand::Done,
    };
    (ids, rest)
}
