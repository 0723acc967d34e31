//! Log lines on stderr: one per event, for people by default, JSON on request. Their levels can be
//! changed while the broker runs.

use std::io::{self, IsTerminal};
use std::sync::Arc;

use anyhow::Context;
use thalweg_control::Loggers;
use thalweg_metadata::loggers::{LogLevel, LogLevels};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::prelude::*;
use tracing_subscriber::{fmt, reload};

use crate::args::{LogFormat, ServeArgs};

/// Starts logging; what comes back changes the levels.
///
/// # Errors
/// The filter of `--log-level` does not parse.
pub(super) fn start(args: &ServeArgs) -> anyhow::Result<Arc<Loggers>> {
    check_word(&args.log_level)?;
    let filter: Targets = args.log_level.parse().with_context(|| {
        format!(
            "--log-level {}: use for example info or debug",
            args.log_level
        )
    })?;
    let levels = levels_of(&filter);
    let (filter, handle) = reload::Layer::new(filter);
    let lines = fmt::layer().with_writer(io::stderr);
    let lines = match args.log_format {
        LogFormat::Human => lines.with_ansi(io::stderr().is_terminal()).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    tracing_subscriber::registry()
        .with(filter)
        .with(lines)
        .init();
    let apply = move |levels: &LogLevels| {
        let filter = filter_of(levels);
        handle.reload(filter).map_err(|error| error.to_string())
    };
    Ok(Arc::new(Loggers::new(levels, apply)))
}

fn levels_of(filter: &Targets) -> LogLevels {
    let root = filter.default_level().unwrap_or(LevelFilter::OFF);
    let mut levels = LogLevels::all(level_of(root));
    let own = filter.iter();
    levels.own = own
        .map(|(name, level)| (name.to_owned(), level_of(level)))
        .collect();
    levels
}

fn filter_of(levels: &LogLevels) -> Targets {
    let own = levels.own.iter();
    Targets::new()
        .with_default(filter_level_of(levels.root))
        .with_targets(own.map(|(name, level)| (name.as_str(), filter_level_of(*level))))
}

fn level_of(level: LevelFilter) -> LogLevel {
    match level {
        LevelFilter::OFF => LogLevel::Off,
        LevelFilter::ERROR => LogLevel::Error,
        LevelFilter::WARN => LogLevel::Warn,
        LevelFilter::INFO => LogLevel::Info,
        LevelFilter::DEBUG => LogLevel::Debug,
        LevelFilter::TRACE => LogLevel::Trace,
    }
}

fn filter_level_of(level: LogLevel) -> LevelFilter {
    match level {
        LogLevel::Off => LevelFilter::OFF,
        LogLevel::Fatal | LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    }
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
    use super::{check_word, filter_of, levels_of};

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

    #[test]
    fn a_filter_survives_as_levels() {
        for text in [
            "info",
            "off",
            "warn,thalweg_net=debug,thalweg_net::serve=trace",
        ] {
            let filter = text.parse().expect("a filter");
            assert_eq!(filter_of(&levels_of(&filter)), filter, "{text}");
        }
    }
}
