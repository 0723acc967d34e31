//! What a log says of aborted transactions: the list that readers of committed data need, kept in a
//! `.txnindex` file beside the segment that holds the marker.
//!
//! Which transactions were aborted is the business of whoever follows producers; it is told by
//! [`Log::note_aborted`], when a marker is written and again when a crash may have lost the files:
//! [`crate::RecoveryReport::transactions_from`] says from where on.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::rc::Rc;

use thalweg_reactor::fs;
use thalweg_types::Offset;

use crate::error::{ReadError, is_lack_of_room};
use crate::log::Log;
use crate::name::txn_index_path;
use crate::segment::Segment;
use crate::txn_index::{self, AbortedTxn};

/// Largest index of aborted transactions that is read.
const TXN_INDEX_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Aborted transactions of one segment, as far as they are in memory.
#[derive(Debug, Default)]
pub(crate) struct Aborted {
    /// `None` while only the file has them.
    list: Option<Rc<Vec<AbortedTxn>>>,
    unsaved: bool,
}

impl Aborted {
    /// Of a segment without a file.
    pub(crate) fn none() -> Aborted {
        Aborted::of(Vec::new())
    }

    /// Of a segment whose file says this.
    pub(crate) fn of(list: Vec<AbortedTxn>) -> Aborted {
        Aborted {
            list: Some(Rc::new(list)),
            unsaved: false,
        }
    }

    /// Forgets what the file says.
    pub(crate) fn replace(&mut self, list: Vec<AbortedTxn>) {
        self.unsaved = true;
        self.list = Some(Rc::new(list));
    }

    /// True when it is known that there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.list.as_ref().is_some_and(|list| list.is_empty())
    }

    /// The file does not say this.
    pub(crate) fn is_unsaved(&self) -> bool {
        self.unsaved
    }

    /// The bytes of the file, if it has to be written; from then on it counts as written.
    pub(crate) fn take_unsaved(&mut self) -> Option<Vec<u8>> {
        let list = self.list.as_ref().filter(|_| self.unsaved)?;
        self.unsaved = false;
        Some(txn_index::encode(list))
    }

    /// It was not written after all.
    pub(crate) fn not_saved(&mut self) {
        self.unsaved = true;
    }

    /// Adds one, in the order of markers. False when it is there already.
    fn add(&mut self, transaction: AbortedTxn) -> bool {
        let list = self.list.get_or_insert_default();
        let at = list.partition_point(|other| other.last_offset < transaction.last_offset);
        let known = list.get(at).map(|other| other.last_offset);
        if known == Some(transaction.last_offset) {
            return false;
        }
        Rc::make_mut(list).insert(at, transaction);
        self.unsaved = true;
        true
    }
}

/// Reads the file of the segment at `base`.
///
/// # Errors
/// `InvalidData` when it is damaged; else the kernel's.
pub(crate) async fn read(dir: &Path, base: Offset) -> io::Result<Vec<AbortedTxn>> {
    let bytes = match fs::read_file(&txn_index_path(dir, base), TXN_INDEX_BYTES_MAX).await {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        bytes => bytes?,
    };
    txn_index::decode(&bytes, base)
        .map_err(|damage| io::Error::new(io::ErrorKind::InvalidData, damage))
}

impl Log {
    /// The markers of these transactions, which were aborted, are written. Told twice, one counts once.
    /// The indexes of their segments are durable then, unless there is no room for them.
    ///
    /// # Errors
    /// [`ReadError`] when what is known already can not be read, or an index not be written.
    pub async fn note_aborted(&self, transactions: &[AbortedTxn]) -> Result<(), ReadError> {
        let mut changed: BTreeMap<Offset, Rc<Segment>> = BTreeMap::new();
        for transaction in transactions {
            let segment = {
                let state = self.inner.state.borrow();
                state.check_readable()?;
                Rc::clone(&state.segments[state.segment_for(transaction.last_offset)])
            };
            self.aborted_of(&segment).await?;
            if segment.aborted.borrow_mut().add(*transaction) {
                segment.indexes_saved.set(false);
                changed.insert(segment.base, segment);
            }
        }
        let _turn = self.inner.index_turn.take().await;
        if self.inner.state.borrow().is_gone {
            return Err(ReadError::Closed);
        }
        for segment in changed.values() {
            match segment.save_aborted().await {
                // Told again after a crash.
                Err(error) if is_lack_of_room(&error) => {
                    tracing::warn!(log = %self.name(), base = %segment.base, %error,
                        "no room for an index of aborted transactions");
                }
                Err(error) => {
                    self.inner.judge(&self.inner.dir, &error);
                    return Err(ReadError::io("write", &self.inner.dir)(error));
                }
                Ok(()) => {}
            }
        }
        Ok(())
    }

    /// The aborted transactions that have records in `[from, up_to)` (RP-75), by their markers; wherever
    /// those lie. `up_to` is not above the last stable offset.
    ///
    /// # Errors
    /// [`ReadError`] when an index can not be read: without it the records must not be served.
    pub async fn aborted_in(
        &self,
        from: Offset,
        up_to: Offset,
    ) -> Result<Vec<AbortedTxn>, ReadError> {
        let segments = {
            let state = self.inner.state.borrow();
            state.check_readable()?;
            let behind = state.segments[state.segment_for(from)..].iter();
            let some = behind.filter(|segment| !segment.aborted.borrow().is_empty());
            some.cloned().collect::<Vec<_>>()
        };
        let mut found = Vec::new();
        for segment in segments {
            for transaction in &*self.aborted_of(&segment).await? {
                if transaction.last_offset >= from && transaction.first_offset < up_to {
                    found.push(*transaction);
                }
                if transaction.last_stable_offset >= up_to {
                    return Ok(found);
                }
            }
        }
        Ok(found)
    }

    pub(crate) async fn aborted_of(
        &self,
        segment: &Segment,
    ) -> Result<Rc<Vec<AbortedTxn>>, ReadError> {
        let known = segment.aborted.borrow().list.clone();
        if let Some(list) = known {
            return Ok(list);
        }
        let path = txn_index_path(&self.inner.dir, segment.base);
        let read = read(&self.inner.dir, segment.base).await;
        if self.inner.state.borrow().is_gone {
            // It may be that of another log.
            return Err(ReadError::Closed);
        }
        let read = Rc::new(read.map_err(ReadError::io("read", path))?);
        let mut aborted = segment.aborted.borrow_mut();
        Ok(Rc::clone(aborted.list.get_or_insert(read)))
    }
}
