//! How much may be written before the next look at the room on the disk, so that what comes in between two
//! looks does not eat the headroom (ST-20), and how much of it moves of logs were promised.
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
    /// What moves have written since the last look: that it is there, the next one sees.
    moved: AtomicU64,
    /// What moves have still to write.
    promised: AtomicU64,
}

impl Default for Allowance {
    /// Of a disk that nobody has looked at.
    fn default() -> Self {
        Allowance {
            room: AtomicU64::new(u64::MAX),
            before: AtomicU64::new(0),
            since: AtomicU64::new(0),
            moved: AtomicU64::new(0),
            promised: AtomicU64::new(0),
        }
    }
}

impl Allowance {
    /// A look has found so much room above the headroom.
    pub(crate) fn on_look(&self, room: u64) {
        let since = self.since.swap(0, Ordering::Relaxed);
        self.before.store(since, Ordering::Relaxed);
        self.moved.store(0, Ordering::Relaxed);
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
            .saturating_add(self.before.load(Ordering::Relaxed))
            .saturating_add(self.moved.load(Ordering::Relaxed));
        let fits = all <= room;
        if !fits {
            self.since.fetch_sub(bytes, Ordering::Relaxed);
        }
        fits
    }

    /// Changes what one move is promised from `had` to `wanted`, if that fits `free` bytes, which the last look
    /// has found, beside what others were promised. False, and all is as it was, when it does not.
    pub(crate) fn promise(&self, had: u64, wanted: u64, free: u64) -> bool {
        let taken = [&self.since, &self.before, &self.moved];
        let taken: u64 = taken.iter().map(|some| some.load(Ordering::Relaxed)).sum();
        let free = free.saturating_sub(taken);
        let changed = |all: u64| {
            let with = all.saturating_sub(had).saturating_add(wanted);
            (with <= free).then_some(with)
        };
        let (set, get) = (Ordering::Relaxed, Ordering::Relaxed);
        self.promised.fetch_update(set, get, changed).is_ok()
    }

    /// So much that was promised is not wanted any more.
    pub(crate) fn release(&self, bytes: u64) {
        self.promised.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// A move has written so much.
    pub(crate) fn on_moved(&self, bytes: u64) {
        self.moved.fetch_add(bytes, Ordering::Relaxed);
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
    #[test]
    fn st_20_moves_are_promised_no_more_than_there_is() {
        let allowance = Allowance::default();
        allowance.on_look(100);
        assert!(allowance.promise(0, 60, 100));
        assert!(!allowance.promise(0, 41, 100) && allowance.promise(0, 40, 100));
        // There is less now: the second leaves its part to the first.
        assert!(!allowance.promise(40, 40, 99));
        allowance.release(40);
        assert!(allowance.promise(60, 99, 99) && !allowance.promise(99, 100, 99));
        // What is written is promised no longer, and is not free.
        assert!(allowance.promise(99, 60, 100));
        allowance.release(20);
        allowance.on_moved(20);
        assert!(allowance.promise(40, 40, 100) && !allowance.promise(0, 41, 100));
        assert!(!allowance.take(81) && allowance.take(80));
        allowance.on_look(80);
        allowance.on_look(80);
        assert!(allowance.promise(0, 40, 80) && !allowance.promise(0, 1, 80));
    }
}
