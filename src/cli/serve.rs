//! `thalweg serve`: starts the broker and waits until it is told to stop.

mod assemble;
mod cleaners;
mod directory;
mod endpoints;
mod layout;
mod logging;
mod scrubbing;
mod shards;
mod signals;

use std::sync::Arc;

use anyhow::Context;
use thalweg_config::{ConfigWarning, Place, Placed};
use thalweg_control::Loggers;
use thalweg_reactor::{EngineChoice, Runtime, RuntimeOptions, process};

use crate::args::{LogFormat, ServeArgs};
use crate::exit::{Exit, Failure};
use crate::settings;
pub(crate) use directory::draw_id;

/// Runs the broker until a termination signal.
///
/// # Errors
/// When the command line or the settings are wrong, the broker can not start, or ends by a failure.
pub fn run(args: ServeArgs) -> Result<(), Failure> {
    let loggers =
        logging::start(&args).map_err(|error| Failure::new(Exit::Usage, format!("{error:#}")))?;
    let is_json = args.log_format == LogFormat::Json;
    serve(args, loggers).map_err(|failure| match is_json {
        true => told_in_the_log(failure),
        false => failure,
    })
}

/// Whoever takes stderr for JSON finds the reason of an end in it, too.
fn told_in_the_log(failure: Failure) -> Failure {
    if !tracing::enabled!(tracing::Level::ERROR) {
        return failure;
    }
    tracing::error!("{}", failure.message);
    Failure::new(failure.exit, "")
}

fn serve(args: ServeArgs, loggers: Arc<Loggers>) -> Result<(), Failure> {
    layout::check_cores(&args)?;
    let loaded = settings::load(&args.settings, args.listen.as_deref())?;
    warn_of(&loaded.warnings);
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
    Ok(runtime.block_on(assemble::run(args, loaded.config, loggers))?)
}

/// A line for each warning, but one for all properties of a file that have no effect: Kafka's own sample
/// has many.
fn warn_of(warnings: &[Placed<ConfigWarning>]) {
    let of_file = |warning: &Placed<ConfigWarning>| match &warning.place {
        Some(Place::File(..)) => warning.what.without_effect(),
        Some(Place::Flag(_)) | None => None,
    };
    let idle: Vec<String> = warnings.iter().filter_map(of_file).collect();
    for warning in warnings {
        match idle.len() > 1 && of_file(warning).is_some() {
            true => tracing::debug!("{warning}"),
            false => tracing::warn!("{warning}"),
        }
    }
    if idle.len() > 1 {
        let names = idle.join(", ");
        tracing::warn!(
            "{} properties of the file have no effect here (docs/config.md says why): {names}",
            idle.len()
        );
    }
}

/// Ends the process because there is no log directory left to serve from, for that reason.
fn disk_failed(what: &str) -> ! {
    tracing::error!("fatal: {what}: look at the disk; the next start recovers what is on it");
    std::process::exit(Exit::DiskFailed as i32)
}

/// Ends the process for a reason that leaves nothing to serve with. The one way to do so.
pub(crate) fn fatal(reason: &str) -> ! {
    tracing::error!("fatal: {reason}");
    std::process::exit(1)
}
