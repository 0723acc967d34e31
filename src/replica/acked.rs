//! From where on a record counts: for the answer to its producer, for the high watermark, and so for
//! consumers.
//!
//! A log has three ends: assigned, written (in the page cache) and durable (on the disk). Kafka's way
//! is to count what is written and to leave durability to replication. A topic with
//! `flush.messages=1` counts what is durable: then no producer is answered, no retry is confirmed and
//! no consumer sees a record before an fdatasync that covers it has ended (R2).

use thalweg_types::Offset;

/// Which end of the log a record must lie below to count.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum AckPoint {
    /// The written end: a crash of the system may take records that count.
    #[default]
    Written,
    /// The durable end (`flush.messages=1`).
    Durable,
}

/// Where records count, and how that moves.
#[derive(Debug)]
pub(crate) struct Acked {
    point: AckPoint,
    durable: Offset,
    /// Never falls: what was counted once stays so, whatever the topic's setting becomes.
    end: Offset,
}

impl Acked {
    /// Of a log whose records up to `end` have been shown before.
    pub(crate) fn new(point: AckPoint, durable: Offset, end: Offset) -> Acked {
        Acked {
            point,
            durable,
            end,
        }
    }

    /// The end below which records count.
    pub(crate) fn end(&self) -> Offset {
        self.end
    }

    /// The end of what is on the disk.
    pub(crate) fn durable_end(&self) -> Offset {
        self.durable
    }

    pub(crate) fn on_written(&mut self, written: Offset) {
        match self.point {
            AckPoint::Written => self.end = self.end.max(written),
            AckPoint::Durable => {}
        }
    }

    pub(crate) fn on_durable(&mut self, durable: Offset) {
        self.durable = self.durable.max(durable);
        self.end = self.end.max(self.durable);
    }

    pub(crate) fn set_point(&mut self, point: AckPoint, written: Offset) {
        self.point = point;
        self.on_written(written);
    }

    pub(crate) fn check(&self, written: Offset) {
        assert!(self.durable <= self.end, "what is on the disk counts");
        assert!(self.end <= written, "only what is written counts");
        match self.point {
            AckPoint::Written => assert_eq!(self.end, written, "all that is written counts"),
            AckPoint::Durable => {}
        }
    }
}
