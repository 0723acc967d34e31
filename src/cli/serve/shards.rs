//! The threads of the shards, and the accept loop that feeds them.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, anyhow};
use thalweg_config::BrokerConfig;
use thalweg_control::{
    ControlHandle, Endpoint, LogDirs, OpeningProgress, ShardCommand, StoppedPartition, empty_view,
};
use thalweg_metrics::CoreMetrics;
use thalweg_net::{Acceptor, ConnectionSlots, Incoming};
use thalweg_reactor::lane::{self, LaneOptions};
use thalweg_reactor::net::Listeners;
use thalweg_reactor::{EngineChoice, RuntimeOptions, mailbox, oneshot, task};
use thalweg_shard::ShardSetup;
use thalweg_storage::DirHealth;
use thalweg_types::ShardId;
use thalweg_types::limits::{
    COLD_HANDLES_MAX, COLD_IDLE_MS, COLD_MEMORY_BYTES, COLD_READS_PER_DISK, COLD_STRIDE_BYTES,
    COLD_THREADS_MAX, HOT_TAIL_MS, MAILBOX_MESSAGES_MAX,
};

use super::cleaners::Cleaners;
use super::fatal;
use super::layout::Layout;
use super::scrubbing::Scrubbing;
use crate::exit::of_handles;

/// The threads of the shards.
pub(super) struct Shards {
    threads: Vec<JoinHandle<io::Result<()>>>,
    connections: Vec<Arc<AtomicUsize>>,
    sockets: Vec<mailbox::Sender<Incoming>>,
    slots: Arc<ConnectionSlots>,
    cleaners: Cleaners,
    scrubbing: Scrubbing,
    dirs: Arc<[Arc<DirHealth>]>,
}

/// What the shards leave behind.
pub(super) struct Stopped {
    pub(super) partitions: Vec<StoppedPartition>,
    /// Threads wait for a disk that does not answer: the process must not wait for them.
    pub(super) leaves_threads: bool,
}

impl Shards {
    /// Starts one thread per shard.
    pub(super) fn start(
        layout: &Layout,
        config: &Arc<BrokerConfig>,
        dirs: &LogDirs,
        endpoints: &[Endpoint],
        (control, opening): (ControlHandle, &Arc<OpeningProgress>),
        inboxes: Vec<mailbox::Receiver<ShardCommand>>,
    ) -> anyhow::Result<Shards> {
        let count = layout.pins.len();
        lane::set_up(cold_reads(layout));
        let view = Arc::new(empty_view(dirs, config, endpoints, u16::try_from(count)?));
        let mut shards = Shards {
            threads: Vec::new(),
            connections: Vec::new(),
            sockets: Vec::new(),
            slots: ConnectionSlots::new(thalweg_shard::connection_limits(config)),
            cleaners: Cleaners::new(config),
            scrubbing: Scrubbing::start()?,
            dirs: dirs.log_healths(),
        };
        let healths = dirs.log_healths();
        let links = thalweg_shard::connect(count);
        for (i, (commands, link)) in inboxes.into_iter().zip(links).enumerate() {
            let connections = Arc::new(AtomicUsize::new(0));
            shards.connections.push(Arc::clone(&connections));
            let (socket, sockets) = mailbox::channel(MAILBOX_MESSAGES_MAX);
            shards.sockets.push(socket);
            let setup = ShardSetup {
                id: ShardId(u16::try_from(i)?),
                config: Arc::clone(config),
                dirs: Arc::clone(&healths),
                opening: Arc::clone(opening),
                control: control.clone(),
                commands,
                sockets,
                link,
                connections,
                view: Arc::clone(&view),
                cleaners: shards.cleaners.pool(),
                scrubber: shards.scrubbing.scrubber()?,
                slots: (i == 0).then(|| Arc::clone(&shards.slots)),
            };
            let options = RuntimeOptions {
                name: format!("shard-{i}"),
                pin_to: layout.pins[i],
                engine: engine(config),
                ring_entries: config.ring_entries(),
                // Ring workers inherit the pin of their thread; spare cores are better for them.
                io_worker_cores: (!layout.spare.is_empty()).then(|| layout.spare.clone()),
                ..RuntimeOptions::default()
            };
            let thread = thalweg_shard::spawn(setup, options)
                .with_context(|| format!("starting the thread of shard {i}"))?;
            shards.threads.push(thread);
        }
        Ok(shards)
    }

    /// Accepts on the control thread and hands each socket to the shard with the fewest.
    pub(super) fn accept(
        &self,
        listeners: Listeners,
        metrics: Rc<RefCell<CoreMetrics>>,
    ) -> task::Task<()> {
        let acceptor = Acceptor::new(listeners, Arc::clone(&self.slots));
        let connections = self.connections.clone();
        let sockets = self.sockets.clone();
        task::spawn(async move {
            let mut turn = 0;
            let error = acceptor
                .run(&metrics, async |incoming: Incoming| {
                    // Among equals the next in turn, so that short connections spread too.
                    turn = (turn + 1) % connections.len();
                    let least = (turn..connections.len())
                        .chain(0..turn)
                        .min_by_key(|shard| connections[*shard].load(Ordering::Relaxed))
                        .unwrap_or(turn);
                    connections[least].fetch_add(1, Ordering::Relaxed);
                    // Refused only while stopping; the socket closes with the message.
                    let _ = sockets[least].send(incoming).await;
                })
                .await;
            fatal(&format!("a listener failed: {error}"));
        })
    }

    /// Why a shard's thread ended before it served anything.
    pub(super) fn why_gone(&mut self, shard: usize) -> anyhow::Error {
        if shard >= self.threads.len() {
            return anyhow!("there is no shard {shard}");
        }
        match self.threads.swap_remove(shard).join() {
            Ok(Err(error)) => can_not_run(shard, error),
            Ok(Ok(())) | Err(_) => anyhow!("shard {shard} ended at its start"),
        }
    }

    /// Stops every shard and waits for its thread.
    pub(super) async fn stop(&mut self, commands: &[mailbox::Sender<ShardCommand>]) -> Stopped {
        self.cleaners.begin_stop();
        self.scrubbing.begin_stop();
        let mut replies = Vec::new();
        for shard in commands {
            let (reply, stopped) = oneshot::channel();
            if shard.send(ShardCommand::Stop { reply }).await.is_err() {
                fatal("a shard ended before it was told to");
            }
            replies.push(stopped);
        }
        let mut partitions = Vec::new();
        for reply in replies {
            partitions.extend(reply.await.unwrap_or_default());
        }
        if self.dirs.iter().any(|dir| dir.is_stalled()) {
            return Stopped {
                partitions,
                leaves_threads: true,
            };
        }
        for thread in self.threads.drain(..) {
            match thread.join() {
                Ok(Ok(())) => {}
                Ok(Err(error)) => fatal(&format!("a shard had no runtime: {error}")),
                Err(_) => fatal("a shard's thread ended by a panic"),
            }
        }
        self.cleaners.join();
        self.scrubbing.join();
        Stopped {
            partitions,
            leaves_threads: false,
        }
    }
}

/// The lane of cold reads: on the cores that no shard has.
fn cold_reads(layout: &Layout) -> LaneOptions {
    LaneOptions {
        stride_bytes: COLD_STRIDE_BYTES,
        memory_bytes: COLD_MEMORY_BYTES,
        per_disk: COLD_READS_PER_DISK,
        threads_max: COLD_THREADS_MAX,
        handles_max: COLD_HANDLES_MAX,
        idle: Duration::from_millis(COLD_IDLE_MS),
        quiet: Duration::from_millis(HOT_TAIL_MS),
        cores: layout.spare.clone(),
    }
}

fn engine(config: &BrokerConfig) -> EngineChoice {
    match config.engine() {
        thalweg_config::Engine::Auto => EngineChoice::Auto,
        thalweg_config::Engine::Ring => EngineChoice::Ring,
        thalweg_config::Engine::Plain => EngineChoice::Plain,
    }
}

/// The thread of a shard ended with this error before it served anything.
fn can_not_run(shard: usize, error: io::Error) -> anyhow::Error {
    const ENGINE: &str =
        "thalweg.engine chooses how files are written; `auto` takes what the machine allows";
    let text = format!("shard {shard} can not run");
    match of_handles(&error) {
        // The whole failure says it.
        Some(_) => anyhow!(error).context(text),
        None => anyhow!(error).context(format!("{text} ({ENGINE})")),
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::can_not_run;
    use crate::exit::Failure;

    #[test]
    fn why_a_shard_can_not_run_comes_with_the_setting_that_helps() {
        let said = |errno| {
            let error = io::Error::from_raw_os_error(errno);
            Failure::from(can_not_run(1, error)).message
        };
        let (of_handles, of_ring) = (said(24), said(1));
        assert!(
            of_handles.contains("ulimit -n") && !of_handles.contains("thalweg.engine"),
            "{of_handles}"
        );
        assert!(
            of_ring.contains("thalweg.engine") && !of_ring.contains("ulimit"),
            "{of_ring}"
        );
    }
}
