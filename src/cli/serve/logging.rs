//! Log lines on stderr: one per event, for people by default, JSON on request.

use std::io::{self, IsTerminal};

use anyhow::Context;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

use crate::args::{LogFormat, ServeArgs};

/// Starts logging.
///
/// # Errors
/// The filter of `--log-level` does not parse.
pub(super) fn start(args: &ServeArgs) -> anyhow::Result<()> {
    check_word(&args.log_level)?;
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

/// A lone word must be a level: the filter would take any other for the name of a module, and log
/// nothing else.
fn check_word(text: &str) -> anyhow::Result<()> {
    let is_filter = text.contains(['=', ',']);
    anyhow::ensure!(
        is_filter || text.parse::<LevelFilter>().is_ok(),
        "--log-level {text}: use off, error, warn, info, debug or trace, or a filter such as \
         info,thalweg_storage=debug"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::check_word;

    #[test]
    fn a_lone_word_must_be_a_level() {
        for good in [
            "info",
            "off",
            "WARN",
            "info,thalweg_net=debug",
            "thalweg_net=trace",
        ] {
            assert!(check_word(good).is_ok(), "{good}");
        }
        assert!(check_word("bla").is_err());
    }
}
