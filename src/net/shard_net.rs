//! What all connections of one shard share: limits, memory, metrics, and the sweeper that closes
//! those whose deadline has passed.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use thalweg_metrics::{CloseReason, CoreMetrics};
use thalweg_reactor::{LogGate, task, time};
use thalweg_types::ListenerIndex;

use crate::answers::AnswerMemory;
use crate::budget::Kind;
use crate::conn::ConnState;
use crate::queue::ResponseQueue;
use crate::read_buffers::ReadBuffers;
use crate::{Closing, Limits, MemoryBudget};

/// The connections of one shard.
pub struct ShardNet {
    limits: Limits,
    /// [`Limits::sweep_interval`], which every request needs.
    sweep_interval: Duration,
    budget: MemoryBudget,
    answers: Rc<AnswerMemory>,
    read_buffers: ReadBuffers,
    metrics: Rc<RefCell<CoreMetrics>>,
    open: RefCell<HashMap<u64, Rc<ConnState>>>,
    last_id: Cell<u64>,
    /// The sweeper's clock: reading the real one for each deadline would cost more than it is worth.
    coarse_now: Cell<Instant>,
    sweeping: Cell<bool>,
    stopping: Cell<bool>,
    empty_wakers: RefCell<Vec<Waker>>,
    gates: [LogGate; CloseReason::COUNT],
}

impl ShardNet {
    /// State for the connections of the calling thread's shard.
    #[must_use]
    pub fn new(limits: Limits, metrics: Rc<RefCell<CoreMetrics>>) -> Rc<ShardNet> {
        let budget = MemoryBudget::new(limits.request_memory_bytes, limits.request_bytes_max);
        metrics.borrow_mut().counters.memory_budget_limit = budget.limit();
        let answers = Rc::new(AnswerMemory::new(limits.answer_memory_bytes));
        Rc::new(ShardNet {
            sweep_interval: limits.sweep_interval(),
            limits,
            budget,
            answers,
            read_buffers: ReadBuffers::default(),
            metrics,
            open: RefCell::default(),
            last_id: Cell::new(0),
            coarse_now: Cell::new(time::now()),
            sweeping: Cell::new(false),
            stopping: Cell::new(false),
            empty_wakers: RefCell::default(),
            gates: Default::default(),
        })
    }

    /// Bounds of each connection.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Memory of admitted requests.
    #[must_use]
    pub fn budget(&self) -> &MemoryBudget {
        &self.budget
    }

    /// Memory to read the beginnings of frames into.
    pub(crate) fn read_buffers(&self) -> &ReadBuffers {
        &self.read_buffers
    }

    /// The numbers of this core.
    #[must_use]
    pub fn metrics(&self) -> &RefCell<CoreMetrics> {
        &self.metrics
    }

    /// Connections open now.
    #[must_use]
    pub fn open_connections(&self) -> usize {
        self.open.borrow().len()
    }

    /// The connections open now, in no order.
    #[must_use]
    pub fn connections(&self) -> Vec<Rc<ConnState>> {
        self.open.borrow().values().cloned().collect()
    }

    /// Brings the gauges that are read only by scrapes up to date.
    pub fn refresh_gauges(&self) {
        let mut metrics = self.metrics.borrow_mut();
        metrics.counters.memory_budget_used = self.budget.used();
        metrics.counters.answer_memory_used = self.answers.used() as u64;
        metrics.counters.memory_budget_waits = self.budget.waits();
        metrics.counters.connections_open = self.open.borrow().len() as u64;
    }

    /// Stops reading: each connection ends when the requests it has sent are answered.
    pub fn begin_stop(&self) {
        self.stopping.set(true);
        self.open
            .borrow()
            .values()
            .for_each(|conn| conn.life.wake());
    }

    /// True after [`ShardNet::begin_stop`].
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.stopping.get()
    }

    /// Ends every connection now; answers that are not ready are dropped.
    pub fn close_all(&self) {
        self.open
            .borrow()
            .values()
            .for_each(|conn| conn.life.end(CloseReason::Stopping));
    }

    /// Ends when no connection is open.
    pub async fn wait_empty(&self) {
        poll_fn(|cx| {
            if self.open.borrow().is_empty() {
                return Poll::Ready(());
            }
            self.empty_wakers.borrow_mut().push(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// A point in time `window` from now by the sweeper's clock; never too early.
    pub(crate) fn due_in(&self, window: Duration) -> Instant {
        self.coarse_now.get() + self.sweep_interval + window
    }

    /// The sweeper's clock.
    pub(crate) fn coarse_now(&self) -> Instant {
        self.coarse_now.get()
    }

    pub(crate) fn enter(self: &Rc<Self>, listener: ListenerIndex, peer: SocketAddr) -> Membership {
        let id = self.last_id.get() + 1;
        self.last_id.set(id);
        let now = time::now();
        if !self.sweeping.replace(true) {
            self.coarse_now.set(now);
            task::spawn(sweep(Rc::clone(self)));
        }
        let queue = ResponseQueue::new(self.limits.backlog_bytes_max, Rc::clone(&self.answers));
        let conn = Rc::new(ConnState::new(id, listener, peer, now, queue));
        self.open.borrow_mut().insert(id, Rc::clone(&conn));
        self.metrics.borrow_mut().counters.connections_open += 1;
        Membership {
            net: Rc::clone(self),
            conn,
        }
    }

    /// Counts and reports the end of a connection.
    pub(crate) fn report_end(&self, conn: &ConnState, closing: &Closing) {
        self.metrics.borrow_mut().count_closed(closing.reason);
        let reason = closing.reason.label();
        let detail = closing.detail.as_deref().unwrap_or("");
        match closing.reason {
            CloseReason::ClientClosed | CloseReason::Idle | CloseReason::Stopping => {
                tracing::debug!(%conn, reason, detail, "connection closed");
            }
            CloseReason::SlowFrame
            | CloseReason::SlowReader
            | CloseReason::BadFrame
            | CloseReason::BadRequest
            | CloseReason::IllegalState
            | CloseReason::SocketError
            | CloseReason::StorageError
            | CloseReason::Internal => {
                let Some(more) = self.gates[closing.reason.index()].admit(time::now()) else {
                    return;
                };
                tracing::warn!(%conn, reason, detail, left_out = more, "connection closed");
            }
        }
    }

    /// Ends the connections whose deadline has passed.
    fn sweep_once(&self, now: Instant) {
        self.coarse_now.set(now);
        for conn in self.open.borrow().values() {
            conn.life.wake_if_due(now);
            if let Some(reason) = conn.overdue(now, &self.limits) {
                conn.life.end(reason);
            }
        }
        self.read_buffers.free_unused();
        if self.answers.is_full() {
            self.relieve(now);
        }
        self.make_way(now, Kind::Arriving);
        self.make_way(now, Kind::General);
    }

    /// Ends connections whose requests arrive too slowly while others wait for their memory: the slowest
    /// goes first, until those fit.
    fn make_way(&self, now: Instant, kind: Kind) {
        let mut wanted = self.budget.wanted(kind);
        if wanted == 0 {
            return;
        }
        let open = self.open.borrow();
        let mut lagging: Vec<_> = open
            .values()
            .filter_map(|conn| Some((conn.lags(now, kind, &self.limits)?, conn)))
            .collect();
        lagging.sort_unstable_by_key(|((pace, _), _)| *pace);
        for ((_, bytes), conn) in lagging {
            if wanted == 0 {
                break;
            }
            wanted = wanted.saturating_sub(bytes);
            conn.life.end(CloseReason::SlowFrame);
        }
    }

    /// Ends connections whose clients take nothing while others can not begin their answers: who has
    /// stalled longest goes first, until there is room.
    fn relieve(&self, now: Instant) {
        let open = self.open.borrow();
        let mut stalled: Vec<_> = open
            .values()
            .filter_map(|conn| Some((conn.stalled(&self.limits)?, conn)))
            .filter(|((since, _), _)| *since + self.limits.answer_pressure <= now)
            .collect();
        stalled.sort_unstable_by_key(|((since, _), _)| *since);
        let mut excess = self.answers.excess();
        for ((_, bytes), conn) in stalled {
            if excess == 0 {
                break;
            }
            excess = excess.saturating_sub(bytes);
            conn.life.end(CloseReason::SlowReader);
        }
    }
}

/// Runs while connections are open; an idle broker wakes for nothing.
async fn sweep(net: Rc<ShardNet>) {
    let interval = net.sweep_interval;
    while net.open_connections() > 0 {
        time::sleep(interval).await;
        net.sweep_once(time::now());
    }
    net.read_buffers.free_unused();
    net.read_buffers.free_unused();
    net.sweeping.set(false);
}

/// A connection's place in the list of open ones; dropping it leaves the list.
pub(crate) struct Membership {
    net: Rc<ShardNet>,
    pub(crate) conn: Rc<ConnState>,
}

impl Drop for Membership {
    fn drop(&mut self) {
        // Dropped after the queue is free again: an answer's end may look at its connection.
        let abandoned = self.conn.queue.borrow_mut().abandon();
        drop(abandoned);
        let empty = {
            let mut open = self.net.open.borrow_mut();
            open.remove(&self.conn.id());
            open.is_empty()
        };
        let mut metrics = self.net.metrics.borrow_mut();
        metrics.counters.connections_open = metrics.counters.connections_open.saturating_sub(1);
        if empty {
            self.net
                .empty_wakers
                .borrow_mut()
                .drain(..)
                .for_each(Waker::wake);
        }
    }
}
