//! Fairness on one core: long work lets others run in between, and large requests take turns.

use std::cell::Cell;

use thalweg_reactor::event::Event;
use thalweg_reactor::fs;
use thalweg_reactor::task;
use thalweg_reactor::time::Duration;
use thalweg_types::limits::{SLICES_BESIDE_SLOW_WRITES, TURN_ELEMENTS_MAX, WRITES_LET_END_MS};

/// Counts the elements of a request while they are worked on, and lets the other tasks of the shard
/// run after every [`TURN_ELEMENTS_MAX`] (BI-8). A request with few elements never waits.
#[derive(Default)]
pub(crate) struct Pace {
    done: usize,
    gait: Gait,
}

#[derive(Default, PartialEq, Eq)]
enum Gait {
    #[default]
    Sliced,
    Whole,
}

impl Pace {
    /// Never pauses. For small requests whose answer may be large: an answer that is built in one go is
    /// counted before the next one is begun, so that any number of them is not in memory half built.
    pub(crate) fn whole() -> Pace {
        Pace {
            done: 0,
            gait: Gait::Whole,
        }
    }

    /// One more element is done.
    pub(crate) async fn step(&mut self) {
        self.steps(1).await;
    }

    /// `count` more elements are done.
    pub(crate) async fn steps(&mut self, count: usize) {
        self.done += count;
        if self.done >= TURN_ELEMENTS_MAX && self.gait == Gait::Sliced {
            self.done = 0;
            task::yield_now().await;
        }
    }
}

/// Large requests are decoded and worked on one after the other, first come first served: since they
/// pause for others, any number of them would otherwise be in memory at once, each many times its
/// frame. Small requests do not queue here.
pub(crate) struct LargeTurn {
    free: Event,
}

/// The turn; the next in line gets it when this is dropped.
pub(crate) struct LargeTurnGuard {
    free: Event,
}

impl Default for LargeTurn {
    fn default() -> LargeTurn {
        LargeTurn::of(1)
    }
}

impl LargeTurn {
    /// One that so many have at a time.
    pub(crate) fn of(count: u64) -> LargeTurn {
        let free = Event::new();
        (0..count).for_each(|_| free.notify());
        LargeTurn { free }
    }

    /// Waits for the turn.
    pub(crate) async fn take(&self) -> LargeTurnGuard {
        self.free.wait().await;
        LargeTurnGuard {
            free: self.free.clone(),
        }
    }
}

impl Drop for LargeTurnGuard {
    fn drop(&mut self) {
        self.free.notify();
    }
}

/// What coordinators of a core do by slices, loading and looking at all their groups: however many are at it, they
/// hold up the rest of the core no more than one slice does.
pub(crate) struct Slices {
    turn: LargeTurn,
    /// Slices for which no write is waited.
    without_wait: Cell<u32>,
}

/// The turn to do slices.
pub(crate) struct SliceTurn<'s> {
    of: &'s Slices,
    done: usize,
    _turn: LargeTurnGuard,
}

impl Default for Slices {
    fn default() -> Slices {
        Slices {
            turn: LargeTurn::default(),
            without_wait: Cell::new(0),
        }
    }
}

impl Slices {
    /// Waits for the turn.
    pub(crate) async fn take(&self) -> SliceTurn<'_> {
        SliceTurn {
            of: self,
            done: 0,
            _turn: self.turn.take().await,
        }
    }

    /// Does one slice when its turn comes. The next in line begins only after the core has looked for other work.
    pub(crate) async fn slice<T>(&self, work: impl FnOnce() -> T) -> T {
        let turn = self.take().await;
        let done = work();
        turn.end().await;
        done
    }

    /// Lets the other tasks of the core run, and then the writes that are under way, which workers of the kernel may
    /// do on this very core.
    async fn give_way(&self) {
        task::yield_now().await;
        match self.without_wait.get() {
            0 => {
                let max = Duration::from_millis(WRITES_LET_END_MS);
                if fs::let_writes_end(max).await.is_err() {
                    self.without_wait.set(SLICES_BESIDE_SLOW_WRITES);
                }
            }
            left => self.without_wait.set(left - 1),
        }
    }
}

impl SliceTurn<'_> {
    /// One more element is done.
    pub(crate) async fn step(&mut self) {
        self.steps(1).await;
    }

    /// `count` more elements are done; after [`TURN_ELEMENTS_MAX`] of them others go first.
    pub(crate) async fn steps(&mut self, count: usize) {
        self.done += count;
        if self.done >= TURN_ELEMENTS_MAX {
            self.done = 0;
            self.of.give_way().await;
        }
    }

    /// Gives the turn to the next in line, once others had theirs.
    pub(crate) async fn end(self) {
        self.of.give_way().await;
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use thalweg_reactor::{EngineChoice, Runtime, RuntimeOptions, task};
    use thalweg_types::limits::TURN_ELEMENTS_MAX;

    use super::{LargeTurn, Pace, Slices};

    pub(crate) fn on_a_runtime(work: impl Future<Output = ()>) {
        let options = RuntimeOptions {
            engine: EngineChoice::Plain,
            ..RuntimeOptions::default()
        };
        Runtime::new(options).expect("a runtime").block_on(work);
    }

    #[test]
    fn bi_8_long_work_lets_others_run_in_between() {
        on_a_runtime(async {
            let turns = Rc::new(Cell::new(0));
            let counting = Rc::clone(&turns);
            let other = task::spawn(async move {
                loop {
                    counting.set(counting.get() + 1);
                    task::yield_now().await;
                }
            });
            let mut pace = Pace::default();
            for _ in 0..TURN_ELEMENTS_MAX - 1 {
                pace.step().await;
            }
            assert_eq!(turns.get(), 0, "a small request does not wait");
            for _ in 0..10 * TURN_ELEMENTS_MAX {
                pace.step().await;
            }
            assert!(turns.get() >= 10, "{} turns for others", turns.get());
            other.abort();
        });
    }

    #[test]
    fn bi_8_slices_of_many_never_follow_each_other_without_a_pause() {
        on_a_runtime(async {
            const MANY: usize = 50;
            let turns = Rc::new(Slices::default());
            let in_a_row = Rc::new(Cell::new(0));
            let counting = Rc::clone(&in_a_row);
            // It goes on when the core has looked for other work.
            let other = task::spawn(async move {
                loop {
                    counting.set(0);
                    task::yield_now().await;
                }
            });
            let slices: Vec<_> = (0..MANY)
                .map(|_| {
                    let (turns, in_a_row) = (Rc::clone(&turns), Rc::clone(&in_a_row));
                    task::spawn(async move {
                        turns
                            .slice(|| {
                                in_a_row.set(in_a_row.get() + 1);
                                in_a_row.get()
                            })
                            .await
                    })
                })
                .collect();
            for slice in slices {
                assert_eq!(slice.await, Some(1), "slices in a row");
            }
            other.abort();
        });
    }

    #[test]
    fn bi_8_large_requests_take_turns_in_order() {
        on_a_runtime(async {
            let turn = Rc::new(LargeTurn::default());
            let order = Rc::new(Cell::new(0));
            let first = turn.take().await;
            let waiting: Vec<_> = (0..3)
                .map(|nth| {
                    let (turn, order) = (Rc::clone(&turn), Rc::clone(&order));
                    task::spawn(async move {
                        let _turn = turn.take().await;
                        assert_eq!(order.replace(nth + 1), nth);
                        task::yield_now().await;
                    })
                })
                .collect();
            task::yield_now().await;
            assert_eq!(order.get(), 0, "one at a time");
            drop(first);
            for task in waiting {
                assert!(task.await.is_some());
            }
            assert_eq!(order.get(), 3);
        });
    }
}
