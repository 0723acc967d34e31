//! A log's part in its move: it gets ready for the last step, and is opened in its new place.

use std::rc::Rc;
use std::sync::Arc;

use super::MoveError;
use crate::error::LogError;
use crate::health::DirHealth;
use crate::log::{Log, LogSink, State};
use crate::options::{LogOptions, Opening, Recovery};
use crate::recovery::RecoveryReport;
use crate::turn::TurnGuard;

/// Nothing is removed from a log, replaced in it or flushed while this is there: hold it for a short time only.
pub struct Standing<'a> {
    _turns: (TurnGuard<'a>, TurnGuard<'a>),
}

impl Log {
    /// Returns when nothing of the log is being written. Its owner holds appends back.
    pub async fn idle(&self) {
        self.inner.idle.until(|| !self.is_writing()).await;
    }

    pub(super) async fn stand_still(&self) -> Standing<'_> {
        Standing {
            _turns: self.both_turns().await,
        }
    }

    /// Begins a segment, so that what is copied last is little; returns when that is done and what is closed is
    /// on the disk.
    ///
    /// # Errors
    /// As [`Log::flush`].
    pub async fn roll_for_move(&self) -> Result<(), LogError> {
        self.roll_active().await;
        self.flush_in_background().await.map(drop)
    }

    /// The properties that it obeys.
    #[must_use]
    pub fn options(&self) -> LogOptions {
        self.inner.state.borrow().options.clone()
    }

    /// True when the two are one.
    #[must_use]
    pub fn is(&self, other: &Log) -> bool {
        Rc::ptr_eq(&self.inner, &other.inner)
    }

    /// Opens the log in its new place, the log directory of `health`, where [`super::FutureLog::take_place`] has
    /// brought it; this one is as it was. To be called while it stands still.
    ///
    /// # Errors
    /// See [`MoveError`]; nothing is changed in either place.
    pub async fn open_moved(
        &self,
        health: &Arc<DirHealth>,
        sink: LogSink,
    ) -> Result<(Log, RecoveryReport), MoveError> {
        let (options, opening, end, bytes) = {
            let state = self.inner.state.borrow();
            let mut options = state.options.clone();
            options.health = Arc::clone(health);
            let opening = Opening {
                log_start: Some(state.start),
                cleaned_to: state.cleaned_to,
                // Only what was copied last is read again.
                ..Opening::from(Recovery::AfterCrash {
                    recovery_point: state.active().base,
                })
            };
            (options, opening, state.written_end, served_bytes(&state))
        };
        let name = self.name().clone();
        let (log, report) = Log::open(health.path(), name, options, opening, sink).await?;
        // What DeleteRecords has put below the start since it was copied is in the copy still.
        let copied = served_bytes(&log.inner.state.borrow());
        if (log.written_end(), copied) != (end, bytes) {
            return Err(MoveError::Differs {
                dir: log.dir().to_owned(),
                copy: log.written_end(),
                copy_bytes: copied,
                log: end,
                log_bytes: bytes,
            });
        }
        let owed = self.inner.state.borrow().epochs_owed.clone();
        if let Some(epochs) = owed {
            // Here nobody would know that the file lacks one.
            log.store_epochs(&epochs).await?;
        }
        log.flush().await?;
        Ok((log, report))
    }
}

/// Bytes of the segments that hold something at or above the log's start.
fn served_bytes(state: &State) -> u64 {
    let served = state.served().iter();
    served.map(|segment| segment.size.get()).sum()
}
