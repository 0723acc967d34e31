//! The addresses of the broker: the listener, what clients are told, metrics and health.

use std::cell::RefCell;
use std::net::{SocketAddr, ToSocketAddrs};
use std::rc::Rc;

use anyhow::{Context, anyhow};
use thalweg_config::BrokerConfig;
use thalweg_control::Endpoint;
use thalweg_control::http::{self, HttpState};
use thalweg_metrics::CoreMetrics;
use thalweg_reactor::net::Listener;
use thalweg_reactor::{mailbox, oneshot, task};

use crate::args::{MetricsListen, ServeArgs};

const LISTEN_DEFAULT: &str = "127.0.0.1:9092";
const METRICS_DEFAULT: &str = "127.0.0.1:9644";

/// Binds the one listener.
pub(super) fn bind(args: &ServeArgs, config: &BrokerConfig) -> anyhow::Result<Listener> {
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
    text.to_socket_addrs()?
        .next()
        .ok_or_else(|| anyhow!("the name has no address"))
}

/// What clients are told to connect to.
pub(super) fn advertised(config: &BrokerConfig, bound: SocketAddr) -> anyhow::Result<Endpoint> {
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

/// Binds the metrics endpoint and serves it; the default address is given up when it is taken.
pub(super) async fn serve_http(args: &ServeArgs, state: HttpState) -> anyhow::Result<()> {
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
pub(super) fn answer_scrapes(
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
