//! A partition's part in a move to another log directory: its machine stays, its log gets another place.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use thalweg_control::DirIndex;
use thalweg_replica::{Acks, Refused};
use thalweg_storage::{DirHealth, FutureLog, Log, MoveError, ReadError};
use thalweg_types::Offset;
use thalweg_types::limits::MOVE_HELD_BYTES_MAX;

use super::{Partition, sink_of};
use crate::append_group::AppendGroup;
use crate::peer::AppendAsk;
use crate::producers;

/// Appends that wait until the log has its place.
#[derive(Default)]
pub(super) struct Held {
    appends: Vec<(AppendAsk, Acks, Rc<AppendGroup>)>,
    bytes: usize,
}

/// What has become of the last step of a move.
pub(crate) enum LastStep {
    /// The log is in its new place; the one that it left is to go.
    Moved {
        /// The log in its old place.
        left: Log,
        /// The move.
        future: FutureLog,
    },
    /// The copy was not complete; the move goes on, if the error may pass.
    NotYet(MoveError, FutureLog),
    /// The log stays where it is.
    Stayed(MoveError),
}

impl Partition {
    /// True while appends wait for the log's place.
    pub(crate) fn is_held(&self) -> bool {
        self.held.borrow().is_some()
    }

    /// The append, if it is not to wait.
    pub(super) fn unless_held(
        &self,
        ask: AppendAsk,
        acks: Acks,
        group: &Rc<AppendGroup>,
    ) -> Option<AppendAsk> {
        let mut held = self.held.borrow_mut();
        let Some(waiting) = held.as_mut() else {
            return Some(ask);
        };
        if waiting.bytes + ask.batch.len() > MOVE_HELD_BYTES_MAX {
            drop(held);
            self.refuse_append(ask.row, Refused::Congested, group);
            return None;
        }
        waiting.bytes += ask.batch.len();
        waiting.appends.push((ask, acks, Rc::clone(group)));
        None
    }

    /// Reads from the log where it is; again, if it has got another place meanwhile.
    ///
    /// # Errors
    /// Those of `read`.
    pub(super) async fn reading<T>(
        &self,
        read: impl AsyncFn(&Log) -> Result<T, ReadError>,
    ) -> Result<T, ReadError> {
        loop {
            let log = self.log();
            match read(&log).await {
                Err(ReadError::Closed) if !log.is(&self.log()) => {}
                done => return done,
            }
        }
    }

    /// Copies what is left, with appends held back, and gives the copy the place of the log.
    pub(crate) async fn last_step(
        self: &Rc<Self>,
        future: FutureLog,
        to: DirIndex,
        health: &Arc<DirHealth>,
    ) -> LastStep {
        self.held.replace(Some(Held::default()));
        let outcome = self.try_last_step(future, to, health).await;
        let held = self.held.take().unwrap_or_default();
        for (ask, acks, group) in held.appends {
            self.append(ask, acks, &group);
        }
        outcome
    }

    async fn try_last_step(
        self: &Rc<Self>,
        mut future: FutureLog,
        to: DirIndex,
        health: &Arc<DirHealth>,
    ) -> LastStep {
        let left = self.log();
        left.idle().await;
        let storing = self.snapshot_stored.borrow_mut().take();
        if let Some(storing) = storing {
            storing.await;
        }
        let standing = match future.complete(&left).await {
            Ok(standing) => standing,
            Err(error) => return LastStep::NotYet(error, future),
        };
        let opened = match future.take_place(&left).await {
            Ok(()) => self.open_moved(&left, health).await,
            Err(error) => Err(error),
        };
        let log = match opened {
            Ok(log) => log,
            Err(error) => {
                return match future.take_back(&left, &error).await {
                    Some(future) => LastStep::NotYet(error, future),
                    None => LastStep::Stayed(error),
                };
            }
        };
        // What came in between.
        log.raise_start(left.start_offset());
        log.set_options(left.options());
        log.inherit_damage(&left);
        let durable_end = log.durable_end();
        self.log.replace(log);
        self.place.set(self.place.get() + 1);
        self.dir.set(to);
        self.recorded.set(None);
        self.mark_recorded.set(None);
        let mut effects = Vec::new();
        self.replica
            .borrow_mut()
            .on_durable(durable_end, &mut effects);
        self.carry_out(effects);
        drop(standing);
        LastStep::Moved { left, future }
    }

    async fn open_moved(
        self: &Rc<Self>,
        left: &Log,
        health: &Arc<DirHealth>,
    ) -> Result<Log, MoveError> {
        let target = Rc::new(RefCell::new(Rc::downgrade(self)));
        let sink = sink_of(&target, self.place.get() + 1);
        let (log, report) = left.open_moved(health, sink).await?;
        if report.transactions_from.is_some() {
            producers::load(&log, &report).await?;
        }
        let (at, bytes) = self.replica.borrow().producer_snapshot();
        let is_stored = at == log.written_end() && producers::store(&log, at, bytes).await.is_ok();
        // Of the snapshots that were copied nobody knows whether they are whole.
        let kept = if is_stored { at } else { Offset::ZERO };
        self.snapshot_kept.set(kept);
        Ok(log)
    }
}
