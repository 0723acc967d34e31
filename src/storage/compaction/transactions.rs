//! Which batches of a log belong to aborted transactions, followed from batch to batch, and which
//! markers are of no use any more (RP-103).

use std::collections::{HashMap, HashSet, VecDeque};

use thalweg_protocol::records::BatchHeader;
use thalweg_protocol::records::control::ControlRecordType;
use thalweg_types::{Offset, ProducerId};

use crate::txn_index::AbortedTxn;

/// An aborted transaction that is being walked through.
struct Ongoing {
    transaction: AbortedTxn,
    /// A batch of it was seen.
    seen: bool,
}

/// What a walk over a log knows of transactions at one place.
#[derive(Default)]
pub(super) struct Transactions {
    /// Those that begin further on, in the order in which they begin.
    ahead: VecDeque<AbortedTxn>,
    aborted: HashMap<ProducerId, Ongoing>,
    committed: HashSet<ProducerId>,
}

/// What a control batch holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Holds {
    /// A record of this type.
    Type(ControlRecordType),
    /// A record of a type of the future.
    Unknown,
    /// Nothing: an earlier compaction has emptied it.
    Nothing,
}

/// What a marker is still good for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Marker {
    /// Batches of its transaction lie before it.
    Needed,
    /// It ends an aborted transaction of which batches were there: that must go on being known.
    EndsAborted(AbortedTxn),
    /// Nothing of its transaction is left.
    Spent,
}

impl Transactions {
    /// Of a log with these aborted transactions, from its start or from anywhere in it.
    pub(super) fn new(mut aborted: Vec<AbortedTxn>) -> Transactions {
        aborted.sort_by_key(|transaction| transaction.first_offset);
        Transactions {
            ahead: aborted.into(),
            ..Transactions::default()
        }
    }

    /// A batch of records. True when its transaction was aborted: nobody who reads committed data sees
    /// them, and nobody else may count on them.
    pub(super) fn on_batch(&mut self, header: &BatchHeader) -> bool {
        self.come_to(header.last_offset());
        if !header.is_transactional() {
            return false;
        }
        match self.aborted.get_mut(&header.producer_id) {
            Some(ongoing) => {
                ongoing.seen = true;
                true
            }
            None => {
                self.committed.insert(header.producer_id);
                false
            }
        }
    }

    /// A control batch.
    pub(super) fn on_marker(&mut self, header: &BatchHeader, holds: Holds) -> Marker {
        self.come_to(header.last_offset());
        let producer = header.producer_id;
        match holds {
            Holds::Type(ControlRecordType::Abort) => match self.aborted.remove(&producer) {
                Some(ended) if ended.seen => Marker::EndsAborted(ended.transaction),
                Some(_) | None => Marker::Spent,
            },
            Holds::Type(ControlRecordType::Commit) => match self.committed.remove(&producer) {
                true => Marker::Needed,
                false => Marker::Spent,
            },
            Holds::Nothing => Marker::Spent,
            Holds::Unknown
            | Holds::Type(
                ControlRecordType::LeaderChange
                | ControlRecordType::SnapshotHeader
                | ControlRecordType::SnapshotFooter
                | ControlRecordType::KRaftVersion
                | ControlRecordType::KRaftVoters,
            ) => Marker::Needed,
        }
    }

    fn come_to(&mut self, offset: Offset) {
        while let Some(next) = self.ahead.front()
            && next.first_offset <= offset
        {
            let transaction = *next;
            self.ahead.pop_front();
            // Of one that ended before the walk began no marker will be met.
            if transaction.last_offset >= offset {
                let ongoing = Ongoing {
                    transaction,
                    seen: false,
                };
                self.aborted.insert(transaction.producer_id, ongoing);
            }
        }
    }
}
