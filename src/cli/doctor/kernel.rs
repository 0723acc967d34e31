//! What the kernel is set to.

use super::finding::{Finding, Level};
use super::system::System;

/// Clocks that a process reads without a system call.
const CHEAP_CLOCKS: [&str; 5] = [
    "tsc",
    "kvm-clock",
    "hyperv_clocksource_tsc_page",
    "arch_sys_counter",
    "xen",
];
const SWAPPINESS_MAX: u64 = 10;
const BACKGROUND_RATIO_MAX: u64 = 10;
const QUEUE_OF_CONNECTIONS_MIN: u64 = 1_024;
/// Of the machine's memory, in percent.
const AVAILABLE_PERCENT_MIN: u64 = 10;
/// Percent of the last minute that some process waited for memory.
const MEMORY_PRESSURE_MAX: f64 = 1.0;

type Check = fn(&System) -> Option<Finding>;

/// The largest block of free pages is of this order: a larger one is never reported.
const PAGE_ORDER_MAX: u64 = 10;

const CHECKS: [Check; 11] = [
    release,
    clock,
    governor,
    huge_pages,
    free_page_reporting,
    swap,
    writeback,
    memory,
    pressure,
    numa,
    connections,
];

/// What this kernel shows of all that is looked at.
pub(super) fn findings(system: &System) -> Vec<Finding> {
    CHECKS.iter().filter_map(|check| check(system)).collect()
}

/// Major and minor number of the kernel.
pub(super) fn version(system: &System) -> Option<(u32, u32)> {
    let text = system.text("/proc/sys/kernel/osrelease")?;
    let mut numbers = text.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn release(system: &System) -> Option<Finding> {
    let found = format!("Linux {}", system.text("/proc/sys/kernel/osrelease")?);
    Some(if version(system)? >= (6, 1) {
        Finding::ok("kernel", found)
    } else {
        let text = "rings of older kernels wake their thread more often";
        Finding::new("kernel", Level::Note, found, text)
    })
}

fn clock(system: &System) -> Option<Finding> {
    let found = system.text("/sys/devices/system/clocksource/clocksource0/current_clocksource")?;
    Some(if CHEAP_CLOCKS.contains(&found.as_str()) {
        Finding::ok("clock", found)
    } else {
        let text = "every look at the clock is a system call, and each request looks several times";
        Finding::new("clock", Level::Warning, found, text)
            .remedy("find out by the kernel's log why tsc is not used")
    })
}

fn governor(system: &System) -> Option<Finding> {
    let found = system.text("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")?;
    Some(if found == "performance" {
        Finding::ok("cpu-governor", found)
    } else {
        let text = "cores slow down between batches, which adds to the latency of what comes after a pause";
        Finding::new("cpu-governor", Level::Note, found, text).tuned_by("cpu")
    })
}

fn huge_pages(system: &System) -> Option<Finding> {
    let found = system.chosen("/sys/kernel/mm/transparent_hugepage/enabled")?;
    Some(if found == "always" {
        let text =
            "memory is compacted in the time of whoever touches a new page: pauses of milliseconds";
        Finding::new("huge-pages", Level::Warning, found, text).tuned_by("huge-pages")
    } else {
        Finding::ok("huge-pages", found)
    })
}

/// Free memory of a virtual machine that its host takes back (`CONFIG_PAGE_REPORTING`, virtio-balloon).
fn free_page_reporting(system: &System) -> Option<Finding> {
    let order = system.number("/sys/module/page_reporting/parameters/page_reporting_order")?;
    Some(if order > PAGE_ORDER_MAX {
        Finding::ok("free-pages", "none")
    } else {
        let found = format!("blocks of {} KiB and more", 4 << order);
        let text = "the host takes free memory back, and gives it again page by page when the page cache grows: \
            writes cost several times the CPU, and rates depend on what was freed before";
        Finding::new("free-pages", Level::Warning, found, text).tuned_by("guest-memory")
    })
}

fn swap(system: &System) -> Option<Finding> {
    let swappiness = system.number("/proc/sys/vm/swappiness")?;
    let total = kib(system, "SwapTotal:")?;
    if total == 0 {
        return Some(Finding::ok("swap", "none"));
    }
    let found = format!("{} MiB, vm.swappiness {swappiness}", total / 1024);
    Some(if swappiness <= SWAPPINESS_MAX {
        Finding::ok("swap", found)
    } else {
        let text = "the broker's own memory goes to disk before pages of old logs do";
        Finding::new("swap", Level::Warning, found, text).tuned_by("swap")
    })
}

fn writeback(system: &System) -> Option<Finding> {
    let ratio = system.number("/proc/sys/vm/dirty_background_ratio")?;
    let bytes = system
        .number("/proc/sys/vm/dirty_background_bytes")
        .unwrap_or(0);
    if bytes > 0 {
        return Some(Finding::ok(
            "writeback",
            format!("begins at {} MiB", bytes >> 20),
        ));
    }
    let available = kib(system, "MemAvailable:")?;
    let mib = available * ratio / 100 / 1024;
    let found = format!("begins at {ratio} % of memory, {mib} MiB now");
    Some(if ratio < BACKGROUND_RATIO_MAX {
        Finding::ok("writeback", found)
    } else {
        let text = "it comes in bursts, and readers who go to the disk wait behind them";
        Finding::new("writeback", Level::Note, found, text).tuned_by("writeback")
    })
}

fn memory(system: &System) -> Option<Finding> {
    let (total, available) = (kib(system, "MemTotal:")?, kib(system, "MemAvailable:")?);
    let percent = available * 100 / total.max(1);
    let found = format!("{} of {} MiB are available", available / 1024, total / 1024);
    Some(if percent >= AVAILABLE_PERCENT_MIN {
        Finding::ok("memory", found)
    } else {
        let text =
            "little is left for the page cache: consumers that keep up go to the disk nevertheless";
        Finding::new("memory", Level::Warning, found, text).remedy(
            "give other services less, or the broker a slice: tuning/slices apply throughput",
        )
    })
}

fn pressure(system: &System) -> Option<Finding> {
    let some = system.entry("/proc/pressure/memory", "some")?;
    let minute = some
        .split_whitespace()
        .find_map(|w| w.strip_prefix("avg60="))?;
    let percent: f64 = minute.parse().ok()?;
    let found = format!("processes waited for memory {percent} % of the last minute");
    Some(if percent <= MEMORY_PRESSURE_MAX {
        Finding::ok("memory-pressure", found)
    } else {
        let text = "the page cache is pushed out as it is filled";
        Finding::new("memory-pressure", Level::Warning, found, text)
    })
}

fn numa(system: &System) -> Option<Finding> {
    let is_node = |name: &String| {
        let number = name.strip_prefix("node");
        number.is_some_and(|n| n.parse::<u32>().is_ok())
    };
    let names = system.names("/sys/devices/system/node");
    let nodes = names.iter().filter(|name| is_node(name)).count();
    if nodes <= 1 {
        return Some(Finding::ok("numa", "one node"));
    }
    let reclaims = system.number("/proc/sys/vm/zone_reclaim_mode").unwrap_or(0) != 0;
    let found = format!("{nodes} nodes");
    Some(if reclaims {
        let text = "vm.zone_reclaim_mode throws cache away while another node has free memory";
        Finding::new("numa", Level::Warning, found, text).tuned_by("swap")
    } else {
        let text = "a page that another node's core reads costs about twice as much";
        Finding::new("numa", Level::Note, found, text)
            .remedy("one broker per node, each with --cores of its node")
    })
}

fn connections(system: &System) -> Option<Finding> {
    let queue = system.number("/proc/sys/net/core/somaxconn")?;
    let found = format!("net.core.somaxconn {queue}");
    Some(if queue >= QUEUE_OF_CONNECTIONS_MIN {
        Finding::ok("connections", found)
    } else {
        let text = "clients that connect all at once, as after a restart, wait a second and more";
        Finding::new("connections", Level::Note, found, text).tuned_by("sysctl")
    })
}

fn kib(system: &System, key: &str) -> Option<u64> {
    let entry = system.entry("/proc/meminfo", key)?;
    entry.split_whitespace().next()?.parse().ok()
}
