//! What a thread's runtime is, for the free functions called on that thread.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use crate::engine::Engine;
use crate::sync::home::Home;
use crate::sync::lock;

pub(crate) struct Context {
    pub(crate) engine: Engine,
    /// Where other threads hand in wakers of its tasks.
    pub(crate) home: Arc<Home>,
    pub(crate) in_flight: Arc<InFlight>,
}

thread_local! {
    static CURRENT: RefCell<Option<Rc<Context>>> = const { RefCell::new(None) };
}

/// The context of the calling thread's runtime, if it has one.
pub(crate) fn current() -> Option<Rc<Context>> {
    CURRENT.with(|current| current.borrow().clone())
}

/// The home of the calling thread's runtime, if it has one.
pub(crate) fn home() -> Option<Arc<Home>> {
    let found = CURRENT.try_with(|current| {
        let current = current.borrow();
        current.as_ref().map(|context| Arc::clone(&context.home))
    });
    // A thread that is ending has none.
    found.ok().flatten()
}

/// True when `home` is that of the calling thread's runtime.
pub(crate) fn is_at(home: &Arc<Home>) -> bool {
    let found = CURRENT.try_with(|current| {
        let current = current.borrow();
        current
            .as_ref()
            .is_some_and(|context| Arc::ptr_eq(&context.home, home))
    });
    found.unwrap_or(false)
}

/// Makes `context` the calling thread's; false if the thread has one already.
pub(crate) fn install(context: &Rc<Context>) -> bool {
    CURRENT.with(|current| {
        let mut current = current.borrow_mut();
        let free = current.is_none();
        if free {
            *current = Some(Rc::clone(context));
        }
        free
    })
}

pub(crate) fn remove() {
    let old = CURRENT.with(|current| current.borrow_mut().take());
    drop(old);
}

/// Runs after each poll of a task: completions that are there already wake their tasks now, however
/// many ready tasks keep the scheduler from asking the kernel for readiness.
pub(crate) fn after_poll() {
    CURRENT.with(|current| {
        let current = current.borrow();
        if let Some(context) = current.as_ref() {
            context.engine.after_poll();
        }
    });
}

/// Jobs of one runtime that worker threads still hold.
#[derive(Default)]
pub(crate) struct InFlight {
    count: Mutex<usize>,
    zero: Condvar,
}

/// Counts one job for as long as it lives.
pub(crate) struct InFlightGuard(Arc<InFlight>);

impl InFlight {
    pub(crate) fn enter(self: &Arc<Self>) -> InFlightGuard {
        *lock(&self.count) += 1;
        InFlightGuard(Arc::clone(self))
    }

    pub(crate) fn wait_for_zero(&self) {
        let mut count = lock(&self.count);
        while *count > 0 {
            count = self
                .zero
                .wait(count)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        let mut count = lock(&self.0.count);
        *count -= 1;
        if *count == 0 {
            self.0.zero.notify_all();
        }
    }
}
