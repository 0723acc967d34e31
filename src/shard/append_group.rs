//! One produce request's appends at one owner, answered together.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use thalweg_protocol::ErrorCode;
use thalweg_reactor::oneshot;
use thalweg_types::{Offset, TimestampMs};

/// Place of a batch in its request, and of its outcome in the answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Row {
    /// Index of the topic.
    pub topic: usize,
    /// Index of the partition in it.
    pub partition: usize,
}

/// What became of one batch.
#[derive(Debug, Clone)]
pub(crate) struct Appended {
    /// Which one.
    pub row: Row,
    /// Where it lies, or why not.
    pub result: Result<Placed, ErrorCode>,
}

/// Where an appended batch lies.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Placed {
    /// Offset of its first record.
    pub base_offset: Offset,
    /// The broker's timestamp on LogAppendTime topics, else none.
    pub log_append_time: TimestampMs,
    /// First offset of the log.
    pub log_start: Offset,
}

/// Counts the outstanding appends of one request at one owner and answers when none is left.
pub(crate) struct AppendGroup {
    outstanding: Cell<usize>,
    done: RefCell<Vec<Appended>>,
    reply: RefCell<Option<oneshot::Sender<Vec<Appended>>>>,
}

impl AppendGroup {
    /// A group of `count` appends; `reply` gets all outcomes, in the order they became known.
    pub(crate) fn new(count: usize, reply: oneshot::Sender<Vec<Appended>>) -> Rc<AppendGroup> {
        Rc::new(AppendGroup {
            outstanding: Cell::new(count),
            done: RefCell::new(Vec::with_capacity(count)),
            reply: RefCell::new(Some(reply)),
        })
    }

    /// One append is decided.
    pub(crate) fn settle(&self, row: Row, result: Result<Placed, ErrorCode>) {
        self.done.borrow_mut().push(Appended { row, result });
        let left = self.outstanding.get() - 1;
        self.outstanding.set(left);
        if left == 0
            && let Some(reply) = self.reply.borrow_mut().take()
        {
            // The connection may be gone; the records are in the log all the same.
            let _ = reply.send(self.done.take());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{AppendGroup, Placed, Row};
    use thalweg_protocol::ErrorCode;
    use thalweg_reactor::oneshot;
    use thalweg_types::{Offset, TimestampMs};

    #[test]
    fn answers_once_when_the_last_append_is_settled() {
        let (reply, mut answer) = oneshot::channel();
        let group = AppendGroup::new(2, reply);
        let row = |partition| Row {
            topic: 0,
            partition,
        };
        group.settle(row(1), Err(ErrorCode::KafkaStorageError));
        assert!(answer.try_take().is_none());
        let placed = Placed {
            base_offset: Offset(7),
            log_append_time: TimestampMs::NONE,
            log_start: Offset(0),
        };
        group.settle(row(0), Ok(placed));
        let outcomes = answer.try_take().expect("both are settled");
        assert_eq!(outcomes.len(), 2);
        assert_eq!(outcomes[0].row, row(1));
        assert_eq!(outcomes[1].result.map(|p| p.base_offset), Ok(Offset(7)));
    }
}
