//! Puts the rooms together: listener, log directory, metadata, shards, HTTP; and takes them apart
//! in the order that loses nothing.

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;

use anyhow::{Context, anyhow};
use thalweg_config::BrokerConfig;
use thalweg_control::http::{self, HttpState};
use thalweg_control::{
    Checkpoints, ControlHandle, Controller, ControllerSetup, Ended, Endpoint, Facts, MetadataLog,
    Readiness, ShardCommand, Start, StoppedPartition, empty_view,
};
use thalweg_metrics::{CoreMetrics, ProcessFacts};
use thalweg_net::{Acceptor, ConnectionLimits, ConnectionSlots, Incoming};
use thalweg_reactor::net::Listener;
use thalweg_reactor::process::TerminateSignals;
use thalweg_reactor::{EngineChoice, RuntimeOptions, mailbox, oneshot, task, time};
use thalweg_shard::ShardSetup;
use thalweg_storage::{CleanMark, DirectoryState, FormatPolicy, LogDir, OpenPolicy};
use thalweg_types::limits::MAILBOX_MESSAGES_MAX;
use thalweg_types::{ClusterId, ShardId, Uuid};

use super::fatal;
use super::layout::Layout;
use crate::args::{MetricsListen, ServeArgs};

const LISTEN_DEFAULT: &str = "127.0.0.1:9092";
const METRICS_DEFAULT: &str = "127.0.0.1:9644";
const DATA_DIR_DEFAULT: &str = "data";

/// Starts the broker, serves until SIGTERM or SIGINT, stops it.
pub(super) async fn run(args: ServeArgs, config: BrokerConfig) -> anyhow::Result<()> {
    let began = time::now();
    let mut signals = TerminateSignals::install().context("catching SIGTERM and SIGINT")?;
    let config = Arc::new(config);
    let listener = bind(&args, &config).await?;
    let address = listener.local_addr()?;
    let endpoint = advertised(&config, address)?;
    let layout = Layout::choose(&args);
    let readiness = Arc::new(Readiness::default());

    let (commands, shard_inboxes): (Vec<_>, Vec<_>) = layout
        .pins
        .iter()
        .map(|_| mailbox::channel(MAILBOX_MESSAGES_MAX))
        .unzip();
    let facts = Arc::new(Facts::new(ProcessFacts {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        node_id: config.node_id().0,
        start_unix_seconds: time::unix_ms() as f64 / 1e3,
        ..ProcessFacts::default()
    }));
    let accepted = Rc::new(RefCell::new(CoreMetrics::of_control()));
    let http = HttpState {
        control: answer_scrapes(Rc::clone(&accepted)),
        readiness: Arc::clone(&readiness),
        facts: Arc::clone(&facts),
        shards: commands.clone(),
    };
    serve_http(&args, http).await?;

    let path = data_dir(&args, &config);
    let policy = OpenPolicy {
        node_id: config.node_id(),
        cluster_id: None,
        format: FormatPolicy::WhenEmpty {
            cluster_id: ClusterId(draw_id().to_string()),
            directory_id: draw_id(),
        },
    };
    let dir = LogDir::open(&path, policy).await?;
    let (log, records) =
        MetadataLog::open(dir.path(), dir.opening(&MetadataLog::partition())).await?;
    let start = match dir.state() {
        DirectoryState::New => Start::Formatted,
        DirectoryState::Clean { .. } => Start::AfterCleanStop,
        DirectoryState::Unclean => Start::AfterCrash,
    };

    if start == Start::AfterCrash {
        tracing::warn!(dir = %dir.path().display(),
            "the last process did not stop in order: checking logs, raising leader epochs");
    }
    let (requests, inbox) = mailbox::channel(MAILBOX_MESSAGES_MAX);
    let control = ControlHandle::new(requests);
    let mut shards = Shards::start(&layout, &config, &dir, &endpoint, &control, shard_inboxes)?;
    // The shards hold the only handles from here on: the controller ends when they have ended.
    drop(control);
    let setup = ControllerSetup {
        log,
        records,
        start,
        config: Arc::clone(&config),
        checkpoints: Checkpoints::of(dir),
        endpoint,
        shards: commands.clone(),
        random: Box::new(random_bytes),
        facts: Arc::clone(&facts),
    };
    let controller = Controller::start(setup).await?;
    let (finished, controller_ended) = oneshot::channel();
    task::spawn(async move {
        let _ = finished.send(controller.run(inbox).await);
    });

    let accepting = shards.accept(listener, &config, accepted);
    facts.set_start(time::now() - began, start);
    readiness.mark_ready();
    tracing::info!(
        %address,
        shards = layout.pins.len(),
        took_ms = (time::now() - began).as_millis() as u64,
        "listening"
    );
    let signal = signals.next().await;
    tracing::info!(?signal, "stopping");
    readiness.mark_stopping();
    accepting.abort();
    let stopped = shards.stop(&commands).await;
    let ended = match controller_ended.await {
        Some(Ok(ended)) => ended,
        Some(Err(error)) => return Err(anyhow!(error).context("closing the metadata log")),
        None => fatal("the controller ended without a word"),
    };
    close(ended, stopped).await
}

/// Binds the one listener.
async fn bind(args: &ServeArgs, config: &BrokerConfig) -> anyhow::Result<Listener> {
    let configured = config
        .listener()
        .map(|at| format!("{}:{}", at.host, at.port));
    let wanted = args
        .listen
        .clone()
        .or(configured)
        .unwrap_or_else(|| LISTEN_DEFAULT.to_owned());
    let address = resolve(&wanted).with_context(|| {
        format!("--listen {wanted}: use HOST:PORT, for example {LISTEN_DEFAULT}")
    })?;
    Listener::bind(address).with_context(|| {
        format!("listening on {address}: is another broker running there? choose another --listen")
    })
}

fn resolve(text: &str) -> anyhow::Result<SocketAddr> {
    use std::net::ToSocketAddrs;
    text.to_socket_addrs()?
        .next()
        .ok_or_else(|| anyhow!("the name has no address"))
}

/// What clients are told to connect to.
fn advertised(config: &BrokerConfig, bound: SocketAddr) -> anyhow::Result<Endpoint> {
    if let Some(at) = config.advertised_listener() {
        return Ok(Endpoint {
            host: at.host.clone(),
            port: at.port,
        });
    }
    if bound.ip().is_unspecified() {
        return Err(anyhow!(
            "{bound} is no address that a client can connect to: add \
             --set advertised.listeners=PLAINTEXT://HOST:{}",
            bound.port()
        ));
    }
    if !bound.ip().is_loopback() {
        tracing::warn!(%bound, "listening off loopback without authentication: anyone who reaches \
            this address can read, write and delete");
    }
    Ok(Endpoint {
        host: bound.ip().to_string(),
        port: bound.port(),
    })
}

fn data_dir(args: &ServeArgs, config: &BrokerConfig) -> PathBuf {
    match (&args.data_dir, config.log_dir()) {
        (Some(dir), _) => dir.clone(),
        (None, Some(dir)) => PathBuf::from(dir),
        (None, None) => PathBuf::from(DATA_DIR_DEFAULT),
    }
}

async fn serve_http(args: &ServeArgs, state: HttpState) -> anyhow::Result<()> {
    let (address, chosen) = match args.metrics_listen {
        Some(MetricsListen::Off) => return Ok(()),
        Some(MetricsListen::At(address)) => (address, true),
        None => (METRICS_DEFAULT.parse()?, false),
    };
    let (listener, bound) = match http::bind(address).await {
        Ok(bound) => bound,
        Err(error) if chosen => {
            return Err(anyhow!(error).context(format!("--metrics-listen {address}")));
        }
        Err(error) => {
            tracing::warn!(%address, %error, "no metrics endpoint: choose one by --metrics-listen");
            return Ok(());
        }
    };
    task::spawn(async move {
        if let Err(error) = http::serve(listener, state).await {
            tracing::error!(%error, "the metrics endpoint ended");
        }
    });
    tracing::info!(address = %bound, "metrics");
    Ok(())
}

/// Scrapes of the accept loop's numbers that may wait.
const SCRAPES_WAITING_MAX: usize = 16;

/// Gives the HTTP endpoint, whose futures must be `Send`, a way to numbers that are not.
fn answer_scrapes(
    metrics: Rc<RefCell<CoreMetrics>>,
) -> mailbox::Sender<oneshot::Sender<CoreMetrics>> {
    let (asking, mut asked) = mailbox::channel::<oneshot::Sender<CoreMetrics>>(SCRAPES_WAITING_MAX);
    task::spawn(async move {
        while let Some(reply) = asked.recv().await {
            let _ = reply.send(metrics.borrow().clone());
        }
    });
    asking
}

/// The threads of the shards.
struct Shards {
    threads: Vec<JoinHandle<io::Result<()>>>,
    connections: Vec<Arc<AtomicUsize>>,
    sockets: Vec<mailbox::Sender<Incoming>>,
}

impl Shards {
    fn start(
        layout: &Layout,
        config: &Arc<BrokerConfig>,
        dir: &LogDir,
        endpoint: &Endpoint,
        control: &ControlHandle,
        inboxes: Vec<mailbox::Receiver<ShardCommand>>,
    ) -> anyhow::Result<Shards> {
        let count = layout.pins.len();
        let view = Arc::new(empty_view(dir, config, endpoint, u16::try_from(count)?));
        let mut shards = Shards {
            threads: Vec::new(),
            connections: Vec::new(),
            sockets: Vec::new(),
        };
        let links = thalweg_shard::connect(count);
        for (i, (commands, link)) in inboxes.into_iter().zip(links).enumerate() {
            let connections = Arc::new(AtomicUsize::new(0));
            shards.connections.push(Arc::clone(&connections));
            let (socket, sockets) = mailbox::channel(MAILBOX_MESSAGES_MAX);
            shards.sockets.push(socket);
            let setup = ShardSetup {
                id: ShardId(u16::try_from(i)?),
                config: Arc::clone(config),
                data_dir: dir.path().to_owned(),
                control: control.clone(),
                commands,
                sockets,
                link,
                connections,
                view: Arc::clone(&view),
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
    fn accept(
        &self,
        listener: Listener,
        config: &BrokerConfig,
        metrics: Rc<RefCell<CoreMetrics>>,
    ) -> task::Task<()> {
        let limits = ConnectionLimits {
            total: config.max_connections() as usize,
            ..ConnectionLimits::default()
        };
        let acceptor = Acceptor::new(listener, ConnectionSlots::new(limits));
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
            fatal(&format!("the listener failed: {error}"));
        })
    }

    /// Stops every shard and waits for its thread.
    async fn stop(&mut self, commands: &[mailbox::Sender<ShardCommand>]) -> Vec<StoppedPartition> {
        let mut replies = Vec::new();
        for shard in commands {
            let (reply, stopped) = oneshot::channel();
            if shard.send(ShardCommand::Stop { reply }).await.is_err() {
                fatal("a shard ended before it was told to");
            }
            replies.push(stopped);
        }
        let mut stopped = Vec::new();
        for reply in replies {
            stopped.extend(reply.await.unwrap_or_default());
        }
        for thread in self.threads.drain(..) {
            match thread.join() {
                Ok(Ok(())) => {}
                Ok(Err(error)) => fatal(&format!("a shard had no runtime: {error}")),
                Err(_) => fatal("a shard's thread ended by a panic"),
            }
        }
        stopped
    }
}

fn engine(config: &BrokerConfig) -> EngineChoice {
    match config.engine() {
        thalweg_config::Engine::Auto => EngineChoice::Auto,
        thalweg_config::Engine::Ring => EngineChoice::Ring,
        thalweg_config::Engine::Plain => EngineChoice::Plain,
    }
}

/// Writes the checkpoints, then the clean marker if every log deserves it.
async fn close(ended: Ended, stopped: Vec<StoppedPartition>) -> anyhow::Result<()> {
    let partitions = stopped.len();
    let metadata = (MetadataLog::partition(), ended.metadata_end);
    match ended.checkpoints.close(metadata, stopped).await? {
        CleanMark::Written => {
            tracing::info!(partitions, "stopped");
            Ok(())
        }
        CleanMark::Withheld(open) => Err(anyhow!(
            "stopped, but {} not closed well: the next start checks every log",
            open.iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join(", ")
        )),
    }
}

/// A random id that no command line takes for an option.
fn draw_id() -> Uuid {
    loop {
        let id = Uuid::from_random(random_bytes());
        if !id.reads_as_option() {
            return id;
        }
    }
}

/// 16 random bytes of the kernel.
fn random_bytes() -> [u8; 16] {
    let mut bytes = [0; 16];
    if let Err(error) = getrandom::fill(&mut bytes) {
        fatal(&format!("the kernel has no random bytes: {error}"));
    }
    bytes
}
