//! Ctrl-C for commands that have something to tidy up.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use nix::sys::signal::{SigSet, Signal};

use crate::exit::{Exit, Failure};

/// What a shell reports for a command that Ctrl-C ended.
const INTERRUPTED: i32 = 130;

/// Whether SIGINT or SIGTERM has come. The first one only says so; the second ends the process.
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Begins to watch. Call it before other threads start: they inherit that the signals are not
    /// theirs.
    pub(crate) fn watch() -> Result<Interrupt, Failure> {
        let mut signals = SigSet::empty();
        signals.add(Signal::SIGINT);
        signals.add(Signal::SIGTERM);
        signals
            .thread_block()
            .map_err(|e| Failure::new(Exit::Failed, format!("cannot block signals: {e}")))?;
        let came = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&came);
        thread::spawn(move || {
            while signals.wait().is_ok() {
                if flag.swap(true, Ordering::Relaxed) {
                    std::process::exit(INTERRUPTED);
                }
            }
        });
        Ok(Interrupt(came))
    }

    pub(crate) fn has_come(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
