//! The `thalweg` binary: everything it does is a subcommand of `thalweg_cli`.

use std::process::ExitCode;

fn main() -> ExitCode {
    thalweg_cli::main()
}
