//! Memory of the requests that a shard has admitted, and of those that are still arriving.
//!
//! A request is charged for the bytes that have arrived and for the room of its next read, never for
//! what its size prefix declares (BI-2). It gives them back when its [`MemoryPermit`] is dropped. Who
//! does not fit waits, first come first served, and its connection is not read meanwhile.
//!
//! Three pools, so that nobody starves:
//! - **small**: requests up to [`SMALL_REQUEST_BYTES_MAX`] that have arrived whole. Nobody who sends
//!   slowly can hold any of it;
//! - **arriving**: those whose bytes are not all there;
//! - **general**: larger ones, whole or not.
//!
//! The last two have one spare place as large as the largest request of their kind. The first in line
//! moves into it when the pool is full, with all that it has yet to bring: so the line always moves,
//! even if the pool is full of requests that can not end without more room. While a line does not move
//! for slow clients, the sweeper closes those ([`MemoryBudget::wanted`]).
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

/// What one request is charged; dropping it gives the memory back.
pub struct MemoryPermit {
    inner: Rc<RefCell<Inner>>,
    bytes: u64,
    place: Place,
}

/// Which pool a request draws on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Small,
    Arriving,
    General,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    Shared(Kind),
    Spare(Kind),
}

impl Place {
    fn kind(self) -> Kind {
        match self {
            Place::Shared(kind) | Place::Spare(kind) => kind,
        }
    }
}

struct Inner {
    small: Pool,
    arriving: Pool,
    general: Pool,
    waits: u64,
}

struct Pool {
    limit: u64,
    used: u64,
    /// Size of the spare place; 0 where there is none.
    spare: u64,
    /// What the request in it is charged.
    spare_used: Option<u64>,
    line: VecDeque<Rc<Ticket>>,
}

/// A place in a line.
struct Ticket {
    /// What it has of the pool, and what it wants beside.
    held: u64,
    more: u64,
    granted: Cell<Option<Place>>,
    waker: RefCell<Option<Waker>>,
}

impl Pool {
    fn new(limit: u64, spare: u64) -> Pool {
        Pool {
            limit,
            used: 0,
            spare,
            spare_used: None,
            line: VecDeque::new(),
        }
    }

    fn charge(&mut self, kind: Kind, held: u64, more: u64) -> Option<Place> {
        if self.used + more <= self.limit {
            self.used += more;
            return Some(Place::Shared(kind));
        }
        if self.spare == 0 || self.spare_used.is_some() {
            return None;
        }
        self.used -= held;
        self.spare_used = Some(held + more);
        Some(Place::Spare(kind))
    }

    fn charged(&self) -> u64 {
        self.used + self.spare_used.unwrap_or(0)
    }
}

impl MemoryBudget {
    /// A budget of about `total` bytes of which one place is for the largest request. A total too
    /// small for that place and the shares of small requests is raised to hold all.
    #[must_use]
    pub fn new(total: u64, largest_request: u32) -> Self {
        let largest = u64::from(largest_request);
        let small = (total / 8).max(16 * SMALL_REQUEST_BYTES_MAX);
        let arriving = small / 4;
        let general = total.saturating_sub(largest + small);
        MemoryBudget {
            inner: Rc::new(RefCell::new(Inner {
                small: Pool::new(small - arriving, 0),
                arriving: Pool::new(arriving - SMALL_REQUEST_BYTES_MAX, SMALL_REQUEST_BYTES_MAX),
                general: Pool::new(general, largest),
                waits: 0,
            })),
        }
    }

    /// Bytes charged now.
    #[must_use]
    pub fn used(&self) -> u64 {
        let inner = self.inner.borrow();
        inner.pools().map(Pool::charged).iter().sum()
    }

    /// Bytes that may be charged at once.
    #[must_use]
    pub fn limit(&self) -> u64 {
        let inner = self.inner.borrow();
        let limits = inner.pools().map(|pool| pool.limit + pool.spare);
        limits.iter().sum()
    }

    /// Requests in line now.
    #[must_use]
    pub fn waiting(&self) -> usize {
        let inner = self.inner.borrow();
        inner.pools().map(|pool| pool.line.len()).iter().sum()
    }

    /// Requests that had to wait since the start.
    #[must_use]
    pub fn waits(&self) -> u64 {
        self.inner.borrow().waits
    }

    /// Bytes that requests of this kind wait for.
    pub(crate) fn wanted(&self, kind: Kind) -> u64 {
        let mut inner = self.inner.borrow_mut();
        inner.pool(kind).line.iter().map(|t| t.more).sum()
    }

    /// Waits for `bytes` for a request that has arrived whole, first come first served among requests
    /// of the same kind. Dropping the future leaves the line. `bytes` is at most the largest request:
    /// the caller has refused a larger frame.
    pub fn acquire(&self, bytes: u32) -> Acquire {
        self.nothing_of(Kind::of_whole(bytes))
            .cover(u64::from(bytes))
    }

    /// As [`MemoryBudget::acquire`], unless it would have to wait.
    pub(crate) fn try_acquire(&self, bytes: u32) -> Option<MemoryPermit> {
        let mut permit = self.nothing_of(Kind::of_whole(bytes));
        permit.try_cover(u64::from(bytes)).then_some(permit)
    }

    /// A permit for nothing yet, for a request of `size` bytes that are not all there.
    pub(crate) fn begin(&self, size: u32) -> MemoryPermit {
        self.nothing_of(Kind::of_arriving(size))
    }

    fn nothing_of(&self, kind: Kind) -> MemoryPermit {
        MemoryPermit {
            inner: Rc::clone(&self.inner),
            bytes: 0,
            place: Place::Shared(kind),
        }
    }
}

impl Kind {
    /// The kind of a request of `size` bytes that has arrived whole.
    fn of_whole(size: u32) -> Kind {
        match u64::from(size) <= SMALL_REQUEST_BYTES_MAX {
            true => Kind::Small,
            false => Kind::General,
        }
    }

    /// The kind of a request of `size` bytes that are not all there.
    pub(crate) fn of_arriving(size: u32) -> Kind {
        match u64::from(size) <= SMALL_REQUEST_BYTES_MAX {
            true => Kind::Arriving,
            false => Kind::General,
        }
    }
}

impl Inner {
    fn pools(&self) -> [&Pool; 3] {
        [&self.small, &self.arriving, &self.general]
    }

    fn pool(&mut self, kind: Kind) -> &mut Pool {
        match kind {
            Kind::Small => &mut self.small,
            Kind::Arriving => &mut self.arriving,
            Kind::General => &mut self.general,
        }
    }

    /// Charges `more` without waiting, if nobody is in line before.
    fn admit(&mut self, place: Place, held: u64, more: u64) -> Option<Place> {
        if more == 0 {
            return Some(place);
        }
        let pool = self.pool(place.kind());
        match place {
            Place::Spare(_) => {
                pool.spare_used = Some(held + more);
                Some(place)
            }
            Place::Shared(kind) if pool.line.is_empty() => pool.charge(kind, held, more),
            Place::Shared(_) => None,
        }
    }

    fn give_back(&mut self, place: Place, bytes: u64) {
        let pool = self.pool(place.kind());
        match place {
            Place::Shared(_) => pool.used -= bytes,
            Place::Spare(_) => pool.spare_used = None,
        }
        self.move_line(place.kind());
    }

    fn move_line(&mut self, kind: Kind) {
        let pool = self.pool(kind);
        while let Some(first) = pool.line.front().cloned() {
            let Some(place) = pool.charge(kind, first.held, first.more) else {
                break;
            };
            pool.line.pop_front();
            first.granted.set(Some(place));
            if let Some(waker) = first.waker.take() {
                waker.wake();
            }
        }
    }
}

/// Future of [`MemoryBudget::acquire`] and [`MemoryPermit::cover`].
pub struct Acquire {
    /// What the request has so far; gone when the future has ended.
    permit: Option<MemoryPermit>,
    more: u64,
    ticket: Option<Rc<Ticket>>,
}

impl Acquire {
    /// Takes what was granted into the permit.
    fn settle(&mut self, place: Place) -> Option<MemoryPermit> {
        self.ticket = None;
        let mut permit = self.permit.take()?;
        permit.bytes += self.more;
        permit.place = place;
        Some(permit)
    }
}

impl Future for Acquire {
    type Output = MemoryPermit;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<MemoryPermit> {
        let this = &mut *self;
        let granted = match (&this.ticket, &this.permit) {
            (Some(ticket), _) => ticket.granted.take(),
            (None, Some(permit)) => permit.try_more(this.more),
            (None, None) => None,
        };
        if let Some(permit) = granted.and_then(|place| this.settle(place)) {
            return Poll::Ready(permit);
        }
        if let (None, Some(permit)) = (&this.ticket, &this.permit) {
            this.ticket = Some(permit.queue_for(this.more));
        }
        if let Some(ticket) = &this.ticket {
            *ticket.waker.borrow_mut() = Some(cx.waker().clone());
        }
        Poll::Pending
    }
}

impl Drop for Acquire {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket.take() else {
            return;
        };
        if let Some(place) = ticket.granted.take() {
            // The permit gives it back.
            self.settle(place);
            return;
        }
        if let Some(permit) = &self.permit {
            let mut inner = permit.inner.borrow_mut();
            let kind = permit.place.kind();
            inner.pool(kind).line.retain(|t| !Rc::ptr_eq(t, &ticket));
            inner.move_line(kind);
        }
    }
}

impl MemoryPermit {
    /// Bytes charged.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Raises the charge to `bytes`, unless it has to wait for that.
    pub(crate) fn try_cover(&mut self, bytes: u64) -> bool {
        let more = bytes.saturating_sub(self.bytes);
        let Some(place) = self.try_more(more) else {
            return false;
        };
        self.bytes += more;
        self.place = place;
        true
    }

    /// Raises the charge to `bytes`, waiting for it in line if need be. What it has so far stays its
    /// own meanwhile, and is given back when the future is dropped.
    pub(crate) fn cover(self, bytes: u64) -> Acquire {
        Acquire {
            more: bytes.saturating_sub(self.bytes),
            permit: Some(self),
            ticket: None,
        }
    }

    fn try_more(&self, more: u64) -> Option<Place> {
        let mut inner = self.inner.borrow_mut();
        inner.admit(self.place, self.bytes, more)
    }

    fn queue_for(&self, more: u64) -> Rc<Ticket> {
        let ticket = Rc::new(Ticket {
            held: self.bytes,
            more,
            granted: Cell::new(None),
            waker: RefCell::new(None),
        });
        let mut inner = self.inner.borrow_mut();
        inner.waits += 1;
        let pool = inner.pool(self.place.kind());
        pool.line.push_back(Rc::clone(&ticket));
        ticket
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

    use super::{Acquire, Kind, MemoryBudget, MemoryPermit};

    const MIB: u64 = 1024 * 1024;
    /// 16 MiB of small requests, a quarter of it for those that arrive, 12 MiB general, 100 MiB spare.
    const TOTAL: u64 = 128 * MIB;
    const LARGEST: u32 = 100 * 1024 * 1024;

    fn poll(acquire: &mut Acquire) -> Option<MemoryPermit> {
        match pin!(acquire).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(permit) => Some(permit),
            Poll::Pending => None,
        }
    }

    /// Both ways to it agree on whether it has to wait.
    fn take(budget: &MemoryBudget, bytes: u64) -> Option<MemoryPermit> {
        let bytes = u32::try_from(bytes).expect("fits");
        let used = budget.used();
        let at_once = budget.try_acquire(bytes).is_some();
        assert_eq!(budget.used(), used, "given back");
        let taken = poll(&mut budget.acquire(bytes));
        assert_eq!(taken.is_some(), at_once);
        taken
    }

    #[test]
    fn bi31_giants_do_not_block_small_requests() {
        let budget = MemoryBudget::new(TOTAL, LARGEST);
        let giants: Vec<_> = (0..5).map(|_| budget.acquire(LARGEST)).collect();
        let mut giants = giants;
        let held: Vec<_> = giants.iter_mut().filter_map(poll).collect();
        assert_eq!(held.len(), 1, "one giant in the spare place, four wait");
        let small: Vec<_> = (0..100).map(|_| take(&budget, 64 * 1024)).collect();
        assert!(small.iter().all(Option::is_some));
        assert!(budget.used() <= budget.limit());
    }

    #[test]
    fn bi31_the_line_is_first_come_first_served() {
        let budget = MemoryBudget::new(TOTAL, LARGEST);
        let general = take(&budget, 12 * MIB).expect("fits");
        let reserved = take(&budget, 50 * MIB).expect("the spare place");
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
        let _reserved = take(&budget, 100 * MIB).expect("the spare place");
        let mut giant = budget.acquire(LARGEST);
        let mut modest = budget.acquire(MIB as u32);
        assert!(poll(&mut giant).is_none() && poll(&mut modest).is_none());
        drop(giant);
        assert!(poll(&mut modest).is_some());
    }

    #[test]
    fn bi31_a_grant_that_nobody_takes_is_given_back() {
        let budget = MemoryBudget::new(TOTAL, LARGEST);
        let first = take(&budget, 100 * MIB).expect("the spare place");
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

    fn cover(permit: MemoryPermit, bytes: u64) -> Result<MemoryPermit, Acquire> {
        let mut growing = permit.cover(bytes);
        poll(&mut growing).ok_or(growing)
    }

    #[test]
    fn bi31_what_arrives_slowly_holds_nothing_of_whole_requests() {
        let budget = MemoryBudget::new(TOTAL, LARGEST);
        let slow: Vec<_> = (0..10_000)
            .map(|_| cover(budget.begin(65_000), 2_148))
            .collect();
        let waiting = slow.iter().filter(|one| one.is_err()).count();
        assert!(waiting > 0 && waiting == budget.waiting());
        assert_eq!(budget.wanted(Kind::Arriving), 2_148 * waiting as u64);
        let whole: Vec<_> = (0..12 * 16).map(|_| take(&budget, 64 * 1024)).collect();
        assert!(whole.iter().all(Option::is_some), "12 MiB of them");
        assert!(budget.used() <= budget.limit());
        drop((slow, whole));
        assert_eq!((budget.used(), budget.waiting()), (0, 0));
    }

    #[test]
    fn bi31_requests_that_fill_the_memory_by_halves_all_end() {
        let budget = MemoryBudget::new(TOTAL, LARGEST);
        for (size, half) in [(65_536u32, 20_000), (3_000_000, 1_000_000)] {
            let mut growing: Vec<Acquire> = (0..1_000)
                .map(|_| match cover(budget.begin(size), half) {
                    Ok(permit) => permit.cover(u64::from(size)),
                    Err(waiting) => waiting,
                })
                .collect();
            let mut rounds = 0;
            while !growing.is_empty() {
                // Each that got all it wanted is worked on and gone.
                growing = growing
                    .into_iter()
                    .filter_map(|mut one| match poll(&mut one) {
                        Some(permit) if permit.bytes() < u64::from(size) => {
                            Some(permit.cover(u64::from(size)))
                        }
                        Some(_) => None,
                        None => Some(one),
                    })
                    .collect();
                assert!(budget.used() <= budget.limit());
                rounds += 1;
                assert!(rounds < 10_000, "{} never end", growing.len());
            }
            assert_eq!((budget.used(), budget.waiting()), (0, 0));
        }
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
            match random(5) {
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
                3 if !held.is_empty() && random(2) == 0 => {
                    let permit = held.swap_remove(random(held.len() as u64) as usize);
                    let bytes = permit.bytes() + random(1 << 20);
                    waiting.push(permit.cover(bytes.min(u64::from(LARGEST))));
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
