//! The broker's connection limits as the accept loop obeys them.

use std::net::{IpAddr, ToSocketAddrs};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use thalweg_config::BrokerConfig;
use thalweg_net::{ConnectionLimits, ConnectionSlots};

/// Reads the limits out of the properties. Looks up names of hosts, which may take as long as the
/// resolver does.
#[must_use]
pub fn connection_limits(config: &BrokerConfig) -> ConnectionLimits {
    let mut limits = ConnectionLimits {
        total: config.max_connections() as usize,
        per_ip: config.max_connections_per_ip() as usize,
        per_second: config.max_connection_creation_rate(),
        ..ConnectionLimits::default()
    };
    for (host, number) in config.max_connections_per_ip_overrides() {
        let addresses = addresses_of(host);
        if addresses.is_empty() {
            tracing::warn!(
                host,
                "max.connections.per.ip.overrides: the host has no address, so its number holds for nobody"
            );
        }
        for ip in addresses {
            limits.per_ip_overrides.insert(ip, number as usize);
        }
    }
    limits
}

fn addresses_of(host: &str) -> Vec<IpAddr> {
    if let Ok(ip) = host.parse::<IpAddr>() {
        return vec![ip.to_canonical()];
    }
    let found = (host, 0).to_socket_addrs().into_iter().flatten();
    found.map(|address| address.ip().to_canonical()).collect()
}

/// Lets the accept loop obey limits that change while the broker runs. That is done on a thread of its
/// own, because of the names; one at a time, however often limits change, and the last ones hold.
pub(crate) struct Admission {
    slots: Arc<ConnectionSlots>,
    wanted: Arc<Mutex<Wanted>>,
}

#[derive(Default)]
struct Wanted {
    /// Not looked at by the thread yet.
    config: Option<Arc<BrokerConfig>>,
    has_thread: bool,
}

impl Admission {
    pub(crate) fn new(slots: Arc<ConnectionSlots>) -> Admission {
        Admission {
            slots,
            wanted: Arc::default(),
        }
    }

    /// The limits of `config` hold from a moment on that is not waited for.
    pub(crate) fn obey(&self, config: &Arc<BrokerConfig>) {
        let mut wanted = lock(&self.wanted);
        wanted.config = Some(Arc::clone(config));
        if std::mem::replace(&mut wanted.has_thread, true) {
            return;
        }
        drop(wanted);
        let (slots, wanted) = (Arc::clone(&self.slots), Arc::clone(&self.wanted));
        let spawned = std::thread::Builder::new()
            .name("limits".to_owned())
            .spawn(move || {
                while let Some(config) = next(&wanted) {
                    slots.set_limits(connection_limits(&config));
                }
            });
        if let Err(error) = spawned {
            lock(&self.wanted).has_thread = false;
            tracing::error!(%error, "connection limits not changed: set them again");
        }
    }
}

/// What the thread has to do next; with nothing, it ends.
fn next(wanted: &Mutex<Wanted>) -> Option<Arc<BrokerConfig>> {
    let mut wanted = lock(wanted);
    let config = wanted.config.take();
    wanted.has_thread = config.is_some();
    config
}

fn lock(wanted: &Mutex<Wanted>) -> MutexGuard<'_, Wanted> {
    // It is whole after every statement: a panic elsewhere leaves it usable.
    wanted.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    use thalweg_config::BrokerConfig;
    use thalweg_net::{ConnectionLimits, ConnectionSlots};

    use super::{Admission, connection_limits, lock};

    #[test]
    fn bi_29_overrides_name_addresses_and_hosts() {
        let settings = [
            "max.connections=9",
            "max.connections.per.ip=5",
            "max.connections.per.ip.overrides=10.0.0.1:1,::ffff:10.0.0.2:2,localhost:3",
            "max.connection.creation.rate=7",
        ];
        let config = BrokerConfig::from_settings(settings).expect("valid").config;
        let limits = connection_limits(&config);
        assert_eq!((limits.total, limits.per_second), (9, 7));
        let of = |text: &str| limits.of_ip(text.parse().expect("an address"));
        assert_eq!((of("10.0.0.1"), of("10.0.0.2"), of("10.0.0.3")), (1, 2, 5));
        assert_eq!(of("127.0.0.1"), 3);
    }

    #[test]
    fn bi_29_the_last_limits_hold_and_one_thread_sets_them() {
        let slots = ConnectionSlots::new(ConnectionLimits::default());
        let admission = Admission::new(Arc::clone(&slots));
        for most in (0..100).rev() {
            let setting = format!("max.connections.per.ip={most}");
            let loaded = BrokerConfig::from_settings([setting.as_str()]);
            admission.obey(&Arc::new(loaded.expect("valid").config));
        }
        let deadline = Instant::now() + Duration::from_secs(60);
        while lock(&admission.wanted).has_thread {
            assert!(Instant::now() < deadline, "the thread does not end");
            std::thread::yield_now();
        }
        let taken = slots.take("10.0.0.1".parse().expect("an address"));
        assert!(taken.is_err(), "0 connections per address");
    }
}
