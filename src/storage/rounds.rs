//! Flushes that begin because of what was written, or of its age.
//!
//! With `flush.messages=1` every acknowledgement waits for an fdatasync, but not for one of its own: a
//! log has one round under way, which covers all that was written when its fdatasync began, and what is
//! written meanwhile rides the next. So the rounds of a log follow each other without a pause while
//! there is something to make durable, and a busy log makes more records durable per round. Rounds of
//! the logs of one directory share the threads of its [`thalweg_reactor::fs::Syncer`].
//!
//! Any other value only says how many records may wait for the disk before a flush begins in the
//! background; nobody waits for it. So do the bytes and the age that a log may have unflushed, which
//! pace the flushes of every log: they bound what a crash of the system can take and what the start after
//! it has to check.

use std::rc::Rc;

use thalweg_reactor::task;
use thalweg_reactor::time::{self, Instant};

use crate::ahead;
use crate::error::LogError;
use crate::flush::{Reach, Runner};
use crate::log::{Inner, Log, Stage, State};

/// Begins rounds if the options ask for them and none is under way.
pub(crate) fn begin_if_due(inner: &Rc<Inner>) {
    {
        let mut state = inner.state.borrow_mut();
        if state.syncing || !is_due(&state) {
            return;
        }
        state.syncing = true;
    }
    task::spawn(flush_while_due(Rc::clone(inner)));
}

fn is_due(state: &State) -> bool {
    match state.stage {
        Stage::Open | Stage::Closing => {}
        Stage::Closed | Stage::Offline(_) => return false,
    }
    let waiting = (state.written_end.0 - state.durable_end.0).unsigned_abs();
    waiting >= state.options.flush_messages.max(1)
        || state.active_unsynced_bytes() >= state.options.flush_bytes
}

async fn flush_while_due(inner: Rc<Inner>) {
    let log = Log { inner };
    loop {
        {
            let mut state = log.inner.state.borrow_mut();
            if !is_due(&state) {
                state.syncing = false;
                return;
            }
        }
        let waits = log.inner.state.borrow().options.acks_wait();
        let flushed = match waits {
            true => log.ack_round().await,
            false => log.flush_in_background().await.map(|_| ()),
        };
        if flushed.is_err() {
            // The log is offline or closed; the sink was told.
            log.inner.state.borrow_mut().syncing = false;
            return;
        }
    }
}

impl Log {
    /// True when something is written for longer than [`crate::LogOptions::flush_ms`] and not on the
    /// disk.
    #[must_use]
    pub fn is_flush_due(&self, now: Instant) -> bool {
        let state = self.inner.state.borrow();
        let old = state.dirty_since.is_some_and(|since| {
            let age = now.saturating_duration_since(since);
            age.as_millis() >= u128::from(state.options.flush_ms)
        });
        old && !state.syncing && state.stage == Stage::Open
    }

    async fn ack_round(&self) -> Result<(), LogError> {
        let began = time::now();
        let _turn = self.inner.flush_turn_soon().await;
        self.check_open()?;
        if !is_due(&self.inner.state.borrow()) {
            // A flush in the background has had the turn and has covered it.
            return Ok(());
        }
        let bytes = self.inner.state.borrow().active_unsynced_bytes();
        self.sync_now(Reach::Everything, Runner::Acks).await?;
        ahead::keep_ahead(&self.inner, bytes);
        let state = self.inner.state.borrow();
        let mut metrics = state.options.metrics.borrow_mut();
        metrics.counters.ack_flushes += 1;
        metrics.record(thalweg_metrics::Stage::AckFlush, time::now() - began);
        Ok(())
    }
}
