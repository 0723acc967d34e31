//! The `thalweg` binary: everything it does is a subcommand of `thalweg_cli`.

fn main() {}
