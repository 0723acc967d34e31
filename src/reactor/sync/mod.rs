//! The ways two threads or tasks talk. None of them belongs to a runtime: a waker is all they need.

pub mod event;
pub mod mailbox;
pub mod oneshot;

#[cfg(test)]
pub(crate) mod tests_support;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex whose critical sections cannot leave the value half changed, so that a panic of
/// another holder says nothing about it.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
