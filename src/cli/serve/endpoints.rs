//! The addresses of the broker: the listener, what clients are told, metrics and health.

use std::cell::RefCell;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::rc::Rc;

use anyhow::{Context, anyhow};
use thalweg_config::BrokerConfig;
use thalweg_control::Endpoint;
use thalweg_control::http::{self, HttpState};
use thalweg_metrics::CoreMetrics;
use thalweg_reactor::net::{Bound, Listener, Listeners};
use thalweg_reactor::{mailbox, oneshot, task};

use crate::args::{MetricsListen, ServeArgs};

const METRICS_DEFAULT: &str = "127.0.0.1:9644";

/// Addresses for clients that are taken, and refuse connections until the broker can answer them.
pub(super) struct Taken(Vec<Bound>);

impl Taken {
    /// Listens on all.
    pub(super) fn listen(self) -> anyhow::Result<Listeners> {
        let listeners: io::Result<Vec<Listener>> = self.0.into_iter().map(Bound::listen).collect();
        let listeners =
            listeners.context("listening: has another process taken the port meanwhile?");
        listeners.map(Listeners::new)
    }
}

/// Takes the addresses for clients; each with what its clients are told to connect to.
pub(super) fn take(config: &BrokerConfig) -> anyhow::Result<(Taken, Vec<Endpoint>)> {
    let mut listeners = Vec::new();
    let mut endpoints = Vec::new();
    for at in config.client_listeners() {
        let listener = take_one(&at)?;
        let bound = listener.local_addr()?;
        let told = config.advertised_listener(&at.name);
        endpoints.push(Endpoint {
            name: at.name,
            host: told
                .as_ref()
                .map_or(bound.ip().to_string(), |at| at.host.clone()),
            port: told.map_or(bound.port(), |at| at.port),
        });
        listeners.push(listener);
    }
    Ok((Taken(listeners), endpoints))
}

fn take_one(at: &thalweg_config::Endpoint) -> anyhow::Result<Bound> {
    let listener = match at.host.is_empty() {
        true => take_everywhere(at.port),
        false => {
            let address = resolve(&at.host, at.port)
                .with_context(|| format!("listener {at}: the name of its host"))?;
            Bound::new(address)
        }
    };
    let listener = listener.with_context(|| {
        format!("listening on {at}: is another broker running there? choose another --listen")
    })?;
    let address = listener.local_addr()?;
    if !address.ip().is_loopback() {
        tracing::warn!(%address, "LISTENING OFF LOOPBACK WITHOUT AUTHENTICATION: anyone who reaches \
            this address can read, write and delete");
    }
    Ok(listener)
}

/// Every address of both families, or of the one that this machine has.
fn take_everywhere(port: u16) -> io::Result<Bound> {
    Bound::new((Ipv6Addr::UNSPECIFIED, port).into()).or_else(|error| match error.kind() {
        io::ErrorKind::AddrInUse | io::ErrorKind::PermissionDenied => Err(error),
        _no_ipv6 => Bound::new((Ipv4Addr::UNSPECIFIED, port).into()),
    })
}

/// The first address of the name, of IPv4 where it has one: that is what clients try first.
fn resolve(host: &str, port: u16) -> anyhow::Result<SocketAddr> {
    let addresses: Vec<SocketAddr> = (host, port).to_socket_addrs()?.collect();
    let four = addresses.iter().find(|address| address.is_ipv4());
    let first = four.or(addresses.first());
    first
        .copied()
        .ok_or_else(|| anyhow!("{host} has no address"))
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
