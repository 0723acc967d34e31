//! Forgetting records on request (KIP-107).

use thalweg_types::{LeaderEpoch, Offset};

use crate::events::Isolation;
use crate::refused::Refused;
use crate::replica::Replica;

/// "Everything that is committed", as DeleteRecords says it.
const HIGH_WATERMARK: Offset = Offset(-1);

impl Replica {
    /// Where the log is to begin when the records before `before` are deleted (RP-97): never earlier
    /// than now. The shell moves the log's start there, then calls [`Replica::on_log_start`], and
    /// answers the client once the start is durable.
    ///
    /// # Errors
    /// A refusal when this broker does not lead the partition, or `before` lies above the high
    /// watermark.
    pub fn on_delete_records(&self, before: Offset) -> Result<Offset, Refused> {
        let bounds = self.offset_bounds(LeaderEpoch::NONE, Isolation::ReadUncommitted)?;
        let before = match before {
            HIGH_WATERMARK => bounds.latest,
            offset => offset,
        };
        if before < Offset::ZERO || before > bounds.latest {
            return Err(Refused::OutOfRange {
                offset: before,
                start: bounds.log_start,
                end: bounds.latest,
            });
        }
        Ok(before.max(bounds.log_start))
    }
}
