//! What this process may do: limits, seccomp, cgroups. A broker that is started the same way may do the same.

use super::finding::{Finding, Level};
use super::kernel;
use super::system::System;

/// A broker of some thousand partitions with as many connections.
const OPEN_FILES_MIN: u64 = 65_536;
/// Since this kernel a ring's memory is not locked memory.
const RING_MEMORY_IS_FREE: (u32, u32) = (5, 12);
/// Above it, a limit of version 1 means none.
const NO_LIMIT: u64 = 1 << 60;

/// All that can be seen.
pub(super) fn findings(system: &System) -> Vec<Finding> {
    let found = [
        open_files(system),
        locked_memory(system),
        seccomp(system),
        cpu_quota(system),
        memory_limit(system),
    ];
    found.into_iter().flatten().collect()
}

/// The hard limit of that name in `/proc/self/limits`; `None` within is unlimited.
fn hard_limit(system: &System, name: &str) -> Option<Option<u64>> {
    let entry = system.entry("/proc/self/limits", name)?;
    let word = entry.split_whitespace().nth(1)?;
    match word {
        "unlimited" => Some(None),
        number => Some(Some(number.parse().ok()?)),
    }
}

fn open_files(system: &System) -> Option<Finding> {
    let limit = hard_limit(system, "Max open files")?;
    let found = limit.map_or_else(|| "unlimited".to_owned(), |n| n.to_string());
    Some(if limit.is_none_or(|n| n >= OPEN_FILES_MIN) {
        Finding::ok("open-files", found)
    } else {
        let text = "one is held per partition and per connection; what needs more is refused";
        Finding::new("open-files", Level::Warning, found, text).tuned_by("limits")
    })
}

fn locked_memory(system: &System) -> Option<Finding> {
    if kernel::version(system)? >= RING_MEMORY_IS_FREE {
        return None;
    }
    let limit = hard_limit(system, "Max locked memory")?;
    let found = limit.map_or_else(|| "unlimited".to_owned(), |n| format!("{n} bytes"));
    Some(if limit.is_none() {
        Finding::ok("locked-memory", found)
    } else {
        let text = "on this kernel rings count as locked memory and may be refused";
        Finding::new("locked-memory", Level::Note, found, text).tuned_by("limits")
    })
}

fn seccomp(system: &System) -> Option<Finding> {
    let mode = system.entry("/proc/self/status", "Seccomp:")?;
    Some(if mode == "0" {
        Finding::ok("seccomp", "no filter")
    } else {
        let text = "a container's filter may refuse io_uring; see io-uring below";
        Finding::new("seccomp", Level::Note, format!("mode {mode}"), text)
    })
}

fn cpu_quota(system: &System) -> Option<Finding> {
    let mut least: Option<f64> = None;
    for folder in groups(system, "cpu") {
        if let Some(cpus) = quota_of(system, &folder) {
            least = Some(least.map_or(cpus, |l| l.min(cpus)));
        }
    }
    Some(match least {
        None => Finding::ok("cpu-quota", "none"),
        Some(cpus) => {
            let text = "a shard that used its share up stands still for the rest of 100 ms";
            let found = format!("{cpus:.2} CPUs");
            Finding::new("cpu-quota", Level::Warning, found, text)
                .remedy("give whole CPUs instead (a cpuset), and --shards no more than those")
        }
    })
}

/// CPUs per second that a cgroup allows.
fn quota_of(system: &System, folder: &str) -> Option<f64> {
    if let Some(text) = system.text(&format!("{folder}/cpu.max")) {
        let (quota, period) = text.split_once(' ')?;
        return Some(quota.parse::<f64>().ok()? / period.parse::<f64>().ok()?);
    }
    let quota: f64 = system
        .text(&format!("{folder}/cpu.cfs_quota_us"))?
        .parse()
        .ok()?;
    let period: f64 = system
        .text(&format!("{folder}/cpu.cfs_period_us"))?
        .parse()
        .ok()?;
    (quota > 0.0 && period > 0.0).then_some(quota / period)
}

fn memory_limit(system: &System) -> Option<Finding> {
    let limit = |folder: &String| {
        let second = system.number(&format!("{folder}/memory.max"));
        second.or_else(|| system.number(&format!("{folder}/memory.limit_in_bytes")))
    };
    let limits = groups(system, "memory");
    let least = limits
        .iter()
        .filter_map(limit)
        .filter(|n| *n < NO_LIMIT)
        .min();
    Some(match least {
        None => Finding::ok("memory-limit", "none"),
        Some(bytes) => {
            let text = "the page cache of the broker's files counts: that is all that consumers find in memory";
            let found = format!("{} MiB", bytes >> 20);
            Finding::new("memory-limit", Level::Note, found, text)
        }
    })
}

/// Folders of the cgroups that this process is in, of version 2 or of a controller of version 1, from its own upwards.
fn groups(system: &System, controller: &str) -> Vec<String> {
    let table = system.text("/proc/self/cgroup").unwrap_or_default();
    let mut folders = Vec::new();
    for line in table.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else {
            continue;
        };
        let top = if controllers.is_empty() {
            "/sys/fs/cgroup".to_owned()
        } else if controllers.split(',').any(|c| c == controller) {
            format!("/sys/fs/cgroup/{controller}")
        } else {
            continue;
        };
        let mut below = path.trim_end_matches('/');
        loop {
            folders.push(format!("{top}{below}"));
            let Some((above, _)) = below.rsplit_once('/') else {
                break;
            };
            below = above;
        }
    }
    folders
}
