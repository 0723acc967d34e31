//! Answers of one connection, in the order of their requests.
//!
//! Every answer that is not ready is polled whenever the connection's task runs, so that requests behind
//! a slow one, or behind a client that does not read, make progress; only the front leaves. The number of
//! slots is bounded by [`crate::Limits::in_flight_max`], which keeps that scan short.
//!
//! An answer is begun by its first poll, and only while there is room for it: in the backlog of its
//! connection, and in the memory of answers that all connections of the shard share.

use std::collections::VecDeque;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Instant;

use thalweg_reactor::time;

use crate::account::{Answered, Arrival};
use crate::answers::AnswerMemory;
use crate::{Answer, Closing, Reply};

enum Slot {
    Coming(Coming),
    /// One that waits for those before it. Few do, and slots are moved.
    Ready(Box<Answered>),
    Close(Closing),
}

/// An answer that is not there yet, and whether it was polled.
struct Coming {
    answer: Pin<Box<Answer>>,
    begun: bool,
    arrival: Arrival,
}

/// When answers were taken, and set when the connection ends after them.
pub(crate) type Taken = (Instant, Option<Closing>);

/// The slots of one connection.
pub(crate) struct ResponseQueue {
    slots: VecDeque<Slot>,
    taken: usize,
    room: Room,
}

/// What answers that are ready take of the memory for them.
struct Room {
    ready_bytes: usize,
    ready_bytes_max: usize,
    memory: Rc<AnswerMemory>,
}

impl Room {
    fn is_full(&self) -> bool {
        self.ready_bytes >= self.ready_bytes_max
    }

    /// Begins an answer if there is room for it, or goes on with it.
    fn poll(&mut self, coming: &mut Coming, cx: &mut Context<'_>) -> Poll<Reply> {
        if !coming.begun && (self.is_full() || self.memory.is_full()) {
            // Room of this connection's own is made by its writing half, which polls again.
            if self.memory.is_full() {
                self.memory.wait(cx.waker());
            }
            return Poll::Pending;
        }
        coming.begun = true;
        let polled = coming.answer.as_mut().poll(cx);
        if let Poll::Ready(Reply::Send(response)) = &polled {
            self.ready_bytes += response.memory_bytes();
            self.memory.add(response.memory_bytes());
        }
        polled
    }

    fn free(&mut self, bytes: usize) {
        self.ready_bytes -= bytes;
        self.memory.remove(bytes);
    }
}

impl ResponseQueue {
    /// No answer is begun while `ready_bytes_max` bytes are ready, or `memory` is full.
    pub(crate) fn new(ready_bytes_max: usize, memory: Rc<AnswerMemory>) -> ResponseQueue {
        ResponseQueue {
            slots: VecDeque::new(),
            taken: 0,
            room: Room {
                ready_bytes: 0,
                ready_bytes_max,
                memory,
            },
        }
    }

    /// True while nothing more may be begun for this connection alone.
    pub(crate) fn is_full(&self) -> bool {
        self.room.is_full()
    }

    /// Requests whose answers have not been given to the socket completely.
    pub(crate) fn in_flight(&self) -> usize {
        self.slots.len() + self.taken
    }

    /// Bytes of answers in memory that are ready or being sent.
    pub(crate) fn ready_bytes(&self) -> usize {
        self.room.ready_bytes
    }

    /// Takes out what nobody will be sent any more. An answer may hold its connection, which holds
    /// this queue: dropped where it lies, neither would ever be freed.
    pub(crate) fn abandon(&mut self) -> impl Drop + use<> {
        self.room.free(self.room.ready_bytes);
        std::mem::take(&mut self.slots)
    }

    pub(crate) fn push(&mut self, answer: Pin<Box<Answer>>, arrival: Arrival) {
        if self.slots.capacity() == 0 {
            // Most connections have one request in flight, and an idle one holds no more (BI-30).
            self.slots.reserve_exact(1);
        }
        self.slots.push_back(Slot::Coming(Coming {
            answer,
            begun: false,
            arrival,
        }));
    }

    pub(crate) fn push_close(&mut self, closing: Closing) {
        self.slots.push_back(Slot::Close(closing));
    }

    /// Polls all answers and moves those that are ready from the front to `batch`, which is empty: at least one,
    /// further ones while their bytes in memory stay below `bytes_max`.
    pub(crate) fn poll_batch(
        &mut self,
        cx: &mut Context<'_>,
        bytes_max: usize,
        batch: &mut Vec<Answered>,
    ) -> Poll<Taken> {
        let mut became_ready = None;
        let mut bytes = 0;
        let mut then = None;
        let mut polled = 0;
        while bytes < bytes_max
            && then.is_none()
            && let Some(front) = self.slots.pop_front()
        {
            let answered = match front {
                Slot::Coming(mut coming) => match self.room.poll(&mut coming, cx) {
                    Poll::Ready(Reply::Send(response)) => Answered {
                        response,
                        arrival: coming.arrival,
                        ready: *became_ready.get_or_insert_with(time::now),
                    },
                    Poll::Ready(Reply::Close(closing)) => {
                        then = Some(closing);
                        break;
                    }
                    Poll::Pending => {
                        self.slots.push_front(Slot::Coming(coming));
                        polled = 1;
                        break;
                    }
                },
                Slot::Ready(answered) => *answered,
                Slot::Close(closing) => {
                    then = Some(closing);
                    break;
                }
            };
            bytes += answered.response.memory_bytes();
            if batch.capacity() == 0 {
                batch.reserve_exact(1);
            }
            batch.push(answered);
        }
        self.poll_behind(polled, cx, &mut became_ready);
        if batch.is_empty() && then.is_none() {
            return Poll::Pending;
        }
        self.taken += batch.len();
        Poll::Ready((became_ready.unwrap_or_else(time::now), then))
    }

    /// Polls all answers while the batch taken last is being sent. They leave with the next one.
    pub(crate) fn poll_waiting(&mut self, cx: &mut Context<'_>) {
        self.poll_behind(0, cx, &mut None);
    }

    /// Polls the answers from the one at `from` on, which wait for one before them; `ready` is when answers became it.
    fn poll_behind(&mut self, from: usize, cx: &mut Context<'_>, ready: &mut Option<Instant>) {
        for slot in self.slots.iter_mut().skip(from) {
            if let Slot::Coming(coming) = slot
                && let Poll::Ready(reply) = self.room.poll(coming, cx)
            {
                *slot = match reply {
                    Reply::Send(response) => Slot::Ready(Box::new(Answered {
                        response,
                        arrival: coming.arrival,
                        ready: *ready.get_or_insert_with(time::now),
                    })),
                    Reply::Close(closing) => Slot::Close(closing),
                };
            }
        }
    }

    /// The batch taken last, of `responses` responses with `bytes` bytes in memory, was sent.
    pub(crate) fn sent(&mut self, responses: usize, bytes: usize) {
        self.taken -= responses;
        self.room.free(bytes);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::cell::Cell;
    use std::future::poll_fn;
    use std::rc::Rc;
    use std::task::{Context, Poll, Waker};

    use bytes::Bytes;
    use thalweg_metrics::{CloseReason, Spent};
    use thalweg_reactor::time;

    use super::ResponseQueue;
    use crate::account::{Answered, Arrival};
    use crate::answers::AnswerMemory;
    use crate::{Closing, Reply, Response};

    struct Batch {
        answered: Vec<Answered>,
        then: Option<Closing>,
    }

    fn poll(queue: &mut ResponseQueue, bytes_max: usize) -> Option<Batch> {
        let mut answered = Vec::new();
        let mut cx = Context::from_waker(Waker::noop());
        match queue.poll_batch(&mut cx, bytes_max, &mut answered) {
            Poll::Ready((_, then)) => Some(Batch { answered, then }),
            Poll::Pending => None,
        }
    }

    fn queue(bytes_max: usize, memory: &Rc<AnswerMemory>) -> ResponseQueue {
        ResponseQueue::new(bytes_max, Rc::clone(memory))
    }

    fn ample() -> ResponseQueue {
        queue(1_000, &Rc::new(AnswerMemory::new(1_000)))
    }

    pub(crate) fn arrival() -> Arrival {
        Arrival {
            received: time::now(),
            dispatched: time::now(),
            bytes: 1,
            spent: Spent::default(),
        }
    }

    fn sizes(batch: &Batch) -> Vec<usize> {
        let answered = batch.answered.iter();
        answered.map(|one| one.response.memory_bytes()).collect()
    }

    fn gated(queue: &mut ResponseQueue, bytes: &'static [u8]) -> Rc<Cell<bool>> {
        let gate = Rc::new(Cell::new(false));
        let seen = Rc::clone(&gate);
        let answer = poll_fn(move |_| match seen.get() {
            true => Poll::Ready(Reply::Send(Response::from(Bytes::from_static(bytes)))),
            false => Poll::Pending,
        });
        queue.push(Box::pin(answer), arrival());
        gate
    }

    #[test]
    fn bi5_a_ready_answer_waits_for_the_one_before_it() {
        let mut queue = ample();
        let first = gated(&mut queue, b"1");
        let second = gated(&mut queue, b"22");
        second.set(true);
        assert!(poll(&mut queue, 1_000).is_none());
        assert_eq!(queue.ready_bytes(), 2);
        first.set(true);
        let batch = poll(&mut queue, 1_000).expect("both are ready");
        let sizes = sizes(&batch);
        assert_eq!(sizes, [1, 2], "in order, together");
        assert_eq!(queue.in_flight(), 2, "until they were sent");
        queue.sent(2, 3);
        assert_eq!((queue.in_flight(), queue.ready_bytes()), (0, 0));
    }

    #[test]
    fn a_batch_is_bounded_but_never_empty() {
        let mut queue = ample();
        for _ in 0..3 {
            gated(&mut queue, b"0123456789").set(true);
        }
        assert_eq!(poll(&mut queue, 15).expect("two").answered.len(), 2);
        assert_eq!(poll(&mut queue, 1).expect("one").answered.len(), 1);
    }

    #[test]
    fn close_flushes_what_was_answered_before_it() {
        let mut queue = ample();
        let first = gated(&mut queue, b"1");
        queue.push_close(CloseReason::BadRequest.into());
        gated(&mut queue, b"never").set(true);
        assert!(poll(&mut queue, 1_000).is_none());
        first.set(true);
        let batch = poll(&mut queue, 1_000).expect("ready");
        assert_eq!(batch.answered.len(), 1);
        assert_eq!(batch.then.map(|c| c.reason), Some(CloseReason::BadRequest));
    }

    /// Sixteen requests for the largest answer at once must not be sixteen such answers in memory.
    #[test]
    fn bi4_answers_are_begun_one_by_one_when_the_backlog_is_full() {
        let mut queue = queue(10, &Rc::new(AnswerMemory::new(1_000)));
        for _ in 0..3 {
            gated(&mut queue, b"0123456789").set(true);
        }
        assert_eq!(poll(&mut queue, 1_000).expect("one").answered.len(), 1);
        assert!(queue.is_full());
        assert!(poll(&mut queue, 1_000).is_none(), "not begun");
        queue.poll_waiting(&mut Context::from_waker(Waker::noop()));
        assert_eq!(queue.ready_bytes(), 10, "nor beside the sending");
        queue.sent(1, 10);
        assert_eq!(poll(&mut queue, 1_000).expect("next").answered.len(), 1);
    }

    #[test]
    fn bi4_connections_share_the_memory_of_answers() {
        let memory = Rc::new(AnswerMemory::new(10));
        let mut first = queue(1_000, &memory);
        let mut second = queue(1_000, &memory);
        let begun = gated(&mut second, b"012345");
        assert!(poll(&mut second, 1_000).is_none());
        gated(&mut first, b"0123456789").set(true);
        assert!(poll(&mut first, 1_000).is_some());
        gated(&mut second, b"later").set(true);
        begun.set(true);
        let batch = poll(&mut second, 1_000).expect("what was begun is finished");
        assert_eq!(batch.answered.len(), 1);
        assert_eq!((memory.used(), memory.is_full()), (16, true));
        drop(first.abandon());
        assert_eq!(memory.used(), 6, "a client that left frees its part");
        assert_eq!(poll(&mut second, 1_000).expect("room").answered.len(), 1);
    }
}
