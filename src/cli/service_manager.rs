//! What a service manager is told (`sd_notify(3)`): systemd's `Type=notify` waits for it. Without
//! `NOTIFY_SOCKET` in the environment nothing happens.
//!
//! There is no watchdog signal: one from the control thread would say nothing about the shards.

use sd_notify::NotifyState;

/// The broker serves.
pub(crate) fn tell_ready() {
    tell(&[NotifyState::Ready, NotifyState::Status("serving")]);
}

/// The broker has begun to stop; its end is its last word.
pub(crate) fn tell_stopping() {
    tell(&[NotifyState::Stopping, NotifyState::Status("stopping")]);
}

fn tell(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::warn!(%error, "the service manager was not told");
    }
}
