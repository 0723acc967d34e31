//! File reads and writes: one interface, two engines.
//!
//! The *ring* engine gives operations to the kernel by io_uring; the *plain* engine makes ordinary
//! system calls on worker threads, for machines that refuse io_uring; a *simulated* disk has them made
//! on the thread itself ([`crate::disk`]). All own an operation (its
//! file handle, its buffers) until its result is known, go on after partial results, and are drained
//! before their runtime ends.

mod op;
mod plain;
mod ring;
mod ring_setup;

use std::io;
use std::rc::Rc;

pub(crate) use op::{Finished, Op, ReadOp, WriteOp};
use op::{Resubmits, Step};
pub(crate) use plain::{Plain, run_op};
pub(crate) use ring::Ring;
pub(crate) use ring_setup::{RingSetup, kernel_setup};

use crate::disk::{self, Disk};
use crate::in_place;
use crate::stats;
use crate::sys;
use crate::workers::{Pool, SHARED_DATA};
use crate::{context, runtime::RuntimeOptions};

/// Which engine a runtime shall have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EngineChoice {
    /// The ring where the kernel allows one, else the plain engine.
    #[default]
    Auto,
    /// The ring or an error.
    Ring,
    /// The plain engine.
    Plain,
}

/// Which engine a runtime has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EngineKind {
    /// io_uring.
    Ring,
    /// System calls on worker threads.
    Plain,
    /// System calls on the runtime's own thread, with a simulated disk in between.
    Simulated,
}

impl EngineKind {
    /// The word for logs and metrics.
    pub fn name(self) -> &'static str {
        match self {
            EngineKind::Ring => "ring",
            EngineKind::Plain => "plain",
            EngineKind::Simulated => "simulated",
        }
    }
}

/// What a runtime got, for one clear line in the log and one metric.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineReport {
    /// The engine.
    pub kind: EngineKind,
    /// Why it is less than the best (a smaller ring, fewer flags, no ring), or `None`.
    pub reason: Option<String>,
    /// Submission entries of the ring; 0 without one.
    pub entries: u32,
    /// Setup flags of the ring, for people to read; empty without one.
    pub flags: &'static str,
}

pub(crate) enum Engine {
    Ring(Rc<Ring>),
    Plain(Plain),
    Simulated(Rc<dyn Disk>),
}

impl Engine {
    /// Makes the engine of `options`. `setup` stands between us and the kernel, so that tests can
    /// refuse a ring in each way a kernel does.
    pub(crate) fn new(
        options: &RuntimeOptions,
        setup: RingSetup<'_>,
    ) -> io::Result<(Engine, EngineReport)> {
        let wanted = match options.engine {
            EngineChoice::Plain => Err(None),
            EngineChoice::Auto | EngineChoice::Ring => {
                ring_setup::set_up(options.ring_entries, setup).map_err(Some)
            }
        };
        match wanted {
            Ok(made) => {
                ring_setup::limit_workers(&made.uring, options);
                let report = EngineReport {
                    kind: EngineKind::Ring,
                    reason: made.reason,
                    entries: made.uring.params().sq_entries(),
                    flags: made.flags.name(),
                };
                Ok((Engine::Ring(Rc::new(Ring::new(made.uring))), report))
            }
            Err(Some(refusal)) if options.engine == EngineChoice::Ring => {
                Err(io::Error::new(io::ErrorKind::Unsupported, refusal))
            }
            Err(reason) => {
                let report = EngineReport {
                    kind: EngineKind::Plain,
                    reason,
                    entries: 0,
                    flags: "",
                };
                Ok((Engine::Plain(Plain::new(options.plain_threads)), report))
            }
        }
    }

    /// The engine of a runtime with a simulated disk.
    pub(crate) fn simulated(disk: Rc<dyn Disk>) -> (Engine, EngineReport) {
        let report = EngineReport {
            kind: EngineKind::Simulated,
            reason: None,
            entries: 0,
            flags: "",
        };
        (Engine::Simulated(disk), report)
    }

    pub(crate) fn after_poll(&self) {
        match self {
            Engine::Ring(ring) => ring.after_poll(),
            Engine::Plain(_) | Engine::Simulated(_) => {}
        }
    }

    /// Waits, blocking the thread, until no operation is in flight. Nothing may start one meanwhile.
    pub(crate) fn drain(&self) {
        match self {
            Engine::Ring(ring) => ring.drain(),
            Engine::Plain(_) => {} // its jobs are counted in `Context::in_flight`
            Engine::Simulated(_) => {} // its operations are over when they return
        }
    }
}

/// Runs one operation on the engine of the calling thread. The operation begins when the future is
/// first polled; from then on it runs to its end, also if the future is dropped.
pub(crate) async fn run(op: Op) -> Finished {
    stats::count(|stats| stats.ops_started += 1);
    let op = match in_place::is_on() && !disk::is_simulated() {
        true => match read_cached(op) {
            Ok(finished) => {
                finished.count();
                return finished;
            }
            Err(op) => op,
        },
        false => op,
    };
    let finished = match context::current() {
        Some(context) => match &context.engine {
            Engine::Ring(ring) => Rc::clone(ring).run(op).await,
            Engine::Plain(plain) => run_on(plain.pool(), op).await,
            Engine::Simulated(_) => {
                disk::delay().await;
                let finished = run_op(op);
                disk::delay().await;
                finished
            }
        },
        None => run_on(&SHARED_DATA, op).await,
    };
    finished.count();
    finished
}

/// Reads what is in memory. Gives the operation back with what is left to be done.
fn read_cached(mut op: Op) -> Result<Finished, Op> {
    let mut resubmits = Resubmits::default();
    let fd = op.fd();
    loop {
        let Op::Read(read) = &mut op else {
            return Err(op);
        };
        let position = read.position();
        let Ok(done) = sys::read_at(fd, read.rest(), position, libc::RWF_NOWAIT) else {
            return Err(op);
        };
        match op.on_result(Ok(done), &mut resubmits) {
            Step::Rest | Step::RestBlocking => {}
            Step::Done(result) => {
                return Ok(Finished {
                    op: Some(op),
                    resubmits,
                    result,
                });
            }
        }
    }
}

async fn run_on(pool: &Pool, op: Op) -> Finished {
    let tried = pool.run(move || Ok(run_op(op))).await;
    match tried {
        Ok(finished) => finished,
        Err(error) => Finished::lost(error),
    }
}
