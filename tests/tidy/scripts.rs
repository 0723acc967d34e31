//! Shell scripts parse and stop at the first error; Python scripts parse.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{assert_none, source};

#[test]
fn shell_scripts_parse_and_are_strict() {
    let mut offenders = Vec::new();
    let scripts = shell_scripts();
    assert!(!scripts.is_empty(), "the project has shell scripts");
    for path in scripts {
        let parsed = Command::new("bash")
            .arg("-n")
            .arg(source::root().join(&path))
            .output();
        match parsed {
            Ok(output) if output.status.success() => {}
            Ok(output) => offenders.push(String::from_utf8_lossy(&output.stderr).into_owned()),
            Err(error) => offenders.push(format!("bash -n {}: {error}", path.display())),
        }
        let text = source::read(&path);
        let is_sourced = !text.starts_with("#!");
        if !is_sourced && !text.contains("set -euo pipefail") {
            offenders.push(format!("{} does not `set -euo pipefail`", path.display()));
        }
    }
    assert_none("shell scripts with faults", &offenders);
}

/// Files that end in `.sh` or start with a shell's name.
fn shell_scripts() -> Vec<PathBuf> {
    let folders = ["scripts", "tests/foreign", "tuning", ".ci", "bench", "fuzz"];
    source::files(&[""])
        .into_iter()
        .filter(|path| {
            folders
                .iter()
                .any(|folder| path.starts_with(Path::new(folder)))
        })
        .filter(|path| {
            path.extension().is_some_and(|ending| ending == "sh")
                || path.extension().is_none()
                    && source::read(path).starts_with("#!/usr/bin/env bash")
        })
        .collect()
}
