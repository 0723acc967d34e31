//! The runtime of one thread: scheduler, timers, engine, pin.

use std::future::Future;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;

use tokio::runtime::{Builder, LocalOptions, LocalRuntime};

use crate::context::{self, Context};
use crate::cores;
use crate::disk::Disk;
use crate::engine::{Engine, EngineChoice, EngineReport, RingSetup, kernel_setup};
use crate::sync::home;
use crate::{sys, task, workers};

/// Polls of tasks between two looks at epoll and timers while tasks are ready all the time. tokio's
/// own 61 would let a new request wait for 61 quanta of `sendfile`.
const POLLS_PER_EVENT_CHECK: u32 = 16;
/// Polls of tasks between two looks at what other threads have woken.
const POLLS_PER_REMOTE_CHECK: u32 = 8;
/// Threads of a background runtime for reads and writes: it does one thing after the other.
const BACKGROUND_DATA_THREADS: usize = 1;
/// Longest thread name that Linux keeps, in bytes.
const THREAD_NAME_BYTES_MAX: usize = 15;

/// What a runtime shall be like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuntimeOptions {
    /// Name of the thread, for [`spawn_shard_thread`] and messages; cut to 15 bytes.
    pub name: String,
    /// Core to pin the thread to.
    pub pin_to: Option<usize>,
    /// Which engine for file reads and writes.
    pub engine: EngineChoice,
    /// Submission entries of the ring; clamped to what the kernel allows, rounded up to a power of 2.
    pub ring_entries: u32,
    /// Most kernel workers of the ring.
    pub io_workers: u32,
    /// Cores on which those may run; `None` for all that the process may use.
    pub io_worker_cores: Option<Vec<usize>>,
    /// Most threads of the plain engine for reads and writes.
    pub plain_threads: usize,
}

impl Default for RuntimeOptions {
    fn default() -> Self {
        RuntimeOptions {
            name: "thalweg".to_owned(),
            pin_to: None,
            engine: EngineChoice::Auto,
            ring_entries: 1_024,
            io_workers: 8,
            io_worker_cores: None,
            plain_threads: 4,
        }
    }
}

/// Whether the thread is pinned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pinning {
    /// Nobody asked for it.
    Free,
    /// To this core.
    Pinned(usize),
    /// It was asked for, and this is why not; the thread runs unpinned.
    Refused {
        /// The core asked for.
        core: usize,
        /// What the kernel said.
        reason: String,
    },
}

/// The runtime of the thread that made it; it cannot leave that thread. A thread has at most one.
///
/// Dropping it drops its tasks, then waits until every file operation that they began is over.
pub struct Runtime {
    /// `None` only inside `drop`.
    tokio: Option<LocalRuntime>,
    context: Rc<Context>,
    report: EngineReport,
    pinning: Pinning,
}

impl Runtime {
    /// Makes the calling thread's runtime. What cannot be had (the pin, the ring) is reported by
    /// [`Runtime::pinning`] and [`Runtime::engine`], not an error.
    ///
    /// # Errors
    /// `AlreadyExists` if the thread has a runtime; `Unsupported` if [`EngineChoice::Ring`] was asked
    /// for and refused; or what making the event loop says (file descriptors).
    pub fn new(options: RuntimeOptions) -> io::Result<Runtime> {
        Runtime::with_ring_setup(options, &kernel_setup)
    }

    pub(crate) fn with_ring_setup(
        options: RuntimeOptions,
        setup: RingSetup<'_>,
    ) -> io::Result<Runtime> {
        refuse_second()?;
        let pinning = pin(options.pin_to);
        Runtime::with_engine(Engine::new(&options, setup)?, pinning)
    }

    /// Makes a runtime whose file operations `disk` stands in front of, for tests and simulations.
    ///
    /// # Errors
    /// As [`Runtime::new`].
    pub fn simulated(disk: Rc<dyn Disk>) -> io::Result<Runtime> {
        refuse_second()?;
        Runtime::with_engine(Engine::simulated(disk), Pinning::Free)
    }

    fn with_engine(
        (engine, report): (Engine, EngineReport),
        pinning: Pinning,
    ) -> io::Result<Runtime> {
        let tokio = Builder::new_current_thread()
            .enable_all()
            .event_interval(POLLS_PER_EVENT_CHECK)
            .global_queue_interval(POLLS_PER_REMOTE_CHECK)
            .build_local(LocalOptions::default())?;
        if let Engine::Ring(ring) = &engine {
            let ring = Rc::clone(ring);
            tokio.spawn_local(async move {
                if let Err(error) = ring.flush_for_ever().await {
                    // Operations would hang for ever without it.
                    panic!("cannot watch the ring: {error}");
                }
            });
        }
        let (home, keeper) = home::new();
        tokio.spawn_local(keeper.keep());
        let context = Rc::new(Context {
            engine,
            home,
            in_flight: Arc::default(),
        });
        context::install(&context);
        Ok(Runtime {
            tokio: Some(tokio),
            context,
            report,
            pinning,
        })
    }

    /// The engine that this runtime got.
    pub fn engine(&self) -> EngineReport {
        self.report.clone()
    }

    /// Whether the thread is pinned.
    pub fn pinning(&self) -> Pinning {
        self.pinning.clone()
    }

    /// Runs `future` and the thread's tasks until `future` ends, then waits for the file operations
    /// in flight. `future` itself is polled once per few polls of tasks: per-request work belongs in
    /// tasks.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        let tokio = self.tokio.as_ref().expect("there until drop");
        let output = tokio.block_on(task::with_turns(future));
        self.drain();
        output
    }

    fn drain(&self) {
        self.context.engine.drain();
        self.context.in_flight.wait_for_zero();
    }
}

/// A thread has at most one.
fn refuse_second() -> io::Result<()> {
    match context::current() {
        None => Ok(()),
        Some(_) => {
            let text = "this thread has a runtime already";
            Err(io::Error::new(io::ErrorKind::AlreadyExists, text))
        }
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        // First the tasks, so that nothing begins a new operation; what they began goes on.
        drop(self.tokio.take());
        self.drain();
        context::remove();
    }
}

impl std::fmt::Debug for Runtime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Runtime")
            .field("engine", &self.report)
            .field("pinning", &self.pinning)
            .finish_non_exhaustive()
    }
}

fn pin(core: Option<usize>) -> Pinning {
    // Asked before the pin narrows anything.
    let _ = cores::allowed();
    let Some(core) = core else {
        return Pinning::Free;
    };
    match cores::pin(core) {
        Ok(()) => Pinning::Pinned(core),
        Err(error) => Pinning::Refused {
            core,
            reason: error.to_string(),
        },
    }
}

/// Starts a thread named and pinned as `options` say, makes its runtime, and runs `main` with it.
/// The thread's result is an error if the runtime could not be made.
///
/// # Errors
/// What starting a thread says.
pub fn spawn_shard_thread<T, F>(
    options: RuntimeOptions,
    main: F,
) -> io::Result<JoinHandle<io::Result<T>>>
where
    T: Send + 'static,
    F: FnOnce(&Runtime) -> T + Send + 'static,
{
    let _ = cores::allowed();
    let builder = std::thread::Builder::new().name(thread_name(&options));
    builder.spawn(move || {
        let runtime = Runtime::new(options)?;
        Ok(main(&runtime))
    })
}

/// Starts a thread for work that nobody waits for, as [`spawn_shard_thread`], but of the lowest
/// priority, on the plain engine, whose threads inherit that, and on any core.
///
/// # Errors
/// What starting a thread says.
pub fn spawn_background_thread<T, F>(name: &str, main: F) -> io::Result<JoinHandle<io::Result<T>>>
where
    T: Send + 'static,
    F: FnOnce(&Runtime) -> T + Send + 'static,
{
    // Threads inherit the priority of who starts them, and those of the process serve everybody.
    workers::start_all();
    let options = RuntimeOptions {
        name: name.to_owned(),
        engine: EngineChoice::Plain,
        plain_threads: BACKGROUND_DATA_THREADS,
        ..RuntimeOptions::default()
    };
    let builder = std::thread::Builder::new().name(thread_name(&options));
    builder.spawn(move || {
        let _ = cores::unpin();
        if let Err(errno) = sys::lower_priority() {
            let error = io::Error::from_raw_os_error(errno);
            tracing::warn!(%error, "background work runs at the priority of all else");
        }
        let runtime = Runtime::new(options)?;
        Ok(main(&runtime))
    })
}

fn thread_name(options: &RuntimeOptions) -> String {
    let mut name = options.name.clone();
    let cut = (0..=THREAD_NAME_BYTES_MAX.min(name.len()))
        .rev()
        .find(|n| name.is_char_boundary(*n));
    name.truncate(cut.unwrap_or(0));
    name
}
