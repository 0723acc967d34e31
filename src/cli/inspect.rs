//! `thalweg inspect`: shows and verifies log files offline.

use crate::args::InspectArgs;
use crate::exit::{Exit, Failure};

/// Runs the command.
pub(crate) fn run(args: &InspectArgs) -> Result<(), Failure> {
    let _ = args;
    Err(Failure::new(Exit::Failed, "inspect is not built in yet"))
}
