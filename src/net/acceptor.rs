//! The accept loop, and the limits on how many connections there are.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use thalweg_metrics::{CoreMetrics, RefuseReason};
use thalweg_reactor::event::Event;
use thalweg_reactor::net::{Accepted, Listeners};
use thalweg_reactor::{LogGate, stats, time};
use thalweg_types::ListenerIndex;

use crate::ConnectionLimits;

/// A socket on its way to a shard.
pub struct Incoming {
    /// The socket.
    pub accepted: Accepted,
    /// The listener that the client connected to.
    pub listener: ListenerIndex,
    /// The client's address.
    pub peer: SocketAddr,
    /// Its place among the allowed connections: keep it until the connection has ended.
    pub slot: ConnectionSlot,
}

/// Counts connections over all shards. Locked once per opened and once per closed connection, never
/// per request.
#[derive(Debug)]
pub struct ConnectionSlots {
    counts: Mutex<Counts>,
    /// Notified when a connection was counted out or limits have changed.
    changed: Event,
}

#[derive(Debug)]
struct Counts {
    limits: ConnectionLimits,
    total: usize,
    by_ip: HashMap<IpAddr, usize>,
    /// When the next connection is in time for `max.connection.creation.rate`.
    next_due: Option<Instant>,
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
            counts: Mutex::new(Counts {
                limits,
                total: 0,
                by_ip: HashMap::new(),
                next_due: None,
            }),
            changed: Event::new(),
        })
    }

    /// Obeys `limits` from now on. Connections that are open stay.
    pub fn set_limits(&self, limits: ConnectionLimits) {
        let mut counts = self.lock();
        if counts.limits != limits {
            counts.limits = limits;
            drop(counts);
            self.changed.notify();
        }
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
        let of_ip = counts.by_ip.get(&ip).copied().unwrap_or(0);
        if of_ip >= counts.limits.of_ip(ip) {
            return Err(RefuseReason::PerIpLimit);
        }
        counts.by_ip.insert(ip, of_ip + 1);
        counts.total += 1;
        Ok(ConnectionSlot {
            slots: Arc::clone(self),
            ip,
        })
    }

    /// Waits until one more connection is within `max.connections` and
    /// `max.connection.creation.rate`. Says whether it had to.
    async fn admit_next(&self) -> Admission {
        let mut admission = Admission::AtOnce;
        loop {
            // What was told before this look is in it.
            self.changed.take_all();
            let obstacle = self.lock().obstacle(time::now());
            match obstacle {
                Obstacle::None => return admission,
                Obstacle::Full => self.changed.wait().await,
                Obstacle::Early(by) => {
                    let _ = time::timeout(by, self.changed.wait()).await;
                }
            }
            admission = Admission::AfterWaiting;
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Counts> {
        // The counts are whole after every statement: a panic elsewhere leaves them usable.
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What keeps the next connection waiting.
#[derive(Debug, PartialEq, Eq)]
enum Obstacle {
    None,
    /// `max.connections` are open.
    Full,
    /// Too soon after the last ones, by so much.
    Early(Duration),
}

/// How the accept loop came to accept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Admission {
    AtOnce,
    AfterWaiting,
}

impl Counts {
    /// Counts the next connection into the rate when nothing is in its way. One second's worth may
    /// come at once.
    fn obstacle(&mut self, now: Instant) -> Obstacle {
        if self.total >= self.limits.total {
            return Obstacle::Full;
        }
        let each = Duration::from_secs(1) / self.limits.per_second.max(1);
        let burst = Duration::from_secs(1).saturating_sub(each);
        let due = self.next_due.map_or(now, |due| due.max(now));
        match due.saturating_duration_since(now + burst) {
            Duration::ZERO => {
                self.next_due = Some(due + each);
                Obstacle::None
            }
            early => Obstacle::Early(early),
        }
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
        drop(counts);
        self.slots.changed.notify();
    }
}

/// Accepts connections and hands them on.
pub struct Acceptor {
    listeners: Listeners,
    slots: Arc<ConnectionSlots>,
    refusals: LogGate,
    waits: LogGate,
}

impl Acceptor {
    /// An acceptor for `listeners`, whose indices are [`ListenerIndex`].
    #[must_use]
    pub fn new(listeners: Listeners, slots: Arc<ConnectionSlots>) -> Acceptor {
        Acceptor {
            listeners,
            slots,
            refusals: LogGate::default(),
            waits: LogGate::default(),
        }
    }

    /// Accepts until dropped, or until a listener fails for good. Each connection goes to
    /// `assign`, which is awaited: a shard that is too busy to take it slows the accepting down.
    ///
    /// At `max.connections`, or above the rate of new ones, nothing is accepted: connections wait in
    /// the kernel's queue, as with Kafka. One address's surplus is closed.
    ///
    /// Out of file handles or memory, accepting waits, longer each time, instead of spinning; the
    /// connections wait in the kernel's queue meanwhile (ST-21).
    pub async fn run<F>(&self, metrics: &RefCell<CoreMetrics>, mut assign: F) -> io::Error
    where
        F: AsyncFnMut(Incoming),
    {
        loop {
            if self.slots.admit_next().await == Admission::AfterWaiting
                && let Some(more) = self.waits.admit(time::now())
            {
                tracing::warn!(
                    open = self.slots.total(),
                    left_out = more,
                    "accepting waited: max.connections or max.connection.creation.rate is reached"
                );
            }
            let (listener, accepted) = match self.listeners.accept().await {
                Ok(next) => next,
                Err(error) => return error,
            };
            let peer = accepted.peer_addr();
            metrics.borrow_mut().counters.accept_backoffs = stats::read().accept_pauses;
            if let Some(slot) = self.admit(peer, metrics) {
                assign(Incoming {
                    accepted,
                    // As many as `LISTENERS_MAX` at most.
                    listener: ListenerIndex(u16::try_from(listener).unwrap_or(u16::MAX)),
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
    use std::time::{Duration, Instant};

    use thalweg_metrics::RefuseReason;

    use super::{ConnectionSlots, Obstacle};
    use crate::ConnectionLimits;

    fn ip(last: u8) -> IpAddr {
        [10, 0, 0, last].into()
    }

    #[test]
    fn bi29_connections_are_limited_per_address_with_exceptions() {
        let slots = ConnectionSlots::new(ConnectionLimits {
            per_ip: 2,
            per_ip_overrides: [(ip(7), 1), (ip(8), 0)].into(),
            ..ConnectionLimits::default()
        });
        let first = slots.take(ip(1)).expect("room");
        let _second = slots.take(ip(1)).expect("room");
        assert_eq!(slots.take(ip(1)).err(), Some(RefuseReason::PerIpLimit));
        let _seventh = slots.take(ip(7)).expect("room");
        assert_eq!(slots.take(ip(7)).err(), Some(RefuseReason::PerIpLimit));
        assert_eq!(slots.take(ip(8)).err(), Some(RefuseReason::PerIpLimit));
        drop(first);
        assert!(slots.take(ip(1)).is_ok());
        assert_eq!(slots.total(), 2);
    }

    #[test]
    fn bi29_at_the_total_the_next_one_waits_until_limits_change() {
        let slots = ConnectionSlots::new(ConnectionLimits {
            total: 1,
            ..ConnectionLimits::default()
        });
        let now = Instant::now();
        assert_eq!(slots.lock().obstacle(now), Obstacle::None);
        let _one = slots.take(ip(1)).expect("room");
        assert_eq!(slots.lock().obstacle(now), Obstacle::Full);
        slots.set_limits(ConnectionLimits::default());
        assert_eq!(slots.lock().obstacle(now), Obstacle::None);
    }

    #[test]
    fn bi29_new_connections_keep_to_their_rate() {
        let slots = ConnectionSlots::new(ConnectionLimits {
            per_second: 10,
            ..ConnectionLimits::default()
        });
        let start = Instant::now();
        let mut admitted = 0;
        for ms in (0..5_000).step_by(10) {
            let now = start + Duration::from_millis(ms);
            admitted += usize::from(slots.lock().obstacle(now) == Obstacle::None);
        }
        // A second's worth at once, then ten a second.
        assert!((58..=60).contains(&admitted), "{admitted}");
        let early = slots.lock().obstacle(start + Duration::from_secs(5));
        assert!(
            early == Obstacle::None
                || matches!(early, Obstacle::Early(by) if by <= Duration::from_millis(100))
        );
    }

    #[test]
    fn bi29_a_mapped_address_is_the_same_address() {
        let slots = ConnectionSlots::new(ConnectionLimits {
            per_ip: 1,
            ..ConnectionLimits::default()
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
