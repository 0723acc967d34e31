//! Flushes that begin because of what was written: `flush.messages`.
//!
//! With `flush.messages=1` every acknowledgement waits for an fdatasync, but not for one of its own: a
//! log has one round under way, which covers all that was written when its fdatasync began, and what is
//! written meanwhile rides the next. So the rounds of a log follow each other without a pause while
//! there is something to make durable, and a busy log makes more records durable per round. Rounds of
//! the logs of one directory share the threads of its [`thalweg_reactor::fs::Syncer`].
//!
//! Any other value only says how many records may wait for the disk before a flush begins in the
//! background; nobody waits for it.

use std::rc::Rc;

use thalweg_reactor::{task, time};

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
            false => log.flush().await.map(|_| ()),
        };
        if flushed.is_err() {
            // The log is offline or closed; the sink was told.
            log.inner.state.borrow_mut().syncing = false;
            return;
        }
    }
}

impl Log {
    async fn ack_round(&self) -> Result<(), LogError> {
        let began = time::now();
        let _turn = self.inner.flush_turn.take().await;
        self.check_open()?;
        if !is_due(&self.inner.state.borrow()) {
            // A flush in the background has had the turn and has covered it.
            return Ok(());
        }
        self.sync_now(Reach::Everything, Runner::Syncer).await?;
        let state = self.inner.state.borrow();
        let mut metrics = state.options.metrics.borrow_mut();
        metrics.counters.ack_flushes += 1;
        metrics.record(thalweg_metrics::Stage::AckFlush, time::now() - began);
        Ok(())
    }
}
