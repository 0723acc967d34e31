//! The thread that checks closed segments, for all shards.

use std::io;
use std::thread::JoinHandle;

use anyhow::{Context, anyhow};
use thalweg_storage::Scrubber;

use super::fatal;

/// The thread and the way to it.
pub(super) struct Scrubbing {
    running: Option<(Scrubber, JoinHandle<io::Result<()>>)>,
}

impl Scrubbing {
    /// Starts it.
    ///
    /// # Errors
    /// The thread can not be started.
    pub(super) fn start() -> anyhow::Result<Scrubbing> {
        let running = Scrubber::start("scrubber").context("starting the thread of the scrub")?;
        Ok(Scrubbing {
            running: Some(running),
        })
    }

    /// The way to it.
    ///
    /// # Errors
    /// It has ended.
    pub(super) fn scrubber(&self) -> anyhow::Result<Scrubber> {
        let running = self.running.as_ref();
        let (scrubber, _) = running.ok_or_else(|| anyhow!("the scrub has ended"))?;
        Ok(scrubber.clone())
    }

    /// Looks that are under way end soon.
    pub(super) fn begin_stop(&self) {
        if let Some((scrubber, _)) = &self.running {
            scrubber.stop();
        }
    }

    /// Waits for the thread. The shards must be gone.
    pub(super) fn join(&mut self) {
        let Some((scrubber, thread)) = self.running.take() else {
            return;
        };
        drop(scrubber);
        match thread.join() {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::error!(%error, "the scrub had no runtime"),
            Err(_) => fatal("the thread of the scrub ended by a panic"),
        }
    }
}
