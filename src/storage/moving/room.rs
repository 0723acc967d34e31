//! Room for copies: a move takes none that its target has to keep free (ST-20).

use std::fmt;
use std::sync::Arc;

use crate::health::DirHealth;

/// What a log directory keeps free for the rest of one copy, beside its headroom and what other moves have still
/// to copy there. It is given back when this is dropped.
pub struct MoveRoom {
    health: Arc<DirHealth>,
    promised: u64,
}

impl MoveRoom {
    /// In the log directory of `health`; nothing so far.
    #[must_use]
    pub fn none(health: &Arc<DirHealth>) -> MoveRoom {
        MoveRoom {
            health: Arc::clone(health),
            promised: 0,
        }
    }

    /// Whether there is room for `missing` bytes, all that is still to be copied. From then on it is kept for this
    /// copy; where there is not enough, nothing is.
    #[must_use]
    pub fn has(&mut self, missing: u64) -> bool {
        if missing == 0 {
            self.give_back();
            return !self.health.is_full();
        }
        let free = self.health.free_bytes();
        let allowance = &self.health.allowance;
        let fits = !self.health.is_full() && allowance.promise(self.promised, missing, free);
        match fits {
            true => self.promised = missing,
            false => self.give_back(),
        }
        fits
    }

    /// So many bytes were copied.
    pub fn spend(&mut self, bytes: u64) {
        let kept = bytes.min(self.promised);
        self.health.allowance.release(kept);
        self.health.allowance.on_moved(bytes);
        self.promised -= kept;
    }

    /// Keeps nothing any more.
    pub fn give_back(&mut self) {
        let promised = std::mem::take(&mut self.promised);
        self.health.allowance.release(promised);
    }
}

impl Drop for MoveRoom {
    fn drop(&mut self) {
        self.give_back();
    }
}

impl fmt::Debug for MoveRoom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MoveRoom")
            .field("dir", &self.health.path())
            .field("promised", &self.promised)
            .finish()
    }
}
