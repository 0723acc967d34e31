//! What the file of a time index says last, held against its log when it is loaded.
//!
//! The last entry says how young a segment is: lookups by time pass a segment over by it, and retention takes one. A
//! wrong one passes all that a file can tell by itself. But it names a batch, which is nearly always among those that are
//! looked at anyway, behind the last entry of the offset index; else its header is read. And both indexes get their
//! entries at once, so that the last batch in the offset index has no larger timestamp, unless the end of the file is
//! gone. Kafka compares the last entry with the first, and no index below the recovery point.

use std::io;

use thalweg_reactor::fs::File;

use crate::indexes::{Holds, Indexes};
use crate::scan::{BatchScan, Check, Step};
use crate::segment::Segment;
use crate::unreadable::unless_unreadable;

/// Whether the time index that `indexes` were read from does not fit the batches, of which those behind its last entry
/// were shown. Where the batches are damaged it is not told.
///
/// # Errors
/// The system's.
pub(crate) async fn is_wrong(
    segment: &Segment,
    file: &File,
    indexes: &Indexes,
) -> io::Result<bool> {
    if indexes.is_contradicted() {
        return Ok(true);
    }
    let Some((position, told)) = indexes.unseen() else {
        return Ok(false);
    };
    let size = segment.size.get();
    let mut scan = BatchScan::new(file.clone(), Check::Headers, segment.base, position, size);
    loop {
        if segment.skip_damage(&mut scan) {
            return Ok(false);
        }
        match unless_unreadable(scan.next().await)? {
            Step::Batch(mark, _) => match told.holds(&mark) {
                Holds::Yes => return Ok(false),
                Holds::No => return Ok(true),
                Holds::NotThere => {}
            },
            Step::End => return Ok(true),
            Step::Bad(_) => return Ok(false),
        }
    }
}
