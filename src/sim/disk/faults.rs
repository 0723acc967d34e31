//! What a simulated disk does to its user besides losing power.

use thalweg_reactor::disk::{Operation, Verdict};

use crate::dice::Dice;

/// How often what goes wrong. 0 is never, `n` is once in `n`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// EIO, of any operation that reads or changes something.
    pub io_error_once_in: u64,
    /// Only part of a read or write happens, or a signal comes in between (R8).
    pub partial_once_in: u64,
    /// An operation takes many turns.
    pub slow_once_in: u64,
    /// The disk is full: nothing that needs room happens.
    pub full: bool,
    /// Its file system writes nothing in place: a full one may not have the room that a removal or another name takes.
    pub copy_on_write: bool,
    /// The process has hardly a file handle left: what needs one may get none.
    pub out_of_handles: bool,
}

impl Faults {
    /// What becomes of an operation. `grows` says whether it needs room.
    pub(super) fn judge(&self, operation: &Operation<'_>, grows: bool, dice: &mut Dice) -> Verdict {
        if happens(self.io_error_once_in, dice) {
            return Verdict::Fails(libc::EIO);
        }
        if self.out_of_handles && needs_handle(operation) && dice.once_in(2) {
            return Verdict::Fails(libc::EMFILE);
        }
        let len = match operation {
            Operation::Write(_, _, slices) => slices.iter().map(|slice| slice.len()).sum(),
            Operation::Read(..) => usize::MAX,
            Operation::Open(..)
            | Operation::Look(_)
            | Operation::Truncate(..)
            | Operation::Allocate(_)
            | Operation::Sync(_)
            | Operation::SyncDir(_)
            | Operation::CreateDir(_)
            | Operation::Rename(..)
            | Operation::Unlink(_)
            | Operation::RemoveDirAll(_) => 0,
        };
        if self.full && self.copy_on_write && changes_names(operation) && dice.once_in(2) {
            return Verdict::Fails(libc::ENOSPC);
        }
        if self.full && grows {
            // The last free block takes a part.
            return match len > 1 && dice.once_in(2) {
                true => Verdict::GoesUpTo(1 + dice.below_len(len - 1)),
                false => Verdict::Fails(libc::ENOSPC),
            };
        }
        if len > 1 && happens(self.partial_once_in, dice) {
            return match dice.below(4) {
                0 => Verdict::Fails(libc::EINTR),
                _ => Verdict::GoesUpTo(1 + dice.below_len(len.min(1_000))),
            };
        }
        undisturbed(operation)
    }

    /// Turns that pass.
    pub(super) fn delay(&self, dice: &mut Dice) -> u32 {
        let turns = match happens(self.slow_once_in, dice) {
            true => dice.below(60),
            false => dice.below(3),
        };
        u32::try_from(turns).unwrap_or(0)
    }
}

/// What a disk says on which nothing goes wrong.
pub(crate) fn undisturbed(operation: &Operation<'_>) -> Verdict {
    match operation {
        Operation::Sync(_) | Operation::SyncDir(_) => Verdict::Counts,
        Operation::Open(..)
        | Operation::Look(_)
        | Operation::Read(..)
        | Operation::Write(..)
        | Operation::Truncate(..)
        | Operation::Allocate(_)
        | Operation::CreateDir(_)
        | Operation::Rename(..)
        | Operation::Unlink(_)
        | Operation::RemoveDirAll(_) => Verdict::Goes,
    }
}

fn changes_names(operation: &Operation<'_>) -> bool {
    match operation {
        Operation::Rename(..) | Operation::Unlink(_) => true,
        Operation::Open(..)
        | Operation::Look(_)
        | Operation::Read(..)
        | Operation::Write(..)
        | Operation::Truncate(..)
        | Operation::Allocate(_)
        | Operation::Sync(_)
        | Operation::SyncDir(_)
        | Operation::CreateDir(_)
        | Operation::RemoveDirAll(_) => false,
    }
}

fn needs_handle(operation: &Operation<'_>) -> bool {
    match operation {
        Operation::Open(..) | Operation::SyncDir(_) => true,
        Operation::Look(_)
        | Operation::Read(..)
        | Operation::Write(..)
        | Operation::Truncate(..)
        | Operation::Allocate(_)
        | Operation::Sync(_)
        | Operation::CreateDir(_)
        | Operation::Rename(..)
        | Operation::Unlink(_)
        | Operation::RemoveDirAll(_) => false,
    }
}

fn happens(once_in: u64, dice: &mut Dice) -> bool {
    once_in > 0 && dice.once_in(once_in)
}
