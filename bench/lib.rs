//! Load generator, floor and comparison reports.

pub mod floor;

/// Parses the command line and runs.
#[must_use]
pub fn main() -> std::process::ExitCode {
    std::process::ExitCode::SUCCESS
}
