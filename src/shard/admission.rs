//! The broker's connection limits as the accept loop obeys them.

use std::net::{IpAddr, ToSocketAddrs};
use std::sync::Arc;

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

/// Lets the accept loop obey `config` from now on, on a thread of its own because of the names.
pub(crate) fn obey(slots: &Arc<ConnectionSlots>, config: &Arc<BrokerConfig>) {
    let (slots, config) = (Arc::clone(slots), Arc::clone(config));
    let spawned = std::thread::Builder::new()
        .name("limits".to_owned())
        .spawn(move || slots.set_limits(connection_limits(&config)));
    if let Err(error) = spawned {
        tracing::error!(%error, "connection limits not changed: set them again");
    }
}

#[cfg(test)]
mod tests {
    use thalweg_config::BrokerConfig;

    use super::connection_limits;

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
}
