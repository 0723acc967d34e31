//! `thalweg serve`: starts the broker and waits until it is told to stop.

mod assemble;
mod layout;
mod logging;

use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;
use thalweg_config::BrokerConfig;
use thalweg_reactor::{EngineChoice, Runtime, RuntimeOptions, process};

use crate::args::ServeArgs;

/// Runs the broker until a termination signal.
///
/// # Errors
/// When the broker can not start, or ends by a failure.
pub fn run(args: ServeArgs) -> anyhow::Result<()> {
    logging::start(&args)?;
    abort_on_panic();
    let settings = args.properties.iter().map(|p| (p.key.as_str(), p.value.as_str()));
    let loaded = BrokerConfig::from_settings(settings)?;
    for warning in &loaded.warnings {
        tracing::warn!("{warning}");
    }
    match process::raise_open_files() {
        Ok(limit) => tracing::debug!(limit, "open files"),
        Err(error) => tracing::warn!(%error, "the limit of open files was not raised"),
    }
    let runtime = Runtime::new(RuntimeOptions {
        name: "control".to_owned(),
        engine: EngineChoice::Plain,
        ..RuntimeOptions::default()
    })
    .context("the control thread has no runtime")?;
    runtime.block_on(assemble::run(args, loaded.config))
}

/// A panic anywhere ends the process: a broker with one dead core serves nobody well, and a log is
/// made to be recovered.
fn abort_on_panic() {
    static REPORTED: AtomicBool = AtomicBool::new(false);
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if !REPORTED.swap(true, Ordering::SeqCst) {
            report(panic);
        }
        std::process::abort();
    }));
}

/// Ends the process for a reason that leaves nothing to serve with. The one way to do so.
pub(crate) fn fatal(reason: &str) -> ! {
    tracing::error!("fatal: {reason}");
    std::process::exit(1)
}
