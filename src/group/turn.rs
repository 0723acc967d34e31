//! What a group may touch beside itself while it handles one event.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;

use bytes::Bytes;
use thalweg_protocol::messages::delete_groups_response::DeletableGroupResult;
use thalweg_protocol::messages::{OffsetCommitResponse, OffsetDeleteResponse};

use thalweg_protocol::ErrorCode;
use thalweg_types::TimestampMs;
use thalweg_types::limits::OFFSET_FETCH_ROWS_PER_TURN;

use crate::ask::{Answer, Ask, Effect, Now, Stability, Token, WriteId};
use crate::commit::Fetch;
use crate::consumer::Key;
use crate::record::Record;
use crate::settings::Settings;
use crate::static_members::Replacement;
use crate::tally::Happened;
use crate::timers::Timers;
use crate::topics::Topics;

/// What happens when a write is committed.
#[derive(Debug)]
pub(crate) enum Then {
    /// Nobody waits.
    Nothing,
    /// A look at all groups has one batch less on its way, with ends of so many settled offsets.
    Ends { settled: usize },
    /// A commit is answered.
    Commit(Token, OffsetCommitResponse),
    /// The members of a generation get their shares.
    Assign {
        generation: i32,
        shares: HashMap<Rc<str>, Bytes>,
    },
    /// A static member has a new id.
    Replace(Replacement),
    /// What was marked is in the log.
    Log(BTreeSet<Key>),
    /// Some offsets of a group that is being deleted are gone.
    DeleteOn(Token, DeletableGroupResult),
    /// The group is gone.
    Delete(Token, DeletableGroupResult),
    /// The group is gone because its time was over. It was without members since then.
    Retire { since: TimestampMs },
    /// Offsets are gone.
    DeleteOffsets(Token, OffsetDeleteResponse),
}

/// A write on its way.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) group: Rc<str>,
    pub(crate) records: Rc<Vec<Record>>,
    pub(crate) then: Then,
    /// Who else is told when it is committed, and what.
    pub(crate) also: Vec<(Token, Answer)>,
    /// Who is told what has been committed, once it is or has failed.
    pub(crate) fetches: Vec<(Token, Fetch)>,
    /// Offsets to be looked up for them, at most.
    fetched_rows: usize,
}

impl Pending {
    /// Lets a fetch of so many offsets wait for the write. The answer when as much waits already as one turn of the core
    /// may look up: its client comes again.
    pub(crate) fn park(&mut self, token: Token, fetch: Fetch, rows: usize) -> Option<Answer> {
        self.fetched_rows += rows;
        if self.fetched_rows > OFFSET_FETCH_ROWS_PER_TURN && !self.fetches.is_empty() {
            self.fetched_rows -= rows;
            let asked = Ask::FetchOffsets(fetch.request, Stability::Stable, fetch.after);
            return Some(asked.refused(ErrorCode::CoordinatorLoadInProgress));
        }
        self.fetches.push((token, fetch));
        None
    }
}

/// The writes on their way, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Writes {
    next: u64,
    pub(crate) pending: BTreeMap<WriteId, Pending>,
}

/// One event: its moment, and the ways out.
pub(crate) struct Turn<'a> {
    pub(crate) now: Now,
    pub(crate) settings: &'a Settings,
    pub(crate) topics: &'a Topics,
    /// Whether what is known may take more memory than it has; as it is when the event begins.
    pub(crate) may_grow: bool,
    pub(crate) timers: &'a mut Timers,
    pub(crate) writes: &'a mut Writes,
    pub(crate) happened: &'a mut Happened,
    pub(crate) out: &'a mut Vec<Effect>,
    /// Answers that wait for what this event writes.
    pub(crate) deferred: Vec<(Token, Answer)>,
}

impl Turn<'_> {
    pub(crate) fn answer(&mut self, token: Token, answer: impl Into<Answer>) {
        let answer = answer.into();
        self.out.push(Effect::Answer { token, answer });
    }

    /// Gives the answers that were deferred: with the last write of what was marked if that is still on
    /// its way, else now.
    pub(crate) fn defer(&mut self, last: Option<WriteId>) {
        let deferred = std::mem::take(&mut self.deferred);
        match last.and_then(|last| self.writes.pending.get_mut(&last)) {
            Some(pending) => pending.also.extend(deferred),
            None => {
                for (token, answer) in deferred {
                    self.answer(token, answer);
                }
            }
        }
    }

    /// As [`Turn::answer`], once all that is marked is in the log.
    pub(crate) fn answer_once_logged(&mut self, token: Token, answer: impl Into<Answer>) {
        self.deferred.push((token, answer.into()));
    }

    pub(crate) fn write(&mut self, group: &Rc<str>, records: Vec<Record>, then: Then) -> WriteId {
        let id = WriteId(self.writes.next);
        self.writes.next += 1;
        let records = Rc::new(records);
        self.out.push(Effect::Write {
            id,
            records: Rc::clone(&records),
        });
        let group = Rc::clone(group);
        let pending = Pending {
            group,
            records,
            then,
            also: Vec::new(),
            fetches: Vec::new(),
            fetched_rows: 0,
        };
        self.writes.pending.insert(id, pending);
        id
    }
}
