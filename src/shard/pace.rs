//! Fairness on one core: long work lets others run in between, and large requests take turns.

use thalweg_reactor::event::Event;
use thalweg_reactor::task;
use thalweg_types::limits::TURN_ELEMENTS_MAX;

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
/// frame. Small requests do not queue here. Coordinators take such turns among themselves for what they do by
/// slices.
pub(crate) struct LargeTurn {
    free: Event,
}

/// The turn; the next in line gets it when this is dropped.
pub(crate) struct LargeTurnGuard {
    free: Event,
}

impl Default for LargeTurn {
    fn default() -> LargeTurn {
        let free = Event::new();
        free.notify();
        LargeTurn { free }
    }
}

impl LargeTurn {
    /// Waits for the turn.
    pub(crate) async fn take(&self) -> LargeTurnGuard {
        self.free.wait().await;
        LargeTurnGuard {
            free: self.free.clone(),
        }
    }

    /// Does one slice of long work when its turn comes. The next in line begins only after the core has
    /// looked for other work: however many are in line, they hold up the rest no more than one.
    pub(crate) async fn slice<T>(&self, work: impl FnOnce() -> T) -> T {
        let turn = self.take().await;
        let done = work();
        task::yield_now().await;
        drop(turn);
        done
    }
}

impl Drop for LargeTurnGuard {
    fn drop(&mut self) {
        self.free.notify();
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use thalweg_reactor::{EngineChoice, Runtime, RuntimeOptions, task};
    use thalweg_types::limits::TURN_ELEMENTS_MAX;

    use super::{LargeTurn, Pace};

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
            let turns = Rc::new(LargeTurn::default());
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
