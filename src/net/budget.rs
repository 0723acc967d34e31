//! Memory of the requests that a shard has admitted.
//!
//! A request is charged its full declared size before its body is read, and gives it back when its
//! [`MemoryPermit`] is dropped. Who does not fit waits, first come first served, and its connection
//! is not read meanwhile.
//!
//! Three places, so that nobody starves:
//! - **small**: requests up to [`SMALL_REQUEST_BYTES_MAX`] draw on a share of their own, so that a
//!   few giants that trickle in block nobody's heartbeat;
//! - **general**: the rest, in order of arrival;
//! - **reserved**: one slot as large as the largest request. The first in line takes it when
//!   *general* is full, so that the line always moves, whatever its first request needs.
//!
//! One thread; no lock. A permit stays on the core of its connection, also while another core works
//! on the request.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use thalweg_types::limits::SMALL_REQUEST_BYTES_MAX;

/// The budget of one shard. `Clone` gives another handle to the same budget.
#[derive(Clone)]
pub struct MemoryBudget {
    inner: Rc<RefCell<Inner>>,
}

/// Admission of one request; dropping it gives the memory back.
pub struct MemoryPermit {
    inner: Rc<RefCell<Inner>>,
    bytes: u64,
    place: Place,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    Small,
    General,
    Reserved,
}

struct Inner {
    small: Pool,
    general: Pool,
    reserved_bytes: u64,
    reserved_in_use: Option<u64>,
    waits: u64,
}

struct Pool {
    limit: u64,
    used: u64,
    line: VecDeque<Rc<Ticket>>,
}

/// A place in a line.
struct Ticket {
    bytes: u64,
    granted: Cell<Option<Place>>,
    waker: RefCell<Option<Waker>>,
}

impl Pool {
    fn new(limit: u64) -> Pool {
        Pool {
            limit,
            used: 0,
            line: VecDeque::new(),
        }
    }

    fn fits(&self, bytes: u64) -> bool {
        self.used + bytes <= self.limit
    }
}

impl MemoryBudget {
    /// A budget of about `total` bytes of which one slot is for the largest request. A total too
    /// small for that slot and the share of small requests is raised to hold both.
    #[must_use]
    pub fn new(total: u64, largest_request: u32) -> Self {
        let reserved_bytes = u64::from(largest_request);
        let small = (total / 8).max(16 * SMALL_REQUEST_BYTES_MAX);
        let general = total.saturating_sub(reserved_bytes + small);
        MemoryBudget {
            inner: Rc::new(RefCell::new(Inner {
                small: Pool::new(small),
                general: Pool::new(general),
                reserved_bytes,
                reserved_in_use: None,
                waits: 0,
            })),
        }
    }

    /// Bytes charged now.
    #[must_use]
    pub fn used(&self) -> u64 {
        let inner = self.inner.borrow();
        inner.small.used + inner.general.used + inner.reserved_in_use.unwrap_or(0)
    }

    /// Bytes that may be charged at once.
    #[must_use]
    pub fn limit(&self) -> u64 {
        let inner = self.inner.borrow();
        inner.small.limit + inner.general.limit + inner.reserved_bytes
    }

    /// Requests in line now.
    #[must_use]
    pub fn waiting(&self) -> usize {
        let inner = self.inner.borrow();
        inner.small.line.len() + inner.general.line.len()
    }

    /// Requests that had to wait since the start.
    #[must_use]
    pub fn waits(&self) -> u64 {
        self.inner.borrow().waits
    }

    /// Waits for `bytes`, first come first served among requests of the same kind. Dropping the
    /// future leaves the line. `bytes` is at most the largest request: the caller has refused a
    /// larger frame.
    pub fn acquire(&self, bytes: u32) -> Acquire {
        Acquire {
            inner: Rc::clone(&self.inner),
            bytes: u64::from(bytes),
            ticket: None,
        }
    }
}

impl Inner {
    fn pool(&mut self, small: Place) -> &mut Pool {
        match small {
            Place::Small => &mut self.small,
            Place::General | Place::Reserved => &mut self.general,
        }
    }

    /// Charges `bytes` without waiting, if nobody is in line before.
    fn admit(&mut self, bytes: u64) -> Option<Place> {
        let kind = kind_of(bytes);
        if !self.pool(kind).line.is_empty() {
            return None;
        }
        self.charge(kind, bytes)
    }

    fn charge(&mut self, kind: Place, bytes: u64) -> Option<Place> {
        let pool = self.pool(kind);
        if pool.fits(bytes) {
            pool.used += bytes;
            return Some(kind);
        }
        if kind == Place::General && self.reserved_in_use.is_none() {
            self.reserved_in_use = Some(bytes);
            return Some(Place::Reserved);
        }
        None
    }

    fn give_back(&mut self, place: Place, bytes: u64) {
        match place {
            Place::Small => self.small.used -= bytes,
            Place::General => self.general.used -= bytes,
            Place::Reserved => self.reserved_in_use = None,
        }
        self.move_lines();
    }

    fn move_lines(&mut self) {
        for kind in [Place::Small, Place::General] {
            while let Some(first) = self.pool(kind).line.front().cloned() {
                let Some(place) = self.charge(kind, first.bytes) else {
                    break;
                };
                self.pool(kind).line.pop_front();
                first.granted.set(Some(place));
                if let Some(waker) = first.waker.take() {
                    waker.wake();
                }
            }
        }
    }
}

fn kind_of(bytes: u64) -> Place {
    if bytes <= SMALL_REQUEST_BYTES_MAX {
        Place::Small
    } else {
        Place::General
    }
}

/// Future of [`MemoryBudget::acquire`].
pub struct Acquire {
    inner: Rc<RefCell<Inner>>,
    bytes: u64,
    ticket: Option<Rc<Ticket>>,
}

impl Future for Acquire {
    type Output = MemoryPermit;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<MemoryPermit> {
        let this = &mut *self;
        let place = match &this.ticket {
            Some(ticket) => ticket.granted.take(),
            None => this.inner.borrow_mut().admit(this.bytes),
        };
        if let Some(place) = place {
            this.ticket = None;
            let inner = Rc::clone(&this.inner);
            return Poll::Ready(MemoryPermit {
                inner,
                bytes: this.bytes,
                place,
            });
        }
        let ticket = this.ticket.get_or_insert_with(|| {
            let ticket = Rc::new(Ticket {
                bytes: this.bytes,
                granted: Cell::new(None),
                waker: RefCell::new(None),
            });
            let mut inner = this.inner.borrow_mut();
            inner.waits += 1;
            inner
                .pool(kind_of(this.bytes))
                .line
                .push_back(Rc::clone(&ticket));
            ticket
        });
        *ticket.waker.borrow_mut() = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for Acquire {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket.take() else {
            return;
        };
        let mut inner = self.inner.borrow_mut();
        match ticket.granted.take() {
            Some(place) => inner.give_back(place, ticket.bytes),
            None => {
                let pool = inner.pool(kind_of(ticket.bytes));
                pool.line.retain(|other| !Rc::ptr_eq(other, &ticket));
                inner.move_lines();
            }
        }
    }
}

impl MemoryPermit {
    /// Bytes charged.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for MemoryPermit {
    fn drop(&mut self) {
        self.inner.borrow_mut().give_back(self.place, self.bytes);
    }
}

impl std::fmt::Debug for MemoryPermit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "MemoryPermit({} bytes, {:?})", self.bytes, self.place)
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::{Acquire, MemoryBudget, MemoryPermit};

    const MIB: u64 = 1024 * 1024;
    /// 16 MiB small share, 12 MiB general, 100 MiB reserved.
    const TOTAL: u64 = 128 * MIB;
    const LARGEST: u32 = 100 * 1024 * 1024;

    fn poll(acquire: &mut Acquire) -> Option<MemoryPermit> {
        match pin!(acquire).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(permit) => Some(permit),
            Poll::Pending => None,
        }
    }

    fn take(budget: &MemoryBudget, bytes: u64) -> Option<MemoryPermit> {
        poll(&mut budget.acquire(u32::try_from(bytes).expect("fits")))
    }

    #[test]
    fn bi31_giants_do_not_block_small_requests() {
        let budget = MemoryBudget::new(TOTAL, LARGEST);
        let giants: Vec<_> = (0..5).map(|_| budget.acquire(LARGEST)).collect();
        let mut giants = giants;
        let held: Vec<_> = giants.iter_mut().filter_map(poll).collect();
        assert_eq!(held.len(), 1, "one giant in the reserved slot, four wait");
        let small: Vec<_> = (0..100).map(|_| take(&budget, 64 * 1024)).collect();
        assert!(small.iter().all(Option::is_some));
        assert!(budget.used() <= budget.limit());
    }

    #[test]
    fn bi31_the_line_is_first_come_first_served() {
        let budget = MemoryBudget::new(TOTAL, LARGEST);
        let general = take(&budget, 12 * MIB).expect("fits");
        let reserved = take(&budget, 50 * MIB).expect("the reserved slot");
        let mut giant = budget.acquire(LARGEST);
        let mut later = budget.acquire(70 * 1024);
        assert!(poll(&mut giant).is_none() && poll(&mut later).is_none());
        drop(general);
        assert!(poll(&mut later).is_none(), "may not overtake the giant");
        drop(reserved);
        assert!(poll(&mut giant).is_some_and(|p| p.bytes() == u64::from(LARGEST)));
        assert!(poll(&mut later).is_some());
        assert_eq!((budget.used(), budget.waiting(), budget.waits()), (0, 0, 2));
    }

    #[test]
    fn bi31_leaving_the_line_lets_the_next_one_pass() {
        let budget = MemoryBudget::new(TOTAL, LARGEST);
        let _reserved = take(&budget, 100 * MIB).expect("the reserved slot");
        let mut giant = budget.acquire(LARGEST);
        let mut modest = budget.acquire(MIB as u32);
        assert!(poll(&mut giant).is_none() && poll(&mut modest).is_none());
        drop(giant);
        assert!(poll(&mut modest).is_some());
    }

    #[test]
    fn bi31_a_grant_that_nobody_takes_is_given_back() {
        let budget = MemoryBudget::new(TOTAL, LARGEST);
        let first = take(&budget, 100 * MIB).expect("the reserved slot");
        let mut second = budget.acquire(LARGEST);
        assert!(poll(&mut second).is_none());
        drop(first);
        assert_eq!(budget.used(), u64::from(LARGEST), "granted to the second");
        drop(second);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn a_small_total_still_takes_the_largest_request() {
        let budget = MemoryBudget::new(1, LARGEST);
        assert!(take(&budget, 100 * MIB).is_some());
        assert!(take(&budget, 64 * 1024).is_some());
    }

    /// The dumb twin: random acquires and releases never exceed the limits and never lose bytes.
    #[test]
    fn random_histories_keep_the_sums() {
        let mut seed = 42u64;
        let mut random = move |n: u64| {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % n
        };
        let budget = MemoryBudget::new(TOTAL, LARGEST);
        let mut waiting = Vec::new();
        let mut held: Vec<MemoryPermit> = Vec::new();
        for _ in 0..20_000 {
            match random(4) {
                0 => {
                    let magnitude = 10 + random(17);
                    waiting.push(budget.acquire(1 + random(1 << magnitude) as u32));
                }
                1 if !held.is_empty() => {
                    held.swap_remove(random(held.len() as u64) as usize);
                }
                2 if !waiting.is_empty() => {
                    waiting.swap_remove(random(waiting.len() as u64) as usize);
                }
                _ => waiting.retain_mut(|acquire| match poll(acquire) {
                    Some(permit) => {
                        held.push(permit);
                        false
                    }
                    None => true,
                }),
            }
            assert!(budget.used() <= budget.limit());
            let sum: u64 = held.iter().map(MemoryPermit::bytes).sum();
            assert!(budget.used() >= sum, "grants not taken yet are charged too");
        }
        waiting.clear();
        held.clear();
        assert_eq!((budget.used(), budget.waiting()), (0, 0));
    }
}
