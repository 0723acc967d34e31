//! One produce request's appends at one owner, answered together.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use thalweg_metrics::{Cause, Spent};
use thalweg_protocol::ErrorCode;
use thalweg_reactor::{oneshot, time};
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

/// What became of the batches of one request at one owner, in the order it became known. The first needs
/// no list: most requests have one.
#[derive(Debug, Default)]
pub(crate) struct Outcomes {
    first: Option<Appended>,
    others: Vec<Appended>,
    /// How long they took; `None` of an owner that is stopping.
    pub times: Option<AppendTimes>,
}

/// What the time of the appends of one request at one owner went into.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AppendTimes {
    /// When the owner began with them.
    pub began: Instant,
    /// When the last one was decided.
    pub ended: Instant,
    /// The part of that time for which the last of them was written and waited for a flush.
    flush_wait: Duration,
}

impl AppendTimes {
    /// The stages that the time went into.
    pub(crate) fn spent(&self) -> Spent {
        let took = self.ended - self.began;
        let flush_wait = self.flush_wait.min(took);
        let mut spent = Spent::default();
        spent.add(Cause::Append, took - flush_wait);
        if !flush_wait.is_zero() {
            spent.add(Cause::FlushWait, flush_wait);
        }
        spent
    }
}

impl Outcomes {
    fn push(&mut self, outcome: Appended) {
        match self.first {
            None => self.first = Some(outcome),
            Some(_) => self.others.push(outcome),
        }
    }
}

impl IntoIterator for Outcomes {
    type Item = Appended;
    type IntoIter = std::iter::Chain<std::option::IntoIter<Appended>, std::vec::IntoIter<Appended>>;

    fn into_iter(self) -> Self::IntoIter {
        self.first.into_iter().chain(self.others)
    }
}

/// Counts the outstanding appends of one request at one owner and answers when none is left.
pub(crate) struct AppendGroup {
    began: Instant,
    flush_wait: Cell<Duration>,
    outstanding: Cell<usize>,
    done: RefCell<Outcomes>,
    reply: RefCell<Reply>,
}

/// Who is told.
enum Reply {
    /// A task of this core that has not asked yet, or nobody any more.
    Nobody,
    /// A task of this core.
    Task(Waker),
    /// Another core, or who waits as if it were on one.
    Channel(oneshot::Sender<Outcomes>),
}

impl AppendGroup {
    /// A group for a task of this core, of no append yet.
    pub(crate) fn new() -> Rc<AppendGroup> {
        AppendGroup::replying(0, Reply::Nobody)
    }

    /// One append more belongs to it. Not to be called once its task has asked for the outcomes.
    pub(crate) fn one_more(&self) {
        self.outstanding.set(self.outstanding.get() + 1);
    }

    /// A group of `count` appends; `reply` gets all outcomes.
    pub(crate) fn answering(count: usize, reply: oneshot::Sender<Outcomes>) -> Rc<AppendGroup> {
        AppendGroup::replying(count, Reply::Channel(reply))
    }

    fn replying(count: usize, reply: Reply) -> Rc<AppendGroup> {
        Rc::new(AppendGroup {
            began: time::now(),
            flush_wait: Cell::default(),
            outstanding: Cell::new(count),
            done: RefCell::default(),
            reply: RefCell::new(reply),
        })
    }

    /// One append is decided, at `now`.
    pub(crate) fn settle(&self, row: Row, result: Result<Placed, ErrorCode>, now: Instant) {
        self.done.borrow_mut().push(Appended { row, result });
        self.one_less(now);
    }

    fn one_less(&self, now: Instant) {
        let left = self.outstanding.get() - 1;
        self.outstanding.set(left);
        if left > 0 {
            return;
        }
        self.done.borrow_mut().times = Some(AppendTimes {
            began: self.began,
            ended: now,
            flush_wait: self.flush_wait.get(),
        });
        match self.reply.replace(Reply::Nobody) {
            Reply::Nobody => {}
            Reply::Task(waker) => waker.wake(),
            Reply::Channel(reply) => {
                // The connection may be gone; the records are in the log all the same.
                let _ = reply.send(self.done.take());
            }
        }
    }

    /// All outcomes, once none is outstanding. Of a group that has no channel, and not to be asked again after that.
    pub(crate) fn poll(&self, cx: &Context<'_>) -> Poll<Outcomes> {
        if self.outstanding.get() == 0 {
            return Poll::Ready(self.done.take());
        }
        *self.reply.borrow_mut() = Reply::Task(cx.waker().clone());
        Poll::Pending
    }
}

/// An append whose outcome is owed to a group. Dropped without one, it counts as decided, and its row
/// stays as it was.
pub(crate) struct Owed {
    group: Option<Rc<AppendGroup>>,
    row: Row,
}

impl Owed {
    pub(crate) fn new(group: &Rc<AppendGroup>, row: Row) -> Owed {
        Owed {
            group: Some(Rc::clone(group)),
            row,
        }
    }

    /// The append was written, and has waited so long for a flush; it is decided next.
    pub(crate) fn note_flush_wait(&self, waited: Duration) {
        if let Some(group) = &self.group {
            group.flush_wait.set(waited);
        }
    }

    /// The append is decided, at `now`.
    pub(crate) fn settle(mut self, result: Result<Placed, ErrorCode>, now: Instant) {
        if let Some(group) = self.group.take() {
            group.settle(self.row, result, now);
        }
    }
}

impl Drop for Owed {
    fn drop(&mut self) {
        if let Some(group) = self.group.take() {
            group.one_less(time::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};
    use std::time::Duration;

    use super::{AppendGroup, AppendTimes, Appended, Outcomes, Owed, Placed, Row};
    use thalweg_metrics::Cause;
    use thalweg_protocol::ErrorCode;
    use thalweg_reactor::{oneshot, time};
    use thalweg_types::{Offset, TimestampMs};

    const PLACED: Placed = Placed {
        base_offset: Offset(7),
        log_append_time: TimestampMs::NONE,
        log_start: Offset(0),
    };

    fn row(partition: usize) -> Row {
        Row {
            topic: 0,
            partition,
        }
    }

    fn context() -> Context<'static> {
        Context::from_waker(Waker::noop())
    }

    fn outcomes(group: &AppendGroup) -> Option<Vec<Appended>> {
        rows(group.poll(&context()))
    }

    fn rows(outcomes: Poll<Outcomes>) -> Option<Vec<Appended>> {
        match outcomes {
            Poll::Ready(outcomes) => Some(outcomes.into_iter().collect()),
            Poll::Pending => None,
        }
    }

    fn group_of(count: usize) -> std::rc::Rc<AppendGroup> {
        let group = AppendGroup::new();
        (0..count).for_each(|_| group.one_more());
        group
    }

    fn assert_both(outcomes: &[Appended]) {
        assert_eq!(outcomes.len(), 2);
        assert_eq!(outcomes[0].row, row(1));
        assert_eq!(
            outcomes[0].result.map(|p| p.base_offset),
            Err(ErrorCode::KafkaStorageError)
        );
        assert_eq!(outcomes[1].result.map(|p| p.base_offset), Ok(Offset(7)));
    }

    #[test]
    fn answers_once_when_the_last_append_is_settled() {
        let (reply, answer) = oneshot::channel();
        let group = AppendGroup::answering(2, reply);
        let mut answer = pin!(answer);
        let mut answered = || {
            let polled = answer.as_mut().poll(&mut context());
            rows(polled.map(|outcomes| outcomes.expect("an answer")))
        };
        group.settle(row(1), Err(ErrorCode::KafkaStorageError), time::now());
        assert!(answered().is_none());
        group.settle(row(0), Ok(PLACED), time::now());
        assert_both(&answered().expect("both are settled"));
    }

    #[test]
    fn a_task_of_the_same_core_gets_the_same_answer() {
        let group = AppendGroup::new();
        group.one_more();
        group.settle(row(1), Err(ErrorCode::KafkaStorageError), time::now());
        // The one before was decided at once; the task has not asked yet.
        group.one_more();
        assert!(outcomes(&group).is_none());
        group.settle(row(0), Ok(PLACED), time::now());
        assert_both(&outcomes(&group).expect("both are settled"));
    }

    /// A partition that goes away with appends in flight must not keep their requests waiting.
    #[test]
    fn an_append_that_is_never_decided_is_left_out() {
        let group = group_of(2);
        let (first, second) = (Owed::new(&group, row(0)), Owed::new(&group, row(1)));
        second.settle(Ok(PLACED), time::now());
        assert!(outcomes(&group).is_none());
        drop(first);
        let outcomes = outcomes(&group).expect("nothing is outstanding");
        assert_eq!(outcomes.len(), 1);
        assert_eq!(outcomes[0].row, row(1));
    }

    #[test]
    fn the_wait_for_a_flush_is_no_part_of_the_append() {
        let began = time::now();
        let times = |flush_wait| AppendTimes {
            began,
            ended: began + Duration::from_millis(10),
            flush_wait,
        };
        let stages = |times: AppendTimes| -> Vec<_> { times.spent().stages().collect() };
        assert_eq!(stages(times(Duration::ZERO)), [(Cause::Append, 10_000)]);
        assert_eq!(
            stages(times(Duration::from_millis(7))),
            [(Cause::Append, 3_000), (Cause::FlushWait, 7_000)]
        );
    }

    #[test]
    fn a_group_says_how_long_its_last_append_waited_for_a_flush() {
        let group = group_of(1);
        let owed = Owed::new(&group, row(0));
        owed.note_flush_wait(Duration::from_secs(5));
        owed.settle(Ok(PLACED), time::now());
        let Poll::Ready(outcomes) = group.poll(&context()) else {
            panic!("it is settled");
        };
        let times = outcomes.times.expect("the owner has decided");
        assert_eq!(times.flush_wait, Duration::from_secs(5));
        // It can not have waited for longer than all of it took.
        let took = (times.ended - times.began).as_micros() as u32;
        assert!(times.spent().us(Cause::FlushWait) <= took.max(1));
    }
}
