//! What a log is told about itself from outside: its topic's properties and how it was stopped.

use std::cell::RefCell;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;
use std::sync::Arc;

use thalweg_metrics::CoreMetrics;
use thalweg_types::{LeaderEpoch, Offset};

use crate::cache::SegmentCache;
use crate::health::DirHealth;
use crate::leftovers::Leftovers;
use crate::name::PartitionName;
use crate::queued::QueuedBytes;
use crate::scrub::Scrubber;
use crate::writers::Writers;

/// The properties that a log obeys. The defaults are Kafka's.
#[derive(Clone, Debug)]
pub struct LogOptions {
    /// `segment.bytes`: a segment gets no batch that would make it larger.
    pub segment_bytes: u32,
    /// `segment.ms`: largest distance between the timestamps of a segment's first batch and a further
    /// one.
    pub segment_ms: i64,
    /// `segment.jitter.ms`: up to this much is taken off `segment.ms`, so that many logs do not roll
    /// at once.
    pub segment_jitter_ms: i64,
    /// `index.interval.bytes`: bytes of batches per index entry.
    pub index_interval_bytes: u32,
    /// `segment.index.bytes`: largest size of each index file; a full one rolls the segment.
    pub segment_index_bytes: u32,
    /// `flush.messages`: records that may be written and not be on the disk before a flush begins. 1:
    /// none, acknowledgements wait for it, so each write is followed by a flush on the log directory's
    /// own threads.
    pub flush_messages: u64,
    /// Bytes of the active segment that may be written and not be on the disk before a flush begins in
    /// the background.
    pub flush_bytes: u64,
    /// How old, in ms, what is written and not on the disk may become before it is due for a flush
    /// ([`crate::Log::is_flush_due`]).
    pub flush_ms: u64,
    /// Closed segments in memory; give the logs of one shard clones of one cache.
    pub cache: SegmentCache,
    /// What is appended and not yet written; the logs of one shard share it.
    pub queued: Rc<QueuedBytes>,
    /// The tasks that write; the logs of one shard share them.
    pub writers: Writers,
    /// Checks segments apart from the log's thread; without one that is done on it.
    pub scrubber: Option<Scrubber>,
    /// Files that can not be removed yet; the logs of one shard share it.
    pub leftovers: Rc<Leftovers>,
    /// Whether the log directory works; the logs in it share it.
    pub health: Arc<DirHealth>,
    /// Where writes, rolls and flushes are counted; the logs of one shard share it.
    pub metrics: Rc<RefCell<CoreMetrics>>,
}

impl Default for LogOptions {
    fn default() -> Self {
        const WEEK_MS: i64 = 7 * 24 * 60 * 60 * 1_000;
        LogOptions {
            segment_bytes: 1024 * 1024 * 1024,
            segment_ms: WEEK_MS,
            segment_jitter_ms: 0,
            index_interval_bytes: 4 * 1024,
            segment_index_bytes: 10 * 1024 * 1024,
            flush_messages: u64::MAX,
            flush_bytes: u64::MAX,
            flush_ms: u64::MAX,
            cache: SegmentCache::new(),
            queued: Rc::default(),
            writers: Writers::default(),
            leftovers: Rc::default(),
            scrubber: None,
            health: Arc::default(),
            metrics: Rc::new(RefCell::new(CoreMetrics::new(0, 1))),
        }
    }
}

impl LogOptions {
    /// Whether acknowledgements wait for the disk.
    #[must_use]
    pub fn acks_wait(&self) -> bool {
        self.flush_messages <= 1
    }

    /// `segment.ms` less this segment's own jitter, which is the same after a restart.
    pub(crate) fn roll_after_ms(&self, name: &PartitionName, base: Offset) -> i64 {
        let span = self.segment_jitter_ms.min(self.segment_ms).max(0);
        if span == 0 {
            return self.segment_ms;
        }
        let mut hasher = DefaultHasher::new();
        (name, base).hash(&mut hasher);
        let jitter = (hasher.finish() >> 1) as i64 % span;
        self.segment_ms - jitter
    }
}

/// How the broker that wrote a log was stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Recovery {
    /// The clean marker was there: everything is on the disk and valid, nothing is scanned (ST-6).
    AfterCleanStop,
    /// It was not: segments from the recovery point on are scanned (ST-5).
    AfterCrash {
        /// Everything below was fdatasynced; 0 when not known (R5).
        recovery_point: Offset,
    },
}

/// What is known of a log before it is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Opening {
    /// How it was stopped.
    pub recovery: Recovery,
    /// Its entry in the log start checkpoint. Batches below are not served; an entry above the end
    /// of the log empties the log after a crash (ST-13), and is a damaged one after a clean stop.
    pub log_start: Option<Offset>,
    /// What Kafka's checkpoint says where that is above the entry, which is then that of the sealed file beside it: Kafka wrote
    /// it, or it is damaged. The log begins at most with its first segment for it.
    pub higher_start: Option<Offset>,
    /// The log had everything from here on: segments are removed only when the entry in the log start checkpoint is above
    /// them, and is durable. Not known of an entry of Kafka's, which removes them first.
    pub kept_from: Option<Offset>,
    /// Its mark, when that holds: everything below was written, and is in the page cache or on the disk.
    pub written: Option<Offset>,
    /// Its recovery point, where it has one, or its mark, when that holds: the log is not shorter.
    pub known_end: Option<Offset>,
    /// Whether offsets may be missing between its batches.
    pub gaps: Gaps,
    /// Where that may be: above the recovery point, records from here on that are missing between two segments were neither
    /// compacted away nor given up. Not known where Kafka may have compacted the log, or some were given up.
    pub compacted_to: Option<Offset>,
    /// What a crash can have left unwritten.
    pub unwritten: Unwritten,
    /// Its entry in the cleaner's checkpoint: what compaction has done already (RP-105).
    pub cleaned_to: Option<Offset>,
    /// Its entry in the checkpoint of high watermarks.
    pub high_watermark: Option<Offset>,
    /// No leader epoch above was ever given: what says otherwise is damaged.
    pub epoch_max: Option<LeaderEpoch>,
}

/// Whether offsets may be missing between the batches of a log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Gaps {
    /// The log is compacted, or was, or nobody knows: what is missing may have been compacted away.
    #[default]
    MayBe,
    /// It never was compacted: each segment ends where the next one begins.
    Never,
}

/// What a crash can leave unwritten of a log, above its recovery point.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Unwritten {
    /// Anything: appends do not wait for the disk, and the kernel writes pages in any order. The first
    /// bad batch is the torn end, whatever follows it.
    #[default]
    AnyBatch,
    /// The last write: each was on the disk before the next one began (RP-59), or the process was killed and all
    /// that it wrote is in the page cache. What is bad before something whole is damage, not a torn end.
    LastWrite,
}

impl From<Recovery> for Opening {
    fn from(recovery: Recovery) -> Self {
        Opening {
            recovery,
            log_start: None,
            higher_start: None,
            kept_from: None,
            written: None,
            known_end: None,
            gaps: Gaps::MayBe,
            compacted_to: None,
            unwritten: Unwritten::AnyBatch,
            cleaned_to: None,
            high_watermark: None,
            epoch_max: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::LogOptions;
    use crate::name::PartitionName;
    use thalweg_types::Offset;

    #[test]
    fn rp_100_jitter_shortens_and_is_stable() {
        let options = LogOptions {
            segment_ms: 1_000,
            segment_jitter_ms: 300,
            ..LogOptions::default()
        };
        let name = PartitionName::new("t", 0);
        let ages: Vec<i64> = (0..100)
            .map(|base| options.roll_after_ms(&name, Offset(base)))
            .collect();
        assert!(ages.iter().all(|ms| (701..=1_000).contains(ms)), "{ages:?}");
        assert!(ages.iter().any(|ms| *ms != ages[0]));
        assert_eq!(ages[7], options.roll_after_ms(&name, Offset(7)));
        let none = LogOptions {
            segment_ms: 1_000,
            ..LogOptions::default()
        };
        assert_eq!(none.roll_after_ms(&name, Offset(7)), 1_000);
    }
}
