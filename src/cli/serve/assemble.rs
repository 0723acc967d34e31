//! Puts the rooms together: listener, log directory, metadata, shards, HTTP; and takes them apart
//! in the order that loses nothing.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use thalweg_config::BrokerConfig;
use thalweg_control::http::HttpState;
use thalweg_control::{
    ControlHandle, ControlRequest, Controller, ControllerSetup, DirIndex, DiskWatch, Ended,
    Endpoint, Facts, Headroom, LogDirs, Loggers, Loss, Losses, MetadataLogError, ReadMetadata,
    Readiness, ShardCommand, Start, StartError,
};
use thalweg_metrics::{CoreMetrics, ProcessFacts};
use thalweg_reactor::process::Signal;
use thalweg_reactor::{mailbox, oneshot, task, time};
use thalweg_types::limits::MAILBOX_MESSAGES_MAX;

use super::endpoints::Taken;
use super::layout::Layout;
use super::shards::Shards;
use super::signals::{self, Started};
use super::{directory, disk_failed, endpoints, fatal};
use crate::args::ServeArgs;
use crate::service_manager;

/// What the parts of a starting broker share.
struct Assembly {
    config: Arc<BrokerConfig>,
    layout: Layout,
    endpoints: Vec<Endpoint>,
    readiness: Arc<Readiness>,
    facts: Arc<Facts>,
    loggers: Arc<Loggers>,
    /// One mailbox per shard.
    commands: Vec<mailbox::Sender<ShardCommand>>,
    /// Numbers of the accept loop.
    accepted: Rc<RefCell<CoreMetrics>>,
}

/// A broker whose logs are open.
struct Opened {
    shards: Shards,
    control: ControlHandle,
    controller: oneshot::Receiver<Result<Ended, MetadataLogError>>,
}

/// Starts the broker, serves until SIGTERM or SIGINT, stops it.
pub(super) async fn run(
    args: ServeArgs,
    config: BrokerConfig,
    loggers: Arc<Loggers>,
) -> anyhow::Result<()> {
    let began = time::now();
    let started = Started::default();
    let signal = signals::watch(started.clone()).context("catching SIGTERM and SIGINT")?;
    let (taken, endpoints) = endpoints::take(&config)?;
    let layout = Layout::choose(&args);
    let (commands, inboxes) = layout
        .pins
        .iter()
        .map(|_| mailbox::channel(MAILBOX_MESSAGES_MAX))
        .unzip();
    let assembly = Assembly {
        endpoints,
        readiness: Arc::default(),
        facts: Arc::new(Facts::new(first_facts(&config))),
        config: Arc::new(config),
        layout,
        loggers,
        commands,
        accepted: Rc::new(RefCell::new(CoreMetrics::of_control())),
    };
    endpoints::serve_http(&args, assembly.http()).await?;
    let (dirs, start) = directory::open(&args, &assembly.config).await?;
    let (losses, lost) = Losses::watch(&dirs);
    if let Some(what) = losses.everything_lost() {
        disk_failed(&what);
    }
    let (requests, asked) = mailbox::channel(MAILBOX_MESSAGES_MAX);
    let control = ControlHandle::new(requests, Arc::clone(&assembly.loggers));
    task::spawn(follow_losses(losses.clone(), lost, control.clone()));
    let opened = match assembly.open(dirs, start, inboxes, control, asked).await {
        Err(error) => match losses.everything_lost() {
            Some(what) => {
                tracing::error!("{error:#}");
                disk_failed(&what)
            }
            None => return Err(error),
        },
        Ok(opened) => opened,
    };
    assembly.facts.set_start(time::now() - began, start);
    started.mark();
    assembly.serve(opened, taken, began, signal).await
}

/// Goes on without log directories that fail, or ends the process. Never ends.
async fn follow_losses(
    losses: Losses,
    mut lost: mailbox::Receiver<DirIndex>,
    control: ControlHandle,
) {
    while let Some(dir) = lost.recv().await {
        match losses.on_failure(dir).await {
            Loss::One { dir, what } => {
                tracing::error!(
                    "LOG DIRECTORY OFFLINE ({what}): what is in it is answered with \
                    KAFKA_STORAGE_ERROR, the others go on; look at its disk, then start the broker again"
                );
                control.directory_failed(dir).await;
            }
            Loss::Everything(what) => disk_failed(&what),
        }
    }
}

fn first_facts(config: &BrokerConfig) -> ProcessFacts {
    ProcessFacts {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        node_id: config.node_id().0,
        start_unix_seconds: time::unix_ms() as f64 / 1e3,
        ..ProcessFacts::default()
    }
}

impl Assembly {
    fn http(&self) -> HttpState {
        HttpState {
            control: endpoints::answer_scrapes(Rc::clone(&self.accepted)),
            readiness: Arc::clone(&self.readiness),
            facts: Arc::clone(&self.facts),
            shards: self.commands.clone(),
        }
    }

    /// Replays the metadata, starts the shards and lets them open their logs.
    async fn open(
        &self,
        dirs: LogDirs,
        start: Start,
        inboxes: Vec<mailbox::Receiver<ShardCommand>>,
        control: ControlHandle,
        asked: mailbox::Receiver<ControlRequest>,
    ) -> anyhow::Result<Opened> {
        let headroom = self.config.headroom_bytes();
        let headroom = headroom.map_or(Headroom::Derived, Headroom::Bytes);
        // Before anything is written: a full disk gives the reserve back.
        let probe_every = self.config.log_dirs_probe_interval_ms();
        let probe_every = probe_every.map(Duration::from_millis);
        DiskWatch::begin(headroom, probe_every, &self.facts, dirs.healths()).await;
        let metadata = ReadMetadata::read(&dirs, self.config.node_id()).await?;
        let mut shards = Shards::start(
            &self.layout,
            &self.config,
            &dirs,
            &self.endpoints,
            (control.clone(), self.facts.opening()),
            inboxes,
        )?;
        let controller = Controller::start(ControllerSetup {
            metadata,
            start,
            config: Arc::clone(&self.config),
            dirs,
            endpoints: self.endpoints.clone(),
            shards: self.commands.clone(),
            random: Box::new(directory::random_bytes),
            facts: Arc::clone(&self.facts),
            loggers: Arc::clone(&self.loggers),
        })
        .await
        .map_err(|error| match error {
            StartError::ShardGone(shard) => shards.why_gone(shard),
            other => other.into(),
        })?;
        let (finished, ended) = oneshot::channel();
        task::spawn(async move {
            let _ = finished.send(controller.run(asked).await);
        });
        Ok(Opened {
            shards,
            control,
            controller: ended,
        })
    }

    /// Accepts until a signal comes, then stops everything in order.
    async fn serve(
        &self,
        opened: Opened,
        taken: Taken,
        began: Instant,
        signal: oneshot::Receiver<Signal>,
    ) -> anyhow::Result<()> {
        let Opened {
            mut shards,
            control,
            controller,
        } = opened;
        let accepted = self.accept(&shards, taken, began, signal).await;
        self.readiness.mark_stopping();
        service_manager::tell_stopping();
        let stopped = shards.stop(&self.commands).await;
        control.stop().await;
        match controller.await {
            Some(Ok(ended)) => directory::close(ended, stopped.partitions).await?,
            Some(Err(error)) => return Err(anyhow!(error).context("closing the metadata log")),
            None => fatal("the controller ended without a word"),
        }
        if stopped.leaves_threads {
            // All that can be closed is.
            match accepted {
                Ok(()) => std::process::exit(0),
                Err(error) => fatal(&format!("{error:#}")),
            }
        }
        accepted
    }

    /// Accepts connections until a signal comes.
    async fn accept(
        &self,
        shards: &Shards,
        taken: Taken,
        began: Instant,
        signal: oneshot::Receiver<Signal>,
    ) -> anyhow::Result<()> {
        let listeners = taken.listen()?;
        let addresses = listeners.local_addrs()?;
        let accepting = shards.accept(listeners, Rc::clone(&self.accepted));
        self.readiness.mark_ready();
        service_manager::tell_ready();
        for (endpoint, address) in self.endpoints.iter().zip(addresses) {
            tracing::info!(
                %address,
                listener = endpoint.name,
                shards = self.layout.pins.len(),
                took_ms = (time::now() - began).as_millis() as u64,
                "listening"
            );
        }
        let signal = signal.await.map_or("none", signals::name);
        tracing::info!(signal, "stopping");
        accepting.abort();
        Ok(())
    }
}
