//! One thing that was looked at.

use serde::Serialize;

use crate::output::printable;

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Level {
    /// As it should be.
    Ok,
    /// Worth knowing.
    Note,
    /// Costs throughput or latency.
    Warning,
    /// Acknowledged data or the broker itself is in danger.
    Problem,
}

impl Level {
    fn word(self) -> &'static str {
        match self {
            Level::Ok => "ok",
            Level::Note => "note",
            Level::Warning => "warning",
            Level::Problem => "PROBLEM",
        }
    }
}

/// What was found, what follows from it, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    /// What was looked at; names stay.
    pub(super) name: &'static str,
    /// How much it matters.
    pub(super) level: Level,
    /// As it is.
    pub(super) found: String,
    /// What follows; absent where all is well.
    pub(super) consequence: Option<String>,
    /// A command or an advice; absent where there is nothing to do.
    pub(super) remedy: Option<String>,
}

impl Finding {
    /// As it should be.
    pub(super) fn ok(name: &'static str, found: impl Into<String>) -> Finding {
        Finding {
            name,
            level: Level::Ok,
            found: found.into(),
            consequence: None,
            remedy: None,
        }
    }

    /// Not as it should be; says what follows.
    pub(super) fn new(
        name: &'static str,
        level: Level,
        found: impl Into<String>,
        consequence: impl Into<String>,
    ) -> Finding {
        Finding {
            level,
            consequence: Some(consequence.into()),
            ..Finding::ok(name, found)
        }
    }

    /// With what to do.
    pub(super) fn remedy(mut self, remedy: impl Into<String>) -> Finding {
        self.remedy = Some(remedy.into());
        self
    }

    /// With the family of `tuning/` that sets it.
    pub(super) fn tuned_by(self, family: &str) -> Finding {
        self.remedy(format!("tuning/{family} apply throughput"))
    }

    /// For people.
    pub(super) fn shown(&self) -> String {
        let mut text = format!(
            "{:<8} {:<16} {}",
            self.level.word(),
            self.name,
            printable(&self.found)
        );
        if let Some(consequence) = &self.consequence {
            text += &format!("\n{:25} {}", "", printable(consequence));
        }
        if let Some(remedy) = &self.remedy {
            text += &format!("\n{:25} -> {}", "", printable(remedy));
        }
        text
    }
}
