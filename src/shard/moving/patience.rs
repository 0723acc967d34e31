//! How long a move waits for what has changed, or is lacking, and when that was often enough.

use std::time::Duration;

use thalweg_storage::MoveError;
use thalweg_types::limits::{
    MOVE_AGAIN_AFTER_MS, MOVE_AGAIN_AFTER_MS_MAX, MOVE_DIFFERS_MAX, MOVE_TRIES_MAX,
};

/// The failures of one move so far.
#[derive(Default)]
pub(super) struct Patience {
    in_a_row: u32,
    differed: u32,
}

impl Patience {
    /// Something was copied.
    pub(super) fn on_progress(&mut self) {
        self.in_a_row = 0;
    }

    /// How long to wait before the next try; `None` when the move is to be given up. What the system lacks is waited
    /// for as long as it takes.
    pub(super) fn after(&mut self, error: &MoveError) -> Option<Duration> {
        let failures = self.in_a_row;
        self.in_a_row = failures.saturating_add(1);
        self.differed += u32::from(matches!(error, MoveError::Differs { .. }));
        let is_over = self.in_a_row >= MOVE_TRIES_MAX && !error.is_lack();
        if !error.may_pass() || is_over || self.differed >= MOVE_DIFFERS_MAX {
            return None;
        }
        let wait = MOVE_AGAIN_AFTER_MS << failures.min(20);
        Some(Duration::from_millis(wait.min(MOVE_AGAIN_AFTER_MS_MAX)))
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::path::PathBuf;
    use std::time::Duration;

    use thalweg_storage::{LogError, MoveError};
    use thalweg_types::Offset;
    use thalweg_types::limits::{MOVE_DIFFERS_MAX, MOVE_TRIES_MAX};

    use super::Patience;

    fn refused(kind: io::ErrorKind) -> MoveError {
        MoveError::Log(LogError::Io {
            operation: "write",
            path: PathBuf::from("/d/f"),
            source: io::Error::from(kind),
        })
    }

    #[test]
    fn kip_113_a_log_that_changes_is_tried_again_ever_later_and_not_for_ever() {
        let mut patience = Patience::default();
        let mut waits = Vec::new();
        while let Some(wait) = patience.after(&MoveError::Changed) {
            waits.push(wait.as_millis());
        }
        assert_eq!(waits[..4], [250, 500, 1_000, 2_000]);
        assert_eq!(waits.last(), Some(&30_000));
        assert_eq!(waits.len() as u32, MOVE_TRIES_MAX - 1);
        patience.on_progress();
        let again = patience.after(&MoveError::Changed);
        assert_eq!(again, Some(Duration::from_millis(250)));
    }

    #[test]
    fn kip_113_what_is_lacking_is_waited_for_and_what_is_broken_is_not() {
        let mut patience = Patience::default();
        for _ in 0..10 * MOVE_TRIES_MAX {
            assert!(
                patience
                    .after(&refused(io::ErrorKind::StorageFull))
                    .is_some()
            );
        }
        let broken = refused(io::ErrorKind::InvalidData);
        assert_eq!(Patience::default().after(&broken), None);
    }

    #[test]
    fn kip_113_a_copy_that_differs_is_made_anew_a_few_times() {
        let differs = MoveError::Differs {
            dir: PathBuf::from("/d/t-0"),
            copy: Offset(1),
            copy_bytes: 1,
            log: Offset(2),
            log_bytes: 2,
        };
        let mut patience = Patience::default();
        for _ in 1..MOVE_DIFFERS_MAX {
            assert!(patience.after(&differs).is_some());
            patience.on_progress();
        }
        assert_eq!(patience.after(&differs), None);
    }
}
