//! The ways two threads or tasks talk. None of them belongs to a runtime; where the waiting task does, its wake from
//! another thread goes by that runtime's `home`.

pub mod event;
pub(crate) mod home;
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
