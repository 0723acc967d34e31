//! Generates the message codec from `notation/*.api`.

#[path = "codegen/mod.rs"]
mod codegen;

use std::env;
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    println!("cargo::rerun-if-changed=notation");
    println!("cargo::rerun-if-changed=codegen");
    println!("cargo::rerun-if-changed=build.rs");
    let variable = |name| env::var(name).unwrap_or_default();
    let (here, out) = (variable("CARGO_MANIFEST_DIR"), variable("OUT_DIR"));
    match codegen::generate(&Path::new(&here).join("notation"), Path::new(&out)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("cargo::error={error}");
            ExitCode::FAILURE
        }
    }
}
