//! The `thalweg` binary: everything it does is a subcommand of `thalweg_cli`.
//!
//! A panic ends the process in every profile: a broker that lost a thread must not go on answering.

use std::process::ExitCode;

fn main() -> ExitCode {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        report(info);
        std::process::abort();
    }));
    thalweg_cli::main()
}
