//! `thalweg doctor`: looks at the machine that a broker shall run on, says what hurts and what to do about it, without
//! rights and without a broker.
//!
//! Start reading at [`finding`]; [`kernel`], [`process`] and [`storage`] look at settings, [`ring`] tries what the kernel
//! does with our operations, [`probe`] measures the disk.

mod finding;
mod kernel;
mod probe;
mod process;
mod ring;
mod storage;
mod system;

use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::args::DoctorArgs;
use crate::exit::{Exit, Failure};
use crate::{output, settings};
use finding::{Finding, Level};
use probe::Probe;
use system::System;

/// What `--json` prints; field names stay.
#[derive(Serialize)]
struct Report {
    /// Where the data lies or will lie; of several directories the first.
    data_dir: PathBuf,
    /// All of them.
    data_dirs: Vec<PathBuf>,
    /// In the order of the checks.
    findings: Vec<Finding>,
    /// With `--probe` only: of the first directory.
    probe: Option<Probe>,
    /// With `--probe` only: of each directory.
    probes: Vec<Probed>,
}

/// What the disk of one directory did.
#[derive(Serialize)]
struct Probed {
    data_dir: PathBuf,
    #[serde(flatten)]
    probe: Probe,
}

/// Looks, and prints what was found.
///
/// # Errors
/// The settings are wrong, the probe can not write, or something is a problem.
pub(crate) fn run(args: &DoctorArgs) -> Result<(), Failure> {
    let config = settings::load(&args.settings, None)?.config;
    let dirs = settings::data_dirs(&args.settings, &config);
    let data_dirs: Vec<PathBuf> = dirs.all().into_iter().map(Path::to_owned).collect();
    let mut folders = Vec::with_capacity(data_dirs.len());
    for dir in &data_dirs {
        folders.push(existing(dir)?);
    }
    let findings = examine(&System::of_this_machine(), &folders);
    let mut probes = Vec::new();
    if args.probe {
        let seconds = f64::from(args.seconds);
        for (folder, data_dir) in folders.iter().zip(&data_dirs) {
            let probe = probe::measure(folder, seconds);
            probes.push(Probed {
                data_dir: data_dir.clone(),
                probe: probe.map_err(|error| cannot_probe(folder, &error))?,
            });
        }
    }
    let report = Report {
        data_dir: data_dirs[0].clone(),
        data_dirs,
        findings,
        probe: probes.first().map(|probed| probed.probe),
        probes,
    };
    if args.json {
        output::json(&report)?;
    } else {
        print(&report)?;
    }
    let is_problem = |finding: &&Finding| finding.level == Level::Problem;
    match report.findings.iter().filter(is_problem).count() {
        0 => Ok(()),
        n => Err(Failure::new(
            Exit::Failed,
            format!("{n} of the findings are problems: do not keep data here before they are gone"),
        )),
    }
}

fn cannot_probe(folder: &Path, error: &io::Error) -> Failure {
    let text = format!("--probe needs to write into {}: {error}", folder.display());
    Failure::new(Exit::Failed, text)
}

/// All findings of a machine with data in folders that exist.
fn examine(system: &System, folders: &[PathBuf]) -> Vec<Finding> {
    let engine = ring::engine(system);
    let mut findings = kernel::findings(system);
    findings.extend(process::findings(system));
    for folder in folders {
        let mut here = storage::findings(system, folder);
        if folders.len() > 1 {
            for finding in &mut here {
                finding.found.push_str(&format!(" ({})", folder.display()));
            }
        }
        findings.extend(here);
    }
    findings.push(engine);
    findings.extend(
        folders
            .first()
            .map(|folder| ring::trials(folder))
            .unwrap_or_default(),
    );
    findings
}

/// The folder itself, or the nearest one above it that exists: what will hold it.
fn existing(data_dir: &Path) -> Result<PathBuf, Failure> {
    let found = std::path::absolute(data_dir).ok().and_then(|path| {
        path.ancestors()
            .find(|above| above.is_dir())?
            .canonicalize()
            .ok()
    });
    found.ok_or_else(|| {
        let text = format!("{}: no folder above it exists", data_dir.display());
        Failure::new(Exit::NotFound, text)
    })
}

fn print(report: &Report) -> io::Result<()> {
    for finding in &report.findings {
        output::line(&finding.shown())?;
    }
    for probed in &report.probes {
        output::line("")?;
        if report.probes.len() > 1 {
            output::line(&format!("{}:", probed.data_dir.display()))?;
        }
        for line in probed.probe.shown() {
            output::line(&line)?;
        }
    }
    let number = |level: Level| report.findings.iter().filter(|f| f.level == level).count();
    let count = |level: Level, one: &str| output::count(number(level) as u64, one);
    output::line(&format!(
        "\n{}, {}, {}, {} ok",
        count(Level::Problem, "problem"),
        count(Level::Warning, "warning"),
        count(Level::Note, "note"),
        number(Level::Ok)
    ))
}

#[cfg(test)]
mod tests;
