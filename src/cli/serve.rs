//! `thalweg serve`: starts the broker and waits until it is told to stop.

mod assemble;
mod directory;
mod endpoints;
mod layout;
mod logging;
mod shards;
mod signals;

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
    let settings: Vec<String> = args
        .properties
        .iter()
        .map(|p| format!("{}={}", p.key, p.value))
        .collect();
    let loaded = BrokerConfig::from_settings(settings.iter().map(String::as_str))?;
    for warning in &loaded.warnings {
        tracing::warn!("{warning}");
    }
    match process::raise_open_files_limit() {
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

/// Ends the process for a reason that leaves nothing to serve with. The one way to do so.
pub(crate) fn fatal(reason: &str) -> ! {
    tracing::error!("fatal: {reason}");
    std::process::exit(1)
}
