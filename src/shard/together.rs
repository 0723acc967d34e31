//! The same work on many things, several at a time.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::Future;
use std::rc::Rc;

use thalweg_reactor::task;

/// Does `work` on each item, on up to `at_once` of them at a time, and returns the outcomes in the order
/// in which they came. What waits for the disk or its threads is then waited for together.
pub(crate) async fn each<T, R, F>(
    items: Vec<T>,
    at_once: usize,
    work: impl Fn(T) -> F + 'static,
) -> Vec<R>
where
    T: 'static,
    R: 'static,
    F: Future<Output = R> + 'static,
{
    let hands = at_once.min(items.len());
    let shared = Rc::new((
        RefCell::new(VecDeque::from(items)),
        RefCell::new(Vec::new()),
        work,
    ));
    let tasks: Vec<_> = (0..hands)
        .map(|_| {
            let shared = Rc::clone(&shared);
            task::spawn(async move {
                let (queue, outcomes, work) = &*shared;
                loop {
                    let Some(item) = queue.borrow_mut().pop_front() else {
                        break;
                    };
                    let outcome = work(item).await;
                    outcomes.borrow_mut().push(outcome);
                }
            })
        })
        .collect();
    for task in tasks {
        task.await;
    }
    shared.1.take()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use thalweg_reactor::{EngineChoice, Runtime, RuntimeOptions, task};

    use super::each;

    #[test]
    fn every_item_is_worked_on_once_and_few_at_a_time() {
        let options = RuntimeOptions {
            engine: EngineChoice::Plain,
            ..RuntimeOptions::default()
        };
        Runtime::new(options).expect("a runtime").block_on(async {
            let now = Rc::new(Cell::new(0_usize));
            let most = Rc::new(Cell::new(0));
            let (counted, highest) = (Rc::clone(&now), Rc::clone(&most));
            let mut done = each((0..100).collect(), 7, move |n: u32| {
                let (now, most) = (Rc::clone(&counted), Rc::clone(&highest));
                async move {
                    now.set(now.get() + 1);
                    most.set(most.get().max(now.get()));
                    task::yield_now().await;
                    now.set(now.get() - 1);
                    n
                }
            })
            .await;
            done.sort_unstable();
            assert_eq!(done, (0..100).collect::<Vec<_>>());
            assert_eq!((most.get(), now.get()), (7, 0));
            let none = each(Vec::<u32>::new(), 7, |n| async move { n }).await;
            assert!(none.is_empty());
        });
    }
}
