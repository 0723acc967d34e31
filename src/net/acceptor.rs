//! The accept loop, and the limits on how many connections there are.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use thalweg_metrics::{CoreMetrics, RefuseReason};
use thalweg_reactor::net::{Accepted, Listener};
use thalweg_reactor::{stats, time};

use crate::ConnectionLimits;
use crate::log_gate::LogGate;

/// A socket on its way to a shard.
pub struct Incoming {
    /// The socket.
    pub accepted: Accepted,
    /// The client's address.
    pub peer: SocketAddr,
    /// Its place among the allowed connections: keep it until the connection has ended.
    pub slot: ConnectionSlot,
}

/// Counts connections over all shards. Locked once per opened and once per closed connection, never
/// per request.
#[derive(Debug)]
pub struct ConnectionSlots {
    limits: ConnectionLimits,
    counts: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    total: usize,
    by_ip: HashMap<IpAddr, usize>,
}

/// One counted connection; dropping it counts it out.
#[derive(Debug)]
pub struct ConnectionSlot {
    slots: Arc<ConnectionSlots>,
    ip: IpAddr,
}

impl ConnectionSlots {
    /// No connections yet.
    #[must_use]
    pub fn new(limits: ConnectionLimits) -> Arc<ConnectionSlots> {
        Arc::new(ConnectionSlots {
            limits,
            counts: Mutex::default(),
        })
    }

    /// Connections counted now.
    #[must_use]
    pub fn total(&self) -> usize {
        self.lock().total
    }

    /// Counts a connection from `ip`.
    ///
    /// # Errors
    /// The limit that it would exceed.
    pub fn take(self: &Arc<Self>, ip: IpAddr) -> Result<ConnectionSlot, RefuseReason> {
        let ip = ip.to_canonical();
        let mut counts = self.lock();
        if counts.total >= self.limits.total {
            return Err(RefuseReason::TotalLimit);
        }
        let of_ip = counts.by_ip.get(&ip).copied().unwrap_or(0);
        if of_ip >= self.limits.per_ip {
            return Err(RefuseReason::PerIpLimit);
        }
        counts.by_ip.insert(ip, of_ip + 1);
        counts.total += 1;
        Ok(ConnectionSlot {
            slots: Arc::clone(self),
            ip,
        })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Counts> {
        // The counts are whole after every statement: a panic elsewhere leaves them usable.
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let mut counts = self.slots.lock();
        counts.total -= 1;
        if let Some(of_ip) = counts.by_ip.get_mut(&self.ip) {
            *of_ip -= 1;
            if *of_ip == 0 {
                counts.by_ip.remove(&self.ip);
            }
        }
    }
}

/// Accepts connections and hands them on.
pub struct Acceptor {
    listener: Listener,
    slots: Arc<ConnectionSlots>,
    refusals: LogGate,
}

impl Acceptor {
    /// An acceptor for `listener`.
    #[must_use]
    pub fn new(listener: Listener, slots: Arc<ConnectionSlots>) -> Acceptor {
        Acceptor {
            listener,
            slots,
            refusals: LogGate::default(),
        }
    }

    /// The address that clients connect to.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Accepts until dropped, or until the listener fails for good. Each connection goes to
    /// `assign`, which is awaited: a shard that is too busy to take it slows the accepting down.
    ///
    /// Out of file handles or memory, the listener waits, longer each time, instead of spinning; the
    /// connections wait in the kernel's queue meanwhile (ST-21).
    pub async fn run<F>(&self, metrics: &RefCell<CoreMetrics>, mut assign: F) -> io::Error
    where
        F: AsyncFnMut(Incoming),
    {
        loop {
            let (accepted, peer) = match self.listener.accept().await {
                Ok(next) => next,
                Err(error) => return error,
            };
            metrics.borrow_mut().counters.accept_backoffs = stats::read().accept_pauses;
            if let Some(slot) = self.admit(peer, metrics) {
                assign(Incoming {
                    accepted,
                    peer,
                    slot,
                })
                .await;
            }
        }
    }

    fn admit(&self, peer: SocketAddr, metrics: &RefCell<CoreMetrics>) -> Option<ConnectionSlot> {
        match self.slots.take(peer.ip()) {
            Ok(slot) => {
                metrics.borrow_mut().counters.connections_accepted += 1;
                Some(slot)
            }
            Err(reason) => {
                metrics.borrow_mut().count_refused(reason);
                if let Some(more) = self.refusals.admit(time::now()) {
                    let reason = reason.label();
                    tracing::warn!(%peer, reason, left_out = more, "connection refused");
                }
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use thalweg_metrics::RefuseReason;

    use super::ConnectionSlots;
    use crate::ConnectionLimits;

    fn ip(last: u8) -> IpAddr {
        [10, 0, 0, last].into()
    }

    #[test]
    fn bi29_connections_are_limited_in_all_and_per_address() {
        let slots = ConnectionSlots::new(ConnectionLimits {
            total: 3,
            per_ip: 2,
        });
        let first = slots.take(ip(1)).expect("room");
        let _second = slots.take(ip(1)).expect("room");
        assert_eq!(slots.take(ip(1)).err(), Some(RefuseReason::PerIpLimit));
        let _third = slots.take(ip(2)).expect("room");
        assert_eq!(slots.take(ip(3)).err(), Some(RefuseReason::TotalLimit));
        drop(first);
        assert!(slots.take(ip(1)).is_ok());
        assert_eq!(slots.total(), 2);
    }

    #[test]
    fn bi29_a_mapped_address_is_the_same_address() {
        let slots = ConnectionSlots::new(ConnectionLimits {
            total: 9,
            per_ip: 1,
        });
        let _v4 = slots.take(ip(1)).expect("room");
        let mapped: IpAddr = "::ffff:10.0.0.1".parse().expect("an address");
        assert_eq!(slots.take(mapped).err(), Some(RefuseReason::PerIpLimit));
    }

    #[test]
    fn bi29_addresses_that_left_cost_nothing() {
        let slots = ConnectionSlots::new(ConnectionLimits::default());
        for last in 0..=255 {
            drop(slots.take(ip(last)).expect("room"));
        }
        assert!(slots.lock().by_ip.is_empty());
    }
}
