//! Finding what is damaged in a segment and where whole batches go on behind it, by its `.log` file
//! alone: for the scrub, for a quarantine, and for a repair.

use std::io;
use std::path::PathBuf;

use bytes::BytesMut;
use thalweg_protocol::records::{BATCH_HEADER_BYTES, BatchHeader};
use thalweg_reactor::fs::{self, File};
use thalweg_types::{LeaderEpoch, Offset};

use crate::indexes::BatchMark;
use crate::inspect;
use crate::scan::{BadBatch, BatchScan, Check, Step};
use crate::scrub::Gentle;
use crate::unreadable::{find_batch_between, unless_unreadable, unreadable};

/// A place between two batches of a segment.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub(crate) position: u64,
    /// Smallest offset that the next batch may have.
    pub(crate) next_offset: Offset,
    /// Leader epoch of the batch before.
    pub(crate) epoch: LeaderEpoch,
}

impl Place {
    /// The begin of the segment at `base`.
    pub(crate) fn begin(base: Offset) -> Place {
        Place {
            position: 0,
            next_offset: base,
            epoch: LeaderEpoch::NONE,
        }
    }
}

/// How much of each batch is looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Depth {
    /// Header and checksum.
    Checksums,
    /// Every record, too.
    Records,
}

/// A segment's file that is looked through.
pub(crate) struct SegmentWalk {
    pub(crate) path: PathBuf,
    pub(crate) file: File,
    pub(crate) base: Offset,
    /// Where the next one begins.
    pub(crate) next: Option<Offset>,
    /// Bytes of it that are to be whole batches.
    pub(crate) bytes: u64,
    pub(crate) depth: Depth,
    pub(crate) gentle: Option<Gentle>,
}

/// One damage.
pub(crate) struct Damage {
    /// Where the first batch stands that is not what was written.
    pub(crate) at: Place,
    /// What is wrong.
    pub(crate) text: String,
    /// Whole batches go on there; `None`: nowhere in this segment.
    pub(crate) resume: Option<u64>,
    /// The disk does not give it out, or its file system.
    pub(crate) is_unreadable: bool,
}

impl SegmentWalk {
    fn scan(&self, from: Place) -> BatchScan {
        let (base, file) = (self.base, self.file.clone());
        BatchScan::new(file, Check::Checksums, base, from.position, self.bytes)
            .after(from.next_offset, from.epoch)
            .gently(self.gentle.clone())
    }

    /// Checks batches from `from` on, up to the first damage or the end, and shows those that are whole
    /// for all that was seen till then.
    pub(crate) async fn next_damage(
        &self,
        from: Place,
        mut seen: impl FnMut(&BatchMark),
    ) -> io::Result<(Place, Option<Damage>)> {
        let mut scan = self.scan(from);
        let mut before = None;
        loop {
            let at = Place {
                position: scan.position(),
                next_offset: scan.next_offset(),
                epoch: scan.epoch(),
            };
            match unless_unreadable(scan.next().await)? {
                Step::End => return Ok((at, None)),
                Step::Bad(BadBatch::Zeros) if self.next == Some(at.next_offset) => {
                    // Written ahead of the batches.
                    return Ok((at, None));
                }
                Step::Bad(reason) => {
                    return Ok((at, Some(self.damage(before, at, &reason).await?)));
                }
                Step::Batch(mark, header) => {
                    let wrong = match self.beyond(&mark) {
                        None => self.wrong_inside(&mark, &header).await?,
                        beyond => beyond,
                    };
                    if let Some(text) = wrong {
                        let resume = scan.position();
                        let damage = Damage {
                            at,
                            text,
                            resume: (resume < self.bytes).then_some(resume),
                            is_unreadable: false,
                        };
                        return Ok((at, Some(damage)));
                    }
                    seen(&mark);
                    before = Some(at);
                }
            }
        }
    }

    /// The offset of a batch is in no checksum.
    fn beyond(&self, mark: &BatchMark) -> Option<String> {
        let next = self.next.filter(|next| mark.last_offset >= *next)?;
        Some(format!(
            "its offsets {} to {} reach into the next segment, which begins at {next}",
            mark.base_offset, mark.last_offset
        ))
    }

    async fn wrong_inside(
        &self,
        mark: &BatchMark,
        header: &BatchHeader,
    ) -> io::Result<Option<String>> {
        match self.depth {
            Depth::Checksums => Ok(None),
            Depth::Records => {
                inspect::damage_inside(&self.path, &self.file, mark.position, header).await
            }
        }
    }

    async fn damage(
        &self,
        before: Option<Place>,
        at: Place,
        reason: &BadBatch,
    ) -> io::Result<Damage> {
        // Offset and epoch of a batch are in no checksum: it may be the one before that says too much.
        let runs_back = match reason {
            BadBatch::OffsetRunsBack { .. } | BadBatch::EpochRunsBack { .. } => before,
            BadBatch::Zeros
            | BadBatch::ShortHeader { .. }
            | BadBatch::ShortBatch { .. }
            | BadBatch::Header(_)
            | BadBatch::Checksum
            | BadBatch::OffsetSpan { .. }
            | BadBatch::Unreadable(_) => None,
        };
        if let Some(before) = runs_back {
            let without = Place {
                position: at.position,
                ..before
            };
            if self.is_whole(without).await? {
                return Ok(Damage {
                    at: before,
                    text: format!("offset or epoch do not fit the batch behind it: {reason}"),
                    resume: Some(at.position),
                    is_unreadable: false,
                });
            }
        }
        Ok(Damage {
            at,
            text: reason.to_string(),
            resume: self.resume_behind(at).await?,
            is_unreadable: matches!(reason, BadBatch::Unreadable(_)),
        })
    }

    async fn is_whole(&self, at: Place) -> io::Result<bool> {
        let step = unless_unreadable(self.scan(at).next().await)?;
        Ok(matches!(step, Step::Batch(..)))
    }

    /// Where whole batches go on behind the bad one at `at`: where it says that it ends, else wherever the next
    /// one is found.
    async fn resume_behind(&self, at: Place) -> io::Result<Option<u64>> {
        let head = match fs::read_at(&self.file, at.position, BATCH_HEADER_BYTES).await {
            Err(error) if unreadable(&error).is_some() => BytesMut::new(),
            head => head?,
        };
        if let Ok(header) = BatchHeader::parse(&head) {
            let position = at.position.saturating_add(header.total_bytes() as u64);
            if position < self.bytes && self.is_whole(Place { position, ..at }).await? {
                return Ok(Some(position));
            }
        }
        let range = at.position + 1..self.bytes;
        let found = find_batch_between(&self.file, range, self.base, at.next_offset).await?;
        Ok(found.map(|mark| mark.position))
    }
}
