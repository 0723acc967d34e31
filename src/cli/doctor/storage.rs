//! The file system and the disk below the data.

use std::path::Path;

use nix::sys::statvfs::statvfs;

use super::finding::{Finding, Level};
use super::system::System;

/// File systems that forget, or that other machines serve.
const FORGETTING: [&str; 2] = ["tmpfs", "ramfs"];
const REMOTE: [&str; 6] = ["nfs", "nfs4", "cifs", "smb3", "ceph", "9p"];
const KNOWN: [&str; 2] = ["xfs", "ext4"];
/// Mount options that take back what fdatasync promises.
const UNSAFE_OPTIONS: [&str; 4] = ["nobarrier", "barrier=0", "data=writeback", "async_commit"];
const READ_AHEAD_KIB_MIN: u64 = 256;
const FREE_PERCENT_MIN: u64 = 5;

/// Of the folder that holds the data.
pub(super) fn findings(system: &System, folder: &Path) -> Vec<Finding> {
    let Some(mount) = mount_of(system, folder) else {
        return Vec::new();
    };
    let mut findings = vec![file_system(&mount)];
    findings.extend(options(&mount));
    findings.extend(free_space(folder));
    if let Some(queue) = queue_of(system, &mount.device) {
        findings.extend(scheduler(system, &queue));
        findings.extend(read_ahead(system, &queue));
    }
    findings
}

/// A line of mountinfo.
struct Mount {
    /// `major:minor`.
    device: String,
    point: String,
    kind: String,
    /// Of the mount and of the superblock.
    options: Vec<String>,
}

/// The mount that holds `folder`: the longest mount point above it, and of equal ones the last.
fn mount_of(system: &System, folder: &Path) -> Option<Mount> {
    let table = system.text("/proc/self/mountinfo")?;
    let mut best: Option<Mount> = None;
    for line in table.lines() {
        let (mount, source) = line.split_once(" - ")?;
        let mount: Vec<&str> = mount.split(' ').collect();
        let source: Vec<&str> = source.split(' ').collect();
        let ([_, _, device, _, point, own, ..], [kind, _, above @ ..]) = (&mount[..], &source[..])
        else {
            continue;
        };
        let length = best.as_ref().map_or(0, |b| b.point.len());
        if folder.starts_with(point) && point.len() >= length {
            let all = own
                .split(',')
                .chain(above.iter().flat_map(|o| o.split(',')));
            best = Some(Mount {
                device: (*device).to_owned(),
                point: (*point).to_owned(),
                kind: (*kind).to_owned(),
                options: all.map(str::to_owned).collect(),
            });
        }
    }
    best
}

fn file_system(mount: &Mount) -> Finding {
    let kind = mount.kind.as_str();
    let found = format!("{kind} on {}", mount.point);
    let name = "file-system";
    if FORGETTING.contains(&kind) {
        let text = "everything is lost when the machine stops";
        return Finding::new(name, Level::Problem, found, text).remedy("put log.dirs on a disk");
    }
    if REMOTE.contains(&kind) || kind.starts_with("fuse") {
        let text = "another machine keeps the data: a stall of the network stalls partitions, and its promises are its own";
        return Finding::new(name, Level::Warning, found, text)
            .remedy("put log.dirs on a local disk");
    }
    if KNOWN.contains(&kind) {
        return Finding::ok(name, found);
    }
    let text = "the broker is tried on xfs and ext4 only";
    Finding::new(name, Level::Note, found, text)
        .remedy("tuning/filesystem creation says how to make one")
}

fn options(mount: &Mount) -> Vec<Finding> {
    let has = |option: &&&str| mount.options.iter().any(|o| o == **option);
    let mut findings = Vec::new();
    if let Some(option) = UNSAFE_OPTIONS.iter().find(|option| has(option)) {
        let text = "when power fails, data that was reported durable can be lost";
        let found = format!("{} is mounted with {option}", mount.point);
        findings.push(
            Finding::new("mount-options", Level::Problem, found, text)
                .remedy("mount it without that option"),
        );
    }
    findings.push(if has(&&"noatime") {
        Finding::ok("access-times", "noatime")
    } else {
        let text = "reading a log writes to its disk, once a day and file at least";
        Finding::new("access-times", Level::Note, "kept", text).tuned_by("filesystem")
    });
    findings
}

fn free_space(folder: &Path) -> Option<Finding> {
    let space = statvfs(folder).ok()?;
    let (free, total) = (space.blocks_available(), space.blocks());
    let gb = |blocks: u64| (blocks * space.fragment_size()) as f64 / 1e9;
    let found = format!("{:.1} of {:.1} GB", gb(free), gb(total));
    Some(if free * 100 >= total * FREE_PERCENT_MIN {
        Finding::ok("free-space", found)
    } else {
        let text = "a full disk refuses producers";
        Finding::new("free-space", Level::Warning, found, text)
            .remedy("docs/operate.md, When the disk is full")
    })
}

/// The folder with the settings of a device's queue; that of the whole disk for a partition.
fn queue_of(system: &System, device: &str) -> Option<String> {
    let own = system.resolved(&format!("/sys/dev/block/{device}"))?;
    let above = own.rsplit_once('/').map_or("", |(above, _)| above);
    [&own, above]
        .iter()
        .map(|folder| format!("{folder}/queue"))
        .find(|queue| !system.names(queue).is_empty())
}

fn scheduler(system: &System, queue: &str) -> Option<Finding> {
    let found = system.chosen(&format!("{queue}/scheduler"))?;
    let rotates = system.number(&format!("{queue}/rotational"))? == 1;
    let kind = if rotates { "rotating" } else { "solid state" };
    let shown = format!("{found}, disk says it is {kind}");
    Some(if rotates == (found != "none") {
        Finding::ok("io-scheduler", shown)
    } else {
        let text = if rotates {
            "a reader that catches up starves behind writeback"
        } else {
            "the disk orders requests itself; a second order costs CPU"
        };
        Finding::new("io-scheduler", Level::Note, shown, text).tuned_by("disk")
    })
}

fn read_ahead(system: &System, queue: &str) -> Option<Finding> {
    let kib = system.number(&format!("{queue}/read_ahead_kb"))?;
    let found = format!("{kib} KiB");
    Some(if kib >= READ_AHEAD_KIB_MIN {
        Finding::ok("read-ahead", found)
    } else {
        let text = "one consumer that catches up does not reach the disk's speed";
        Finding::new("read-ahead", Level::Note, found, text).tuned_by("disk")
    })
}
