//! One connection as others see it: who it is, what it did, when it is due to be closed.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::net::SocketAddr;
use std::rc::Rc;
use std::str::Utf8Error;
use std::task::Waker;
use std::time::{Duration, Instant};

use thalweg_metrics::{Cause, CloseReason, Spent};
use thalweg_types::ListenerIndex;
use thalweg_types::limits::{ARRIVAL_PACE_BYTES, ARRIVAL_WHOLE_S};

use crate::Limits;
use crate::budget::Kind;
use crate::queue::ResponseQueue;

/// Characters of a client's own words that go into a log line.
const LABEL_CHARS_MAX: usize = 64;

/// Identity and counters of a connection. Services may keep it for as long as they like.
pub struct ConnState {
    id: u64,
    listener: ListenerIndex,
    peer: SocketAddr,
    opened: Instant,
    client: RefCell<Client>,
    requests: Cell<u64>,
    received: Cell<Instant>,
    bytes_in: Cell<u64>,
    bytes_out: Cell<u64>,
    pub(crate) queue: RefCell<ResponseQueue>,
    pub(crate) life: Life,
}

/// What a client says about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Client {
    /// `client_id` of the latest request that had one.
    pub id: Option<Rc<str>>,
    /// `client_software_name` (KIP-511), after ApiVersions.
    pub software_name: Option<String>,
    /// `client_software_version` (KIP-511), after ApiVersions.
    pub software_version: Option<String>,
}

/// What the reading half of a connection waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reading {
    /// The first byte of a request.
    Idle,
    /// The rest of a frame.
    Frame,
    /// Not the client: memory, a free slot, the dispatch.
    Busy,
}

/// A frame that is not all there.
#[derive(Clone, Copy, Debug)]
struct Arrival {
    size: u32,
    began: Instant,
    bytes: u64,
}

/// Deadlines of a connection and the way to end it. Times are those of the sweeper, which is at
/// most one interval late.
pub(crate) struct Life {
    pub(crate) reading: Cell<Reading>,
    /// True while the reading half waits for the writing half to free room.
    pub(crate) awaits_room: Cell<bool>,
    /// True while the read buffer has memory.
    pub(crate) holds_buffer: Cell<bool>,
    idle_since: Cell<Instant>,
    frame_due: Cell<Instant>,
    frame_owed: Cell<u64>,
    arrival: Cell<Option<Arrival>>,
    /// What the request waited for that is arriving.
    waited: Cell<Spent>,
    write_due: Cell<Option<Instant>>,
    flush_due: Cell<Option<(Instant, CloseReason)>>,
    /// When the next answer wants to look at the time.
    answer_due: Cell<Option<Instant>>,
    ended: Cell<Option<CloseReason>>,
    waker: RefCell<Option<Waker>>,
}

impl ConnState {
    pub(crate) fn new(
        id: u64,
        listener: ListenerIndex,
        peer: SocketAddr,
        now: Instant,
        queue: ResponseQueue,
    ) -> ConnState {
        ConnState {
            id,
            listener,
            peer,
            opened: now,
            client: RefCell::default(),
            requests: Cell::new(0),
            received: Cell::new(now),
            bytes_in: Cell::new(0),
            bytes_out: Cell::new(0),
            queue: RefCell::new(queue),
            life: Life {
                reading: Cell::new(Reading::Idle),
                awaits_room: Cell::new(false),
                holds_buffer: Cell::new(false),
                idle_since: Cell::new(now),
                frame_due: Cell::new(now),
                frame_owed: Cell::new(0),
                arrival: Cell::new(None),
                waited: Cell::default(),
                write_due: Cell::new(None),
                flush_due: Cell::new(None),
                answer_due: Cell::new(None),
                ended: Cell::new(None),
                waker: RefCell::new(None),
            },
        }
    }

    /// The listener that the client connected to: what it is told to connect to depends on it.
    #[must_use]
    pub fn listener(&self) -> ListenerIndex {
        self.listener
    }

    /// Number of the connection on its shard, from 1.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Address of the client.
    #[must_use]
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// When the connection was opened.
    #[must_use]
    pub fn opened(&self) -> Instant {
        self.opened
    }

    /// What the client says about itself.
    #[must_use]
    pub fn client(&self) -> Client {
        self.client.borrow().clone()
    }

    /// What the client calls itself, escaped and cut.
    pub(crate) fn client_label(&self) -> Option<String> {
        let client = self.client.borrow();
        client.id.as_deref().map(|id| Escaped(id).to_string())
    }

    /// Ends the connection without an answer to what is in flight: a client that asked for no answer
    /// (acks=0) learns of a refusal in no other way.
    pub fn abort(&self, reason: CloseReason) {
        self.life.end(reason);
    }

    /// Has the connection's task, which polls its answers, run at `due` or a little later, once at least:
    /// who still waits then asks again. Costs no timer, and is as exact as the sweeper.
    pub fn wake_at(&self, due: Instant) {
        let due = self.life.answer_due.get().map_or(due, |set| set.min(due));
        self.life.answer_due.set(Some(due));
    }

    /// Notes the `client_id` of a request header. Gives it back to keep: all requests that have the same share it.
    ///
    /// # Errors
    /// It is not UTF-8.
    pub fn note_client_id(&self, id: &[u8]) -> Result<Rc<str>, Utf8Error> {
        let known = &mut self.client.borrow_mut().id;
        match known {
            Some(known) if known.as_bytes() == id => Ok(Rc::clone(known)),
            Some(_) | None => {
                let new: Rc<str> = str::from_utf8(id)?.into();
                *known = Some(Rc::clone(&new));
                Ok(new)
            }
        }
    }

    /// Notes name and version of the client's software (KIP-511).
    pub fn set_software(&self, name: &str, version: &str) {
        let mut client = self.client.borrow_mut();
        client.software_name = Some(name.to_owned());
        client.software_version = Some(version.to_owned());
    }

    /// Requests received.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.requests.get()
    }

    /// Bytes received.
    #[must_use]
    pub fn bytes_in(&self) -> u64 {
        self.bytes_in.get()
    }

    /// Bytes sent.
    #[must_use]
    pub fn bytes_out(&self) -> u64 {
        self.bytes_out.get()
    }

    /// True while the connection holds memory to read into. One that waits for its client does not.
    #[must_use]
    pub fn holds_read_buffer(&self) -> bool {
        self.life.holds_buffer.get()
    }

    /// When the request that is being dispatched, or was dispatched last, had arrived whole.
    #[must_use]
    pub fn received(&self) -> Instant {
        self.received.get()
    }

    pub(crate) fn count_request(&self, received: Instant) {
        self.requests.set(self.requests.get() + 1);
        self.received.set(received);
    }

    pub(crate) fn count_in(&self, bytes: usize) {
        self.bytes_in.set(self.bytes_in.get() + bytes as u64);
    }

    pub(crate) fn count_out(&self, bytes: u64) {
        self.bytes_out.set(self.bytes_out.get() + bytes);
    }

    /// True while a further request may be read.
    pub(crate) fn has_room(&self, limits: &Limits) -> bool {
        let queue = self.queue.borrow();
        queue.in_flight() < limits.in_flight_max && !queue.is_full()
    }

    /// Since when the client has taken nothing of what is being sent, and how much memory waits for
    /// it; `None` while nothing is being sent.
    pub(crate) fn stalled(&self, limits: &Limits) -> Option<(Instant, usize)> {
        let due = self.life.write_due.get()?;
        let since = due.checked_sub(limits.write_window + limits.sweep_interval())?;
        Some((since, self.queue.borrow().ready_bytes()))
    }

    /// The pace in bytes per second and the bytes so far of a request that arrives too slowly at `now`
    /// while others of its kind wait for memory; `None` while the client is not what it waits for.
    pub(crate) fn lags(&self, now: Instant, kind: Kind, limits: &Limits) -> Option<(u64, u64)> {
        let arrival = self.life.arrival.get()?;
        let age = now.saturating_duration_since(arrival.began);
        let waits = self.life.reading.get() == Reading::Frame;
        if !waits || age < limits.arrival_pressure || Kind::of_arriving(arrival.size) != kind {
            return None;
        }
        let pace =
            arrival.bytes * 1_000 / u64::try_from(age.as_millis()).unwrap_or(u64::MAX).max(1);
        let enough = ARRIVAL_PACE_BYTES.max(u64::from(arrival.size) / ARRIVAL_WHOLE_S);
        (pace < enough).then_some((pace, arrival.bytes))
    }

    /// The reason to close this connection at `now`, if a deadline has passed.
    pub(crate) fn overdue(&self, now: Instant, limits: &Limits) -> Option<CloseReason> {
        let life = &self.life;
        if life.write_due.get().is_some_and(|due| now >= due) {
            return Some(CloseReason::SlowReader);
        }
        if let Some((_, reason)) = life.flush_due.get().filter(|(due, _)| now >= *due) {
            return Some(reason);
        }
        match life.reading.get() {
            Reading::Frame if now >= life.frame_due.get() => Some(CloseReason::SlowFrame),
            Reading::Idle if self.queue.borrow().in_flight() > 0 => {
                life.idle_since.set(now);
                None
            }
            Reading::Idle if now >= life.idle_since.get() + limits.idle => Some(CloseReason::Idle),
            Reading::Idle | Reading::Frame | Reading::Busy => None,
        }
    }
}

impl Life {
    /// The client owes nothing until it starts a request.
    pub(crate) fn await_request(&self, now: Instant) {
        self.reading.set(Reading::Idle);
        self.idle_since.set(now);
    }

    /// The client owes `bytes` of a frame by `due`.
    pub(crate) fn await_frame(&self, bytes: u64, due: Instant) {
        self.reading.set(Reading::Frame);
        self.frame_owed.set(bytes);
        self.frame_due.set(due);
    }

    /// A frame of `size` bytes has begun to arrive, with `bytes` of it.
    pub(crate) fn arrives(&self, size: u32, bytes: u64, now: Instant) {
        self.arrival.set(Some(Arrival {
            size,
            began: now,
            bytes,
        }));
    }

    /// All of it is there, so long after it began to arrive.
    pub(crate) fn arrived(&self, took: Duration) {
        self.arrival.set(None);
        // Where it waited for memory was not the client's doing.
        let throttled = self.waited.get().us(Cause::Throttle);
        let throttled = Duration::from_micros(throttled.into());
        self.charge(Cause::Receive, took.saturating_sub(throttled));
    }

    /// The request that is arriving waited for this.
    pub(crate) fn charge(&self, cause: Cause, waited: Duration) {
        if !waited.is_zero() {
            let mut sum = self.waited.get();
            sum.add(cause, waited);
            self.waited.set(sum);
        }
    }

    /// What a request has waited for that is received now.
    pub(crate) fn take_waited(&self) -> Spent {
        self.waited.take()
    }

    /// `bytes` came in; true when the client has brought all that it owed in this window.
    pub(crate) fn frame_progress(&self, bytes: usize) -> bool {
        self.arrival.set(self.arrival.get().map(|arrival| Arrival {
            bytes: arrival.bytes + bytes as u64,
            ..arrival
        }));
        let owed = self.frame_owed.get().saturating_sub(bytes as u64);
        self.frame_owed.set(owed);
        owed == 0
    }

    /// The client must take what is being sent by `due`.
    pub(crate) fn await_taken(&self, due: Option<Instant>) {
        self.write_due.set(due);
    }

    /// No more requests are read; what is owed must be sent by `due`, then the connection ends for
    /// `reason`.
    pub(crate) fn flush_by(&self, due: Instant, reason: CloseReason) {
        self.reading.set(Reading::Busy);
        self.flush_due.set(Some((due, reason)));
    }

    pub(crate) fn ended(&self) -> Option<CloseReason> {
        self.ended.get()
    }

    /// Ends the connection the next time its task runs, which is soon. The first reason stays.
    pub(crate) fn end(&self, reason: CloseReason) {
        if self.ended.get().is_none() {
            self.ended.set(Some(reason));
        }
        self.wake();
    }

    /// Wakes the task if an answer has asked for it by now.
    pub(crate) fn wake_if_due(&self, now: Instant) {
        if self.answer_due.get().is_some_and(|due| now >= due) {
            self.answer_due.set(None);
            self.wake();
        }
    }

    pub(crate) fn wake(&self) {
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }

    pub(crate) fn remember(&self, waker: &Waker) {
        let mut known = self.waker.borrow_mut();
        if !known.as_ref().is_some_and(|known| known.will_wake(waker)) {
            *known = Some(waker.clone());
        }
    }
}

impl fmt::Display for ConnState {
    /// One line for logs: a client's own words are escaped and cut (BI-10).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{} {}", self.id, self.peer)?;
        let client = self.client.borrow();
        if let Some(id) = &client.id {
            write!(f, " client {}", Quoted(id))?;
        }
        if let Some(name) = &client.software_name {
            write!(f, " software {}", Quoted(name))?;
        }
        Ok(())
    }
}

/// Foreign words, cut, with nothing in them that a terminal or a log would obey.
struct Escaped<'a>(&'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars().take(LABEL_CHARS_MAX) {
            write!(f, "{}", c.escape_debug())?;
        }
        match self.0.chars().nth(LABEL_CHARS_MAX) {
            Some(_) => f.write_str("..."),
            None => Ok(()),
        }
    }
}

/// Foreign words in a log line.
struct Quoted<'a>(&'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", Escaped(self.0))
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;
    use std::time::{Duration, Instant};

    use thalweg_metrics::CloseReason;
    use thalweg_types::ListenerIndex;

    use super::ConnState;
    use crate::Limits;
    use crate::answers::AnswerMemory;
    use crate::queue::ResponseQueue;
    use crate::queue::tests::arrival;

    fn conn() -> (ConnState, Instant) {
        let now = Instant::now();
        let memory = Rc::new(AnswerMemory::new(usize::MAX));
        let queue = ResponseQueue::new(usize::MAX, memory);
        let peer = ([127, 0, 0, 1], 5).into();
        (ConnState::new(7, ListenerIndex(0), peer, now, queue), now)
    }

    #[test]
    fn bi10_a_client_id_can_not_forge_log_lines() {
        let (conn, _) = conn();
        let id = "x\n2026 ERROR \"fake\"\u{1b}[0m";
        let first = conn.note_client_id(id.as_bytes()).expect("UTF-8");
        let again = conn.note_client_id(id.as_bytes()).expect("UTF-8");
        assert!(&*first == id && Rc::ptr_eq(&first, &again));
        assert!(conn.note_client_id(b"\xff").is_err());
        assert_eq!(
            conn.to_string(),
            "#7 127.0.0.1:5 client \"x\\n2026 ERROR \\\"fake\\\"\\u{1b}[0m\""
        );
        let long = conn.note_client_id(&[b'y'; 32 * 1024]);
        assert_eq!(long.map(|id| id.len()), Ok(32 * 1024));
        assert!(conn.to_string().len() < 120);
    }

    #[test]
    fn bi4_deadlines_by_what_the_connection_waits_for() {
        let (conn, now) = conn();
        let limits = Limits {
            idle: Duration::from_secs(10),
            ..Limits::default()
        };
        let at = |seconds| now + Duration::from_secs(seconds);
        assert_eq!(conn.overdue(at(9), &limits), None);
        assert_eq!(conn.overdue(at(10), &limits), Some(CloseReason::Idle));
        conn.life.await_frame(100, at(30));
        assert_eq!(conn.overdue(at(29), &limits), None);
        assert_eq!(conn.overdue(at(30), &limits), Some(CloseReason::SlowFrame));
        assert!(!conn.life.frame_progress(99));
        assert!(conn.life.frame_progress(1));
        conn.life.await_request(at(30));
        conn.life.await_taken(Some(at(35)));
        assert_eq!(conn.overdue(at(35), &limits), Some(CloseReason::SlowReader));
    }

    #[test]
    fn bi4_a_connection_that_is_owed_an_answer_is_not_idle() {
        let (conn, now) = conn();
        let limits = Limits {
            idle: Duration::from_secs(10),
            ..Limits::default()
        };
        conn.queue
            .borrow_mut()
            .push(Box::pin(std::future::pending()), arrival());
        assert_eq!(conn.overdue(now + Duration::from_secs(500), &limits), None);
    }
}
