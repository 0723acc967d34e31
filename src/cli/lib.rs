//! Subcommands of the `thalweg` binary.
//!
//! This room owns the command line: arguments, what is printed, exit codes. `serve` starts the
//! broker, `format` prepares its directory, `inspect` reads files through `thalweg_storage::inspect`, `doctor` looks at the
//! machine, everything else goes through `thalweg_client`. It refuses to know wire formats and broker internals.
//!
//! Start reading at [`args`]; each subcommand has the file of its name. Results go to stdout,
//! messages and progress to stderr. A reader that closes stdout early (`| head`) ends a command
//! quietly and successfully.

pub mod args;
mod base64;
mod broker_http;
mod completions;
mod config;
mod consume;
mod doctor;
mod ends;
mod exit;
mod format;
mod group;
mod inspect;
mod interrupt;
mod log_dirs;
mod output;
mod produce;
mod progress;
mod repair;
pub mod serve;
mod service_manager;
mod settings;
mod top;
mod topic;

use std::process::ExitCode;

use clap::Parser;
use thalweg_reactor::process;

use args::{Arguments, Command};
pub use exit::{Exit, Failure};

/// Parses the command line, runs the subcommand and says how it ended.
#[must_use]
pub fn main() -> ExitCode {
    process::abort_on_panic();
    process::look_names_up_without_plugins();
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return exit::usage(&error),
    };
    let outcome = match arguments.command {
        Command::Serve(args) => serve::run(args),
        Command::Format(args) => format::run(args),
        Command::Config(args) => config::run(args.command),
        Command::Group(args) => group::run(&args.command),
        Command::LogDirs(args) => log_dirs::run(args.command),
        Command::Topic(args) => topic::run(args.command),
        Command::Produce(args) => produce::run(&args),
        Command::Consume(args) => consume::run(&args),
        Command::Inspect(args) => inspect::run(&args),
        Command::Repair(args) => repair::run(&args),
        Command::Top(args) => top::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Completions(args) => completions::run(&args),
    };
    exit::report(outcome)
}
