//! Log lines on stderr: one per event, for people by default, JSON on request.

use std::io::{self, IsTerminal};

use anyhow::Context;
use tracing_subscriber::EnvFilter;

use crate::args::{LogFormat, ServeArgs};

/// Starts logging.
///
/// # Errors
/// The filter of `--log-level` does not parse.
pub(super) fn start(args: &ServeArgs) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(&args.log_level).with_context(|| {
        format!(
            "--log-level {}: use for example info or debug",
            args.log_level
        )
    })?;
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr);
    match args.log_format {
        LogFormat::Human => lines.with_ansi(io::stderr().is_terminal()).init(),
        LogFormat::Json => lines.json().flatten_event(true).init(),
    }
    Ok(())
}
