//! `thalweg serve`: starts the broker and waits until it is told to stop.

use crate::args::ServeArgs;

/// Runs the broker until a termination signal.
///
/// # Errors
/// When the broker can not start, or ends by a failure.
pub fn run(args: ServeArgs) -> anyhow::Result<()> {
    let _ = args;
    anyhow::bail!("this build has no broker yet")
}
