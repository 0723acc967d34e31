//! One look at one segment, by its files alone.

use std::io;
use std::path::PathBuf;

use thalweg_protocol::records::{BATCH_HEADER_BYTES, BatchHeader};
use thalweg_reactor::fs::{self, OpenMode};
use thalweg_types::Offset;
use thalweg_types::limits::QUARANTINE_RANGES_PER_SEGMENT_MAX;

use super::Gentle;
use super::snapshot::{self, BadSnapshot, Before};
use crate::aborted;
use crate::claims::Claims;
use crate::damage::{Depth, Place, SegmentWalk};
use crate::indexes::{BatchMark, Indexes};
use crate::name::{index_path, log_path, time_index_path, txn_index_path};
use crate::quarantine::DamagedRange;
use crate::segment::read_index_files;

/// What is to be looked at.
pub(super) struct Look {
    pub(super) dir: PathBuf,
    pub(super) base: Offset,
    /// The one before it, when that is whole as far as is known.
    pub(super) before: Option<Before>,
    /// Where the next segment begins.
    pub(super) next: Option<Offset>,
    /// Offset behind its last batch.
    pub(super) end: Offset,
    /// Bytes of its batches.
    pub(super) bytes: u64,
    pub(super) interval_bytes: u64,
    /// False while its index files do not say yet what is known.
    pub(super) indexes_saved: bool,
}

/// What was found.
pub(super) struct Looked {
    pub(super) bytes: u64,
    pub(super) damaged: Vec<DamagedRange>,
    /// An index that does not fit the log, and why; not told of a log that is damaged itself.
    pub(super) index: Option<(PathBuf, String)>,
    /// The snapshot of producers at its begin, where that is damaged.
    pub(super) snapshot: Option<BadSnapshot>,
}

impl Look {
    pub(super) async fn run(self, gentle: Option<Gentle>) -> io::Result<Looked> {
        let path = log_path(&self.dir, self.base);
        let file = fs::open(&path, OpenMode::Read).await?;
        fs::no_read_ahead(&file);
        let mut claims = self.claims().await?;
        let walk = SegmentWalk {
            path,
            file,
            base: self.base,
            next: self.next,
            bytes: self.bytes,
            depth: Depth::Checksums,
            gentle: gentle.clone(),
        };
        let show = |mark: &BatchMark| claims.iter_mut().for_each(|one| one.on_batch(mark));
        let damaged = self.damaged(&walk, show).await?;
        self.check_aborted().await;
        let snapshot = snapshot::check(&self.dir, self.base, self.before, gentle).await;
        let wrong = claims.into_iter().find_map(Claims::wrong);
        Ok(Looked {
            bytes: self.bytes,
            index: wrong.filter(|_| damaged.is_empty()),
            damaged,
            snapshot,
        })
    }

    async fn damaged(
        &self,
        walk: &SegmentWalk,
        mut seen: impl FnMut(&BatchMark),
    ) -> io::Result<Vec<DamagedRange>> {
        let mut damaged = Vec::new();
        let mut place = Place::begin(self.base);
        loop {
            let (_, damage) = walk.next_damage(place, &mut seen).await?;
            let Some(damage) = damage else { break };
            place = damage.at;
            let is_last = damaged.len() + 1 == QUARANTINE_RANGES_PER_SEGMENT_MAX;
            let resume = damage.resume.filter(|_| !is_last);
            let next = match resume {
                Some(resume) => base_offset_at(walk, resume).await?,
                None => self.end.max(place.next_offset),
            };
            damaged.push(DamagedRange {
                bytes: place.position..resume.unwrap_or(self.bytes),
                first: place.next_offset,
                next,
                reason: damage.text,
            });
            let Some(resume) = resume else { break };
            place.position = resume;
        }
        Ok(damaged)
    }

    /// What the index files claim of the log; none when they are missing, which the next read makes
    /// good, or still to be written.
    async fn claims(&self) -> io::Result<Vec<Claims>> {
        if !self.indexes_saved {
            return Ok(Vec::new());
        }
        let read = read_index_files(&self.dir, self.base, self.bytes, self.interval_bytes).await;
        let of_offsets = index_path(&self.dir, self.base);
        let indexes: Indexes = match read.map_err(io::Error::other)? {
            Ok(indexes) => indexes,
            Err(damage) if damage.is_missing() => return Ok(Vec::new()),
            Err(damage) => return Ok(vec![Claims::broken(of_offsets, damage.to_string())]),
        };
        let of_times = time_index_path(&self.dir, self.base);
        Ok(vec![
            Claims::of_offsets(of_offsets, self.base, indexes.offsets.entries()),
            Claims::of_times(of_times, self.base, indexes.times.entries())
                .reaching_the_end(self.next.is_some()),
        ])
    }

    /// The index of aborted transactions is made anew by the next start: what it says is not in the log
    /// alone.
    async fn check_aborted(&self) {
        if let Err(error) = aborted::read(&self.dir, self.base).await {
            let path = txn_index_path(&self.dir, self.base);
            tracing::error!(path = %path.display(), %error,
                "DAMAGED index of aborted transactions: readers of committed records may get \
                 KAFKA_STORAGE_ERROR until the next start, which makes it anew");
        }
    }
}

async fn base_offset_at(walk: &SegmentWalk, position: u64) -> io::Result<Offset> {
    let head = fs::read_at(&walk.file, position, BATCH_HEADER_BYTES).await?;
    let header = BatchHeader::parse(&head).map_err(io::Error::other)?;
    Ok(header.base_offset)
}
