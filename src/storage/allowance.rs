//! How much may be written before the next look at the room on the disk, so that what comes in between two
//! looks does not eat the headroom (ST-20).
//!
//! A look tells what is on the disk. What was taken since the look before it may be on its way still, and
//! counts against the room too; what is older is on the disk, or the disk stalls. Nobody counts while there is
//! more room than comes in between some looks.

use std::sync::atomic::{AtomicU64, Ordering};

use thalweg_types::limits::DISK_ROOM_COUNTED_BELOW_BYTES;

/// Bytes that clients may still write.
#[derive(Debug)]
pub(crate) struct Allowance {
    /// Above the headroom, at the last look.
    room: AtomicU64,
    /// Taken between the last look and the one before it.
    before: AtomicU64,
    /// Taken since the last look.
    since: AtomicU64,
}

impl Default for Allowance {
    /// Of a disk that nobody has looked at.
    fn default() -> Self {
        Allowance {
            room: AtomicU64::new(u64::MAX),
            before: AtomicU64::new(0),
            since: AtomicU64::new(0),
        }
    }
}

impl Allowance {
    /// A look has found so much room above the headroom.
    pub(crate) fn on_look(&self, room: u64) {
        let since = self.since.swap(0, Ordering::Relaxed);
        self.before.store(since, Ordering::Relaxed);
        self.room.store(room, Ordering::Relaxed);
    }

    /// Takes room for `bytes`; false when there is not so much.
    pub(crate) fn take(&self, bytes: u64) -> bool {
        let room = self.room.load(Ordering::Relaxed);
        if room >= DISK_ROOM_COUNTED_BELOW_BYTES {
            return true;
        }
        let taken = self.since.fetch_add(bytes, Ordering::Relaxed);
        let all = taken
            .saturating_add(bytes)
            .saturating_add(self.before.load(Ordering::Relaxed));
        let fits = all <= room;
        if !fits {
            self.since.fetch_sub(bytes, Ordering::Relaxed);
        }
        fits
    }
}

#[cfg(test)]
mod tests {
    use super::Allowance;

    #[test]
    fn st_20_what_is_taken_between_looks_stays_within_the_room() {
        let allowance = Allowance::default();
        assert!(allowance.take(u64::from(u32::MAX)));
        allowance.on_look(100);
        assert!(allowance.take(60) && !allowance.take(41) && allowance.take(40));
        assert!(!allowance.take(1));
        allowance.on_look(100);
        assert!(!allowance.take(1), "100 are on their way");
        allowance.on_look(100);
        assert!(allowance.take(100) && !allowance.take(1));
    }
}
