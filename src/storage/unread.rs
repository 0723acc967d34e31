//! What a reader has not read: bytes, how long the first of it has been there, and how long it will be.
//!
//! A few batch headers are read around the place, by the index, and no record.

use thalweg_types::{Offset, TimestampMs};

use crate::error::ReadError;
use crate::log::Log;
use crate::retention::RetentionLimits;
use crate::scan::{BatchScan, Check, Step};

/// What lies behind an offset.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unread {
    /// Bytes of the batches from the one that holds the offset on.
    pub bytes: u64,
    /// Timestamp of the first record of that batch; -1 when it has none.
    pub since: TimestampMs,
    /// When retention may take that batch, if its topic limits age or size; in the past when it is due
    /// already. By size it is never told before it is due: that depends on what is yet to come.
    pub removed_at: Option<TimestampMs>,
}

impl Log {
    /// Looks at what is written from `from` on, at the time `now`. `None` when there is nothing.
    ///
    /// # Errors
    /// As [`Log::read_plan`].
    pub async fn unread(
        &self,
        from: Offset,
        limits: RetentionLimits,
        now: TimestampMs,
    ) -> Result<Option<Unread>, ReadError> {
        let Some(start) = self.locate(from).await? else {
            return Ok(None);
        };
        let at = start.first.position;
        let file = start.warm.file.clone();
        let mut scan = BatchScan::new(file, Check::Headers, start.segment.base, at, start.size);
        while start.segment.skip_damage(&mut scan) {}
        let since = match scan.next().await {
            Ok(Step::Batch(_, header)) => header.base_timestamp,
            Ok(Step::End | Step::Bad(_)) => TimestampMs::NONE,
            Err(source) => return Err(ReadError::io("read", start.segment.path())(source)),
        };
        let behind: u64 = {
            let state = self.inner.state.borrow();
            let segments = state.segments.iter().rev();
            let behind = segments.take_while(|s| s.base > start.segment.base);
            behind.map(|s| s.size.get()).sum()
        };
        let removed_at = if limits.bytes.is_some_and(|bytes| behind >= bytes) {
            Some(now)
        } else if limits.age_ms.is_some() {
            limits.due_at(now, self.written(&start.segment).await?)
        } else {
            None
        };
        Ok(Some(Unread {
            bytes: behind + start.size.saturating_sub(at),
            since,
            removed_at,
        }))
    }
}
