//! Snapshots of what a log's owner keeps beside it, and the walk that brings one up to date.
//!
//! A snapshot is bytes and the offset up to which they describe the log: `<offset>.snapshot`, where
//! Kafka keeps the state of producers. What is in it, and whether it can be believed, is the owner's
//! business; the log keeps the files that belong to it (ST-10) and yields batch headers.
//!
//! Order of calls: [`Log::open`] says which are there ([`crate::RecoveryReport::snapshots`]); the owner
//! loads the newest it can believe, removes those it can not, and walks the headers behind it. Later it
//! stores one at each [`crate::LogEvent::Rolled`] and after [`Log::close`].

use std::collections::BTreeSet;
use std::io;

use bytes::Bytes;
use thalweg_protocol::records::control::ControlRecordType;
use thalweg_protocol::records::{BatchHeader, records_of};
use thalweg_reactor::fs::{self, File};
use thalweg_types::Offset;

use crate::error::{LogError, ReadError};
use crate::indexes::BatchMark;
use crate::log::Log;
use crate::name::snapshot_path;
use crate::scan::Step;

/// Larger snapshots are not read: no owner writes such.
pub(crate) const SNAPSHOT_BYTES_MAX: usize = 256 * 1024 * 1024;

/// Larger control batches are not looked into: a marker of a transaction has some 80 bytes.
const CONTROL_BATCH_BYTES_MAX: usize = 4 * 1024;

/// Of the snapshots `found`, those of no use to a log that ends at `end`: beyond it, or without a
/// segment that begins there, unless it is the newest (ST-10). None is of use below the first segment: batches
/// behind it are gone, and who wrote them would be taken for somebody who skips (RP-67).
pub(crate) fn useless(
    found: &BTreeSet<Offset>,
    bases: &BTreeSet<Offset>,
    end: Offset,
) -> Vec<Offset> {
    let first = bases.first().copied().unwrap_or_default();
    let newest = found.range(..=end).next_back();
    let is_of_use =
        |at: &Offset| (first..=end).contains(at) && (bases.contains(at) || newest == Some(at));
    found.iter().filter(|at| !is_of_use(at)).copied().collect()
}

impl Log {
    /// Writes a snapshot of what the log holds below `at`, durably.
    ///
    /// # Errors
    /// [`LogError::Io`]. The log goes on; the snapshot before it serves as well, only slower. [`LogError::Closed`] when it
    /// is deleted.
    pub async fn store_snapshot(&self, at: Offset, bytes: Vec<u8>) -> Result<(), LogError> {
        // Another log of its name must not find what this one knew of its producers.
        let _turn = self.inner.index_turn.take().await;
        if self.inner.state.borrow().is_gone {
            return Err(LogError::Closed);
        }
        let path = snapshot_path(&self.inner.dir, at);
        let written = fs::write_file_atomically(&path, Bytes::from(bytes)).await;
        self.inner
            .judged(written.map_err(LogError::io("write", &path)))?;
        let mut state = self.inner.state.borrow_mut();
        // A start drops one above the end that a loss of power leaves.
        if at <= state.durable_end {
            state.lasting_snapshot = state.lasting_snapshot.max(Some(at));
        }
        Ok(())
    }

    /// As [`Log::store_snapshot`], of one that batches below `at` can go for: what is written up to it is made durable
    /// before. A loss of power could take the log's end back below another, and a start drops a snapshot from above the
    /// end.
    ///
    /// # Errors
    /// As [`Log::store_snapshot`] and [`Log::flush`].
    pub async fn store_lasting_snapshot(&self, at: Offset, bytes: Vec<u8>) -> Result<(), LogError> {
        if self.durable_end() < at {
            self.flush_in_background().await?;
        }
        self.store_snapshot(at, bytes).await
    }

    /// True when a snapshot at `at` outlives whatever takes the batches below `end`: it is above them, and no loss of
    /// power takes the log's end back below it.
    #[must_use]
    pub fn snapshot_lasts(&self, at: Offset, end: Offset) -> bool {
        (end..=self.durable_end()).contains(&at)
    }

    /// The snapshot at `at`.
    ///
    /// # Errors
    /// [`LogError::Io`], also when it is not there.
    pub async fn load_snapshot(&self, at: Offset) -> Result<Bytes, LogError> {
        let path = snapshot_path(&self.inner.dir, at);
        fs::read_file(&path, SNAPSHOT_BYTES_MAX)
            .await
            .map_err(LogError::io("read", &path))
    }

    /// Removes the snapshot at `at`, which the owner can not believe.
    ///
    /// # Errors
    /// [`LogError::Io`].
    pub async fn remove_snapshot(&self, at: Offset) -> Result<(), LogError> {
        {
            let mut state = self.inner.state.borrow_mut();
            state.lasting_snapshot = state.lasting_snapshot.filter(|lasting| *lasting != at);
        }
        let path = snapshot_path(&self.inner.dir, at);
        fs::unlink(&path)
            .await
            .map_err(LogError::io("remove", &path))
    }

    /// Shows `visit` the header of each written batch from the one that holds `from` on, in order, and
    /// of a control batch the type of its record. Other records are not read, and checksums not
    /// computed.
    ///
    /// # Errors
    /// [`ReadError::Io`], and [`ReadError::Damaged`] where no batch is; [`ReadError::Closed`] and
    /// [`ReadError::Offline`].
    pub async fn walk_headers(
        &self,
        from: Offset,
        mut visit: impl FnMut(&BatchHeader, Option<ControlRecordType>),
    ) -> Result<(), ReadError> {
        let mut at = from;
        loop {
            let (segment, size, next, warming) = {
                let state = self.inner.state.borrow();
                state.check_readable()?;
                if at >= state.written_end {
                    return Ok(());
                }
                let index = state.segment_for(at);
                let segment = state.segments[index].clone();
                let size = segment.size.get();
                let next = state.segments.get(index + 1).map(|next| next.base);
                (segment, size, next, state.warming())
            };
            let warm = match segment.warm(&warming).await {
                Err(ReadError::Replaced) => continue,
                warm => warm?,
            };
            let entry = (at > segment.base).then(|| warm.indexes.borrow().entry_for(at));
            let mut scan = self
                .scan_by(entry.flatten(), &segment, &warm, 0..size)
                .await?;
            loop {
                if segment.skip_damage(&mut scan) {
                    continue;
                }
                match scan.next().await {
                    Ok(Step::Batch(mark, header)) if mark.last_offset >= from => {
                        let marker = match header.is_control() {
                            true => marker_of(&warm.file, &mark).await,
                            false => Ok(None),
                        };
                        visit(
                            &header,
                            marker.map_err(ReadError::io("read", segment.path()))?,
                        );
                    }
                    Ok(Step::Batch(..)) => {}
                    Ok(Step::End) => break,
                    Ok(Step::Bad(reason)) => {
                        return Err(ReadError::Damaged {
                            path: segment.path(),
                            position: scan.position(),
                            offset: scan.next_offset(),
                            reason,
                        });
                    }
                    Err(source) => {
                        return Err(ReadError::Io {
                            operation: "read",
                            path: segment.path(),
                            source,
                        });
                    }
                }
            }
            match next {
                Some(next) => at = next,
                None => return Ok(()),
            }
        }
    }
}

/// The type of the record of a control batch; `None` when it is empty, of the future, or none.
async fn marker_of(file: &File, mark: &BatchMark) -> io::Result<Option<ControlRecordType>> {
    let bytes = usize::try_from(mark.bytes).unwrap_or(usize::MAX);
    if bytes > CONTROL_BATCH_BYTES_MAX {
        return Ok(None);
    }
    let batch = fs::read_at(file, mark.position, bytes).await?;
    let Ok(records) = records_of(&batch, CONTROL_BATCH_BYTES_MAX) else {
        return Ok(None);
    };
    let first = records.iter().next().and_then(Result::ok);
    Ok(first.and_then(|record| ControlRecordType::of_key(record.key?)))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use thalweg_types::Offset;

    use super::useless;

    fn set(offsets: &[i64]) -> BTreeSet<Offset> {
        offsets.iter().copied().map(Offset).collect()
    }

    #[test]
    fn st_10_what_belongs_to_nothing_is_of_no_use() {
        let bases = set(&[0, 100, 200]);
        let left = |found: &[i64], end| useless(&set(found), &bases, Offset(end));
        assert_eq!(left(&[100, 200, 250], 250), []);
        assert_eq!(left(&[100, 200, 250], 249), [Offset(250)]);
        assert_eq!(left(&[50, 100, 230, 250], 300), [Offset(50), Offset(230)]);
        // The one of the last roll was not written in time: the newest serves.
        assert_eq!(left(&[100, 150], 250), []);
        assert_eq!(left(&[], 250), []);
        // What was written between it and the first segment is not known any more.
        let later = set(&[200, 300]);
        assert_eq!(useless(&set(&[150]), &later, Offset(320)), [Offset(150)]);
        assert_eq!(
            useless(&set(&[150, 200]), &later, Offset(320)),
            [Offset(150)]
        );
    }
}
