//! What SIGTERM and SIGINT do: the first one stops the broker in order, a second one at once (BI-38).

use std::cell::Cell;
use std::io;
use std::rc::Rc;

use thalweg_reactor::process::{Signal, TerminateSignals};
use thalweg_reactor::{oneshot, task};

use super::fatal;

/// Whether there is something to stop in order.
#[derive(Clone, Default)]
pub(super) struct Started(Rc<Cell<bool>>);

impl Started {
    pub(super) fn mark(&self) {
        self.0.set(true);
    }
}

/// Catches the signals from now on and gives the first one after the start. One that comes before ends
/// the process there and then: what the start has done so far, the next one does again.
pub(super) fn watch(started: Started) -> io::Result<oneshot::Receiver<Signal>> {
    let mut signals = TerminateSignals::install()?;
    let (tell, told) = oneshot::channel();
    task::spawn(async move {
        let first = signals.next().await;
        if !started.0.get() {
            let signal = name(first);
            tracing::warn!(signal, "stopped while starting: the next start recovers");
            std::process::exit(0);
        }
        let _ = tell.send(first);
        let second = signals.next().await;
        fatal(&format!(
            "{} while stopping: ended at once, the next start recovers",
            name(second)
        ));
    });
    Ok(told)
}

/// What whoever sends it calls it.
pub(super) fn name(signal: Signal) -> &'static str {
    match signal {
        Signal::Terminate => "SIGTERM",
        Signal::Interrupt => "SIGINT",
    }
}
