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

/// Takes the addresses for clients; each with what its clients are told to connect to: by default the
/// host as `listeners` has it, a name too, as by Kafka. The address behind a name may change.
pub(super) fn take(config: &BrokerConfig) -> anyhow::Result<(Taken, Vec<Endpoint>)> {
    let mut listeners = Vec::new();
    let mut endpoints = Vec::new();
    for at in config.client_listeners() {
        let listener = take_one(&at)?;
        let bound = listener.local_addr()?;
        let (host, port) = match config.advertised_listener(&at.name) {
            Some(told) => (told.host, told.port),
            None if at.host.is_empty() => (bound.ip().to_string(), bound.port()),
            None => (at.host, bound.port()),
        };
        endpoints.push(Endpoint {
            name: at.name,
            host,
            port,
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
    let listener = listener.map_err(|error| {
        let why = not_taken(&error, "listeners or --listen");
        anyhow!("listening on {at}: {why}")
    })?;
    let address = listener.local_addr()?;
    if !address.ip().is_loopback() {
        tracing::warn!(%address, "LISTENING OFF LOOPBACK WITHOUT AUTHENTICATION: anyone who reaches \
            this address can read, write and delete");
    }
    Ok(listener)
}

/// Why an address could not be taken, and what to do: `setting` is what chooses it.
fn not_taken(error: &io::Error, setting: &str) -> String {
    let reason = match error.kind() {
        io::ErrorKind::AddrInUse => {
            ": another process listens there, perhaps a broker (`ss -ltnp` shows it)"
        }
        io::ErrorKind::AddrNotAvailable => {
            ": this machine has no such address (`ip address` shows those that it has; one by which only \
             clients know it belongs in advertised.listeners)"
        }
        io::ErrorKind::PermissionDenied => ": ports below 1024 are not for every user",
        _other => "",
    };
    format!("{error}{reason}. Choose another address by {setting}")
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
            let why = not_taken(&error, "--metrics-listen");
            return Err(anyhow!("metrics on {address}: {why}"));
        }
        Err(error) => {
            let why = not_taken(&error, "--metrics-listen");
            tracing::warn!(%address, "no metrics endpoint: {why}");
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

#[cfg(test)]
mod tests {
    use std::io;

    use super::not_taken;

    #[test]
    fn an_address_that_can_not_be_taken_is_told_with_what_to_do() {
        let said = |errno: i32| not_taken(&io::Error::from_raw_os_error(errno), "--listen");
        for (errno, word) in [(98, "ss -ltnp"), (99, "ip address"), (13, "below 1024")] {
            let said = said(errno);
            assert!(said.contains(word), "{said}");
            assert!(
                said.ends_with(". Choose another address by --listen"),
                "{said}"
            );
        }
        assert!(said(24).ends_with("(os error 24). Choose another address by --listen"));
    }
}
