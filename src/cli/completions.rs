//! `thalweg completions`: scripts that teach a shell to complete the command line.

use std::io::{self, Write};

use clap::CommandFactory;
use clap_complete::Shell;

use crate::args::{Arguments, CompletionsArgs, ShellChoice};
use crate::exit::Failure;

/// Runs the command.
pub(crate) fn run(args: &CompletionsArgs) -> Result<(), Failure> {
    // Written to memory first: the generator panics when its output fails, and a reader may leave.
    let mut script = Vec::new();
    let shell = match args.shell {
        ShellChoice::Bash => Shell::Bash,
        ShellChoice::Zsh => Shell::Zsh,
        ShellChoice::Fish => Shell::Fish,
    };
    clap_complete::generate(shell, &mut Arguments::command(), "thalweg", &mut script);
    let mut out = io::stdout().lock();
    out.write_all(&script)?;
    Ok(out.flush()?)
}
