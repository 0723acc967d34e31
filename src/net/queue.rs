//! Answers of one connection, in the order of their requests.
//!
//! Every answer that is not ready is polled whenever the connection's task runs, so that requests
//! behind a slow one make progress; only the front leaves. The number of slots is bounded by
//! [`crate::Limits::in_flight_max`], which keeps that scan short.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::{Answer, Closing, Reply, Response};

enum Slot {
    Waiting(Pin<Box<Answer>>),
    Ready(Response),
    Close(Closing),
}

/// Answers that may leave together.
pub(crate) struct Batch {
    pub(crate) responses: Vec<Response>,
    /// Set when the connection ends after them.
    pub(crate) then: Option<Closing>,
}

/// The slots of one connection.
#[derive(Default)]
pub(crate) struct ResponseQueue {
    slots: VecDeque<Slot>,
    taken: usize,
    ready_bytes: usize,
}

impl ResponseQueue {
    /// Requests whose answers have not been given to the socket completely.
    pub(crate) fn in_flight(&self) -> usize {
        self.slots.len() + self.taken
    }

    /// Bytes of answers in memory that are ready or being sent.
    pub(crate) fn ready_bytes(&self) -> usize {
        self.ready_bytes
    }

    /// Takes out what nobody will be sent any more. An answer may hold its connection, which holds
    /// this queue: dropped where it lies, neither would ever be freed.
    pub(crate) fn abandon(&mut self) -> impl Drop + use<> {
        std::mem::take(&mut self.slots)
    }

    pub(crate) fn push(&mut self, answer: Pin<Box<Answer>>) {
        self.slots.push_back(Slot::Waiting(answer));
    }

    pub(crate) fn push_close(&mut self, closing: Closing) {
        self.slots.push_back(Slot::Close(closing));
    }

    /// Polls all answers, then takes those that are ready from the front: at least one, further
    /// ones while their bytes in memory stay below `bytes_max`.
    pub(crate) fn poll_batch(&mut self, cx: &mut Context<'_>, bytes_max: usize) -> Poll<Batch> {
        for slot in &mut self.slots {
            let Slot::Waiting(answer) = slot else {
                continue;
            };
            let Poll::Ready(reply) = answer.as_mut().poll(cx) else {
                continue;
            };
            *slot = match reply {
                Reply::Send(response) => {
                    self.ready_bytes += response.memory_bytes();
                    Slot::Ready(response)
                }
                Reply::Close(closing) => Slot::Close(closing),
            };
        }
        let mut batch = Batch {
            responses: Vec::new(),
            then: None,
        };
        let mut bytes = 0;
        while bytes < bytes_max {
            match self.slots.pop_front() {
                Some(Slot::Ready(response)) => {
                    bytes += response.memory_bytes();
                    batch.responses.push(response);
                }
                Some(Slot::Close(closing)) => {
                    batch.then = Some(closing);
                    break;
                }
                Some(waiting @ Slot::Waiting(_)) => {
                    self.slots.push_front(waiting);
                    break;
                }
                None => break,
            }
        }
        if batch.responses.is_empty() && batch.then.is_none() {
            return Poll::Pending;
        }
        self.taken += batch.responses.len();
        Poll::Ready(batch)
    }

    /// The batch taken last, of `responses` responses with `bytes` bytes in memory, was sent.
    pub(crate) fn sent(&mut self, responses: usize, bytes: usize) {
        self.taken -= responses;
        self.ready_bytes -= bytes;
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::future::poll_fn;
    use std::rc::Rc;
    use std::task::{Context, Poll, Waker};

    use bytes::Bytes;
    use thalweg_metrics::CloseReason;

    use super::{Batch, ResponseQueue};
    use crate::{Reply, Response};

    fn poll(queue: &mut ResponseQueue, bytes_max: usize) -> Option<Batch> {
        match queue.poll_batch(&mut Context::from_waker(Waker::noop()), bytes_max) {
            Poll::Ready(batch) => Some(batch),
            Poll::Pending => None,
        }
    }

    fn gated(queue: &mut ResponseQueue, bytes: &'static [u8]) -> Rc<Cell<bool>> {
        let gate = Rc::new(Cell::new(false));
        let seen = Rc::clone(&gate);
        queue.push(Box::pin(poll_fn(move |_| match seen.get() {
            true => Poll::Ready(Reply::Send(Response::from(Bytes::from_static(bytes)))),
            false => Poll::Pending,
        })));
        gate
    }

    #[test]
    fn bi5_a_ready_answer_waits_for_the_one_before_it() {
        let mut queue = ResponseQueue::default();
        let first = gated(&mut queue, b"1");
        let second = gated(&mut queue, b"22");
        second.set(true);
        assert!(poll(&mut queue, 1_000).is_none());
        assert_eq!(queue.ready_bytes(), 2);
        first.set(true);
        let batch = poll(&mut queue, 1_000).expect("both are ready");
        let sizes: Vec<_> = batch.responses.iter().map(Response::memory_bytes).collect();
        assert_eq!(sizes, [1, 2], "in order, together");
        assert_eq!(queue.in_flight(), 2, "until they were sent");
        queue.sent(2, 3);
        assert_eq!((queue.in_flight(), queue.ready_bytes()), (0, 0));
    }

    #[test]
    fn a_batch_is_bounded_but_never_empty() {
        let mut queue = ResponseQueue::default();
        for _ in 0..3 {
            gated(&mut queue, b"0123456789").set(true);
        }
        assert_eq!(poll(&mut queue, 15).expect("two").responses.len(), 2);
        assert_eq!(poll(&mut queue, 1).expect("one").responses.len(), 1);
    }

    #[test]
    fn close_flushes_what_was_answered_before_it() {
        let mut queue = ResponseQueue::default();
        let first = gated(&mut queue, b"1");
        queue.push_close(CloseReason::BadRequest.into());
        gated(&mut queue, b"never").set(true);
        assert!(poll(&mut queue, 1_000).is_none());
        first.set(true);
        let batch = poll(&mut queue, 1_000).expect("ready");
        assert_eq!(batch.responses.len(), 1);
        assert_eq!(batch.then.map(|c| c.reason), Some(CloseReason::BadRequest));
    }
}
