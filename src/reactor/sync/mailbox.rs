//! A bounded queue from many threads to one task: how cores hand each other work.
//!
//! A send moves the value and takes no lock while there is room. The receiver *arms* itself before it
//! sleeps; only a sender that finds it armed pays for a wake. A sender that finds the queue full
//! waits for room (`send`) or gets its value back (`try_send`).
//!
//! Invariants, both by a store, a full fence and a second look on either side:
//! - if the receiver sleeps armed, no value is in the queue that nobody will wake it for;
//! - if a sender sleeps, it is in the list of waiting senders, and each value taken wakes one of them.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use crossbeam_queue::ArrayQueue;
use futures_util::task::AtomicWaker;

use super::lock;

struct Shared<T> {
    queue: ArrayQueue<T>,
    /// Set by the receiver just before it sleeps; whoever clears it owes the wake.
    armed: AtomicBool,
    receiver: AtomicWaker,
    receiver_gone: AtomicBool,
    senders: AtomicUsize,
    /// Length of `blocked`, readable without its lock.
    blocked_count: AtomicUsize,
    blocked: Mutex<Blocked>,
}

#[derive(Default)]
struct Blocked {
    next_id: u64,
    list: VecDeque<(u64, Waker)>,
}

/// The sending half; clones go to any thread.
pub struct Sender<T>(Arc<Shared<T>>);

/// The receiving half, for one task.
pub struct Receiver<T>(Arc<Shared<T>>);

/// Why [`Sender::try_send`] kept nothing; the value comes back.
#[derive(Debug, PartialEq, Eq)]
pub enum TrySendError<T> {
    /// No room now.
    Full(T),
    /// The receiver is gone.
    Closed(T),
}

/// The receiver is gone; the value comes back.
#[derive(Debug, PartialEq, Eq)]
pub struct SendError<T>(pub T);

/// Makes a mailbox for at most `capacity` values.
///
/// # Panics
/// If `capacity` is zero.
pub fn channel<T: Send>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    let shared = Arc::new(Shared {
        queue: ArrayQueue::new(capacity),
        armed: AtomicBool::new(false),
        receiver: AtomicWaker::new(),
        receiver_gone: AtomicBool::new(false),
        senders: AtomicUsize::new(1),
        blocked_count: AtomicUsize::new(0),
        blocked: Mutex::new(Blocked::default()),
    });
    (Sender(Arc::clone(&shared)), Receiver(shared))
}

impl<T> Shared<T> {
    fn wake_receiver(&self) {
        fence(Ordering::SeqCst);
        if self.armed.load(Ordering::Relaxed) && self.armed.swap(false, Ordering::AcqRel) {
            self.receiver.wake();
        }
    }

    /// Wakes one waiting sender, if any: called after a place became free.
    fn wake_sender(&self) {
        fence(Ordering::SeqCst);
        if self.blocked_count.load(Ordering::Relaxed) == 0 {
            return;
        }
        let next = {
            let mut blocked = lock(&self.blocked);
            let next = blocked.list.pop_front();
            self.blocked_count
                .store(blocked.list.len(), Ordering::SeqCst);
            next
        };
        if let Some((_, waker)) = next {
            waker.wake();
        }
    }

    fn wake_all_senders(&self) {
        let list = {
            let mut blocked = lock(&self.blocked);
            self.blocked_count.store(0, Ordering::SeqCst);
            std::mem::take(&mut blocked.list)
        };
        for (_, waker) in list {
            waker.wake();
        }
    }
}

impl<T: Send> Sender<T> {
    /// Puts the value in the queue, or gives it back.
    pub fn try_send(&self, value: T) -> Result<(), TrySendError<T>> {
        let shared = &*self.0;
        if shared.receiver_gone.load(Ordering::Acquire) {
            return Err(TrySendError::Closed(value));
        }
        match shared.queue.push(value) {
            Ok(()) => {
                shared.wake_receiver();
                if shared.receiver_gone.load(Ordering::SeqCst) {
                    // It left between our two looks: what it did not drain, we do, so that whoever
                    // waits on something inside the value learns of it.
                    while shared.queue.pop().is_some() {}
                }
                Ok(())
            }
            Err(value) => Err(TrySendError::Full(value)),
        }
    }

    /// Puts the value in the queue, waiting for room. Dropping the future before it is done drops
    /// the value.
    pub fn send(&self, value: T) -> Sending<'_, T> {
        Sending {
            sender: self,
            value: Some(value),
            ticket: None,
        }
    }

    /// Values in the queue just now.
    pub fn len(&self) -> usize {
        self.0.queue.len()
    }

    /// True when the queue is empty just now.
    pub fn is_empty(&self) -> bool {
        self.0.queue.is_empty()
    }

    /// True when the receiver is gone.
    pub fn is_closed(&self) -> bool {
        self.0.receiver_gone.load(Ordering::Acquire)
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        self.0.senders.fetch_add(1, Ordering::Relaxed);
        Sender(Arc::clone(&self.0))
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        if self.0.senders.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.wake_receiver();
        }
    }
}

impl<T> std::fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "mailbox::Sender({}/{})",
            self.0.queue.len(),
            self.0.queue.capacity()
        )
    }
}

/// The future of [`Sender::send`].
#[must_use = "nothing is sent before the future is awaited"]
pub struct Sending<'a, T> {
    sender: &'a Sender<T>,
    value: Option<T>,
    ticket: Option<u64>,
}

// The value is moved out whole and never pinned.
impl<T> Unpin for Sending<'_, T> {}

impl<T: Send> Future for Sending<'_, T> {
    type Output = Result<(), SendError<T>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let Some(value) = this.value.take() else {
            return Poll::Ready(Ok(())); // polled again after it was done
        };
        let value = match this.sender.try_send(value) {
            Ok(()) => return this.finish(Ok(())),
            Err(TrySendError::Closed(value)) => return this.finish(Err(SendError(value))),
            Err(TrySendError::Full(value)) => value,
        };
        this.enlist(cx.waker());
        // Second look: a place may have become free before we were in the list.
        match this.sender.try_send(value) {
            Ok(()) => this.finish(Ok(())),
            Err(TrySendError::Closed(value)) => this.finish(Err(SendError(value))),
            Err(TrySendError::Full(value)) => {
                this.value = Some(value);
                Poll::Pending
            }
        }
    }
}

impl<T> Sending<'_, T> {
    fn enlist(&mut self, waker: &Waker) {
        let shared = &*self.sender.0;
        let mut blocked = lock(&shared.blocked);
        let known = blocked
            .list
            .iter_mut()
            .find(|(id, _)| Some(*id) == self.ticket);
        match known {
            Some((_, known)) => known.clone_from(waker),
            None => {
                let id = blocked.next_id;
                blocked.next_id += 1;
                // One that was woken and found the place taken goes to the front again.
                let entry = (id, waker.clone());
                match self.ticket {
                    Some(_) => blocked.list.push_front(entry),
                    None => blocked.list.push_back(entry),
                }
                self.ticket = Some(id);
            }
        }
        shared
            .blocked_count
            .store(blocked.list.len(), Ordering::SeqCst);
        drop(blocked);
        fence(Ordering::SeqCst);
    }

    fn finish(&mut self, result: Result<(), SendError<T>>) -> Poll<Result<(), SendError<T>>> {
        if self.delist() && !self.sender.0.queue.is_full() {
            self.sender.0.wake_sender();
        }
        Poll::Ready(result)
    }

    /// Leaves the list; true if a wake had already been spent on this future.
    fn delist(&mut self) -> bool {
        let Some(ticket) = self.ticket.take() else {
            return false;
        };
        let shared = &*self.sender.0;
        let mut blocked = lock(&shared.blocked);
        let before = blocked.list.len();
        blocked.list.retain(|(id, _)| *id != ticket);
        shared
            .blocked_count
            .store(blocked.list.len(), Ordering::SeqCst);
        blocked.list.len() == before
    }
}

impl<T> Drop for Sending<'_, T> {
    fn drop(&mut self) {
        if self.value.is_some() && self.delist() {
            // The place it was woken for goes to the next in line.
            self.sender.0.wake_sender();
        }
    }
}

impl<T: Send> Receiver<T> {
    /// The next value, or `None` once every sender is gone and the queue is empty. Cancel-safe.
    pub async fn recv(&mut self) -> Option<T> {
        poll_fn(|cx| self.poll_recv(cx)).await
    }

    /// Waits for at least one value, then moves all that are there, at most `at_most`, to `into`.
    /// Returns how many; 0 once every sender is gone. Cancel-safe.
    pub async fn recv_many(&mut self, into: &mut Vec<T>, at_most: usize) -> usize {
        if at_most == 0 {
            return 0;
        }
        let Some(first) = self.recv().await else {
            return 0;
        };
        into.push(first);
        let mut taken = 1;
        while taken < at_most {
            let Some(value) = self.try_recv() else { break };
            into.push(value);
            taken += 1;
        }
        taken
    }

    /// A value if there is one.
    pub fn try_recv(&mut self) -> Option<T> {
        let value = self.0.queue.pop()?;
        self.0.wake_sender();
        Some(value)
    }

    fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Option<T>> {
        if let Some(value) = self.try_recv() {
            return Poll::Ready(Some(value));
        }
        self.0.receiver.register(cx.waker());
        self.0.armed.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        // Second look, in this order: the last sender pushes before it leaves.
        let all_gone = self.0.senders.load(Ordering::Acquire) == 0;
        match self.try_recv() {
            Some(value) => {
                self.0.armed.store(false, Ordering::Relaxed);
                Poll::Ready(Some(value))
            }
            None if all_gone => Poll::Ready(None),
            None => Poll::Pending,
        }
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        self.0.receiver_gone.store(true, Ordering::SeqCst);
        self.0.wake_all_senders();
        while self.0.queue.pop().is_some() {}
    }
}

impl<T> std::fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "mailbox::Receiver({}/{})",
            self.0.queue.len(),
            self.0.queue.capacity()
        )
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;
    use crate::sync::tests_support::{block_on, poll_once};

    #[test]
    fn values_arrive_in_order_and_then_the_end() {
        let (tx, mut rx) = channel(8);
        for n in 0..5 {
            tx.try_send(n).unwrap();
        }
        let mut got = Vec::new();
        assert_eq!(block_on(rx.recv_many(&mut got, 3)), 3);
        assert_eq!(got, [0, 1, 2]);
        drop(tx);
        assert_eq!(block_on(rx.recv()), Some(3));
        assert_eq!(block_on(rx.recv()), Some(4));
        assert_eq!(block_on(rx.recv()), None);
    }

    #[test]
    fn a_full_mailbox_gives_back_or_waits() {
        let (tx, mut rx) = channel(1);
        tx.try_send(1).unwrap();
        assert_eq!(tx.try_send(2), Err(TrySendError::Full(2)));
        let mut waiting = tx.send(3);
        assert!(poll_once(&mut waiting).is_pending());
        assert_eq!(rx.try_recv(), Some(1));
        assert_eq!(poll_once(&mut waiting), Poll::Ready(Ok(())));
        drop(waiting);
        assert_eq!(rx.try_recv(), Some(3));
    }

    #[test]
    fn a_place_offered_to_a_dropped_send_goes_to_the_next() {
        let (tx, mut rx) = channel(1);
        tx.try_send(1).unwrap();
        let mut first = tx.send(2);
        let mut second = tx.send(3);
        assert!(poll_once(&mut first).is_pending());
        let woken = Arc::new(Flag(AtomicBool::new(false)));
        let waker = Waker::from(Arc::clone(&woken));
        assert!(
            Pin::new(&mut second)
                .poll(&mut Context::from_waker(&waker))
                .is_pending()
        );
        assert_eq!(rx.try_recv(), Some(1));
        assert!(!woken.0.load(Ordering::SeqCst));
        drop(first);
        assert!(woken.0.load(Ordering::SeqCst));
        assert!(poll_once(&mut second).is_ready());
    }

    struct Flag(AtomicBool);

    impl std::task::Wake for Flag {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::SeqCst);
        }
    }

    #[test]
    fn a_gone_receiver_fails_senders_and_drops_values() {
        let (tx, rx) = channel(1);
        let held = Arc::new(());
        tx.try_send(Arc::clone(&held)).unwrap();
        let mut waiting = tx.send(Arc::clone(&held));
        assert!(poll_once(&mut waiting).is_pending());
        drop(rx);
        assert!(matches!(poll_once(&mut waiting), Poll::Ready(Err(_))));
        drop(waiting);
        assert_eq!(Arc::strong_count(&held), 1);
        assert!(tx.is_closed());
    }

    #[test]
    fn no_wakeup_is_lost_and_nothing_doubled_between_threads() {
        const EACH: u64 = 20_000;
        for capacity in [1, 2, 64] {
            let (tx, mut rx) = channel(capacity);
            let sum = Arc::new(AtomicU64::new(0));
            let senders: Vec<_> = (0..3)
                .map(|s| {
                    let tx = tx.clone();
                    let sum = Arc::clone(&sum);
                    std::thread::spawn(move || {
                        for n in 0..EACH / capacity.min(4) as u64 {
                            let value = s * EACH + n;
                            sum.fetch_add(value, Ordering::Relaxed);
                            block_on(tx.send(value)).unwrap();
                        }
                    })
                })
                .collect();
            drop(tx);
            let (mut got, mut count, mut batch) = (0, 0, Vec::new());
            while block_on(rx.recv_many(&mut batch, 16)) > 0 {
                count += batch.len() as u64;
                got += batch.drain(..).sum::<u64>();
            }
            senders
                .into_iter()
                .for_each(|sender| sender.join().unwrap());
            assert_eq!(count, 3 * (EACH / capacity.min(4) as u64));
            assert_eq!(got, sum.load(Ordering::Relaxed));
        }
    }
}
