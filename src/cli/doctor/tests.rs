//! Findings of machines that are made up.

use std::fs;
use std::path::Path;

use super::finding::{Finding, Level};
use super::system::System;
use super::{kernel, process, ring, storage};

/// A machine on which all is well, changed by these files.
fn machine(root: &Path, files: &[(&str, &str)]) -> System {
    let well = [
        ("proc/sys/kernel/osrelease", "6.12.1-x"),
        ("proc/sys/vm/swappiness", "1"),
        ("proc/sys/vm/dirty_background_ratio", "5"),
        ("proc/sys/net/core/somaxconn", "4096"),
        (
            "sys/kernel/mm/transparent_hugepage/enabled",
            "always [madvise] never",
        ),
        (
            // Nobody has asked for reports.
            "sys/module/page_reporting/parameters/page_reporting_order",
            "4294967295",
        ),
        (
            "sys/devices/system/clocksource/clocksource0/current_clocksource",
            "tsc",
        ),
        (
            "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
            "performance",
        ),
        (
            "proc/meminfo",
            "MemTotal: 8000000 kB\nMemAvailable: 6000000 kB\nSwapTotal: 1000 kB",
        ),
        (
            "proc/pressure/memory",
            "some avg10=0.00 avg60=0.10 avg300=0.00 total=1",
        ),
        ("proc/self/limits", "Max open files  1024  1048576  files"),
        ("proc/self/status", "Name: x\nSeccomp:\t0"),
        ("proc/self/cgroup", "0::/a/b"),
        (
            "proc/self/mountinfo",
            "1 1 8:1 / / rw,noatime - xfs /dev/sda1 rw\n2 1 0:9 / /tmpfs rw - tmpfs none rw\n\
             3 1 8:1 / /bad rw,relatime - ext4 /dev/sdb rw,nobarrier",
        ),
        ("sys/dev/block/8:1/queue/scheduler", "[none] mq-deadline"),
        ("sys/dev/block/8:1/queue/rotational", "0"),
        ("sys/dev/block/8:1/queue/read_ahead_kb", "1024"),
    ];
    for (path, content) in well.iter().chain(files) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{content}\n")).unwrap();
    }
    System::below(root)
}

fn settings(files: &[(&str, &str)], folder: &str) -> Vec<Finding> {
    let root = tempfile::tempdir().unwrap();
    let system = machine(root.path(), files);
    let mut findings = kernel::findings(&system);
    findings.extend(process::findings(&system));
    findings.extend(storage::findings(&system, Path::new(folder)));
    findings
}

/// Names and levels of all that is not well.
fn faults(files: &[(&str, &str)], folder: &str) -> Vec<(&'static str, Level)> {
    let found = settings(files, folder);
    let bad = found.iter().filter(|f| f.level != Level::Ok);
    bad.map(|f| (f.name, f.level)).collect()
}

#[test]
fn a_good_machine_has_nothing_to_say() {
    assert_eq!(faults(&[], "/"), []);
    assert!(settings(&[], "/").len() >= 15);
}

/// A file, its content, and the one fault that it makes.
const FAULTS: [(&str, &str, &str, Level); 15] = [
    (
        "sys/module/page_reporting/parameters/page_reporting_order",
        "9",
        "free-pages",
        Level::Warning,
    ),
    ("proc/sys/vm/swappiness", "60", "swap", Level::Warning),
    (
        "proc/sys/vm/dirty_background_ratio",
        "10",
        "writeback",
        Level::Note,
    ),
    (
        "proc/sys/net/core/somaxconn",
        "128",
        "connections",
        Level::Note,
    ),
    (
        "sys/kernel/mm/transparent_hugepage/enabled",
        "[always] never",
        "huge-pages",
        Level::Warning,
    ),
    (
        "sys/devices/system/clocksource/clocksource0/current_clocksource",
        "hpet",
        "clock",
        Level::Warning,
    ),
    (
        "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
        "powersave",
        "cpu-governor",
        Level::Note,
    ),
    (
        "proc/pressure/memory",
        "some avg10=0.00 avg60=30.00 avg300=0 total=1",
        "memory-pressure",
        Level::Warning,
    ),
    (
        "proc/self/limits",
        "Max open files  1024  4096  files",
        "open-files",
        Level::Warning,
    ),
    ("proc/self/status", "Seccomp: 2", "seccomp", Level::Note),
    (
        "sys/fs/cgroup/a/b/cpu.max",
        "150000 100000",
        "cpu-quota",
        Level::Warning,
    ),
    (
        "sys/fs/cgroup/a/memory.max",
        "1073741824",
        "memory-limit",
        Level::Note,
    ),
    (
        "sys/dev/block/8:1/queue/scheduler",
        "none [mq-deadline]",
        "io-scheduler",
        Level::Note,
    ),
    (
        "sys/dev/block/8:1/queue/read_ahead_kb",
        "128",
        "read-ahead",
        Level::Note,
    ),
    ("proc/sys/kernel/osrelease", "5.15.0", "kernel", Level::Note),
];

#[test]
fn each_fault_is_found_and_says_what_follows() {
    for (path, content, name, level) in FAULTS {
        assert_eq!(faults(&[(path, content)], "/"), [(name, level)], "{path}");
        let findings = settings(&[(path, content)], "/");
        let finding = findings.iter().find(|f| f.name == name).unwrap();
        assert!(finding.consequence.is_some());
        assert!(finding.shown().contains(name));
    }
}

#[test]
fn a_limit_that_is_none_is_no_limit() {
    let first = [
        ("proc/self/cgroup", "4:cpu,cpuacct:/\n3:memory:/x"),
        ("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1"),
        ("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000"),
        (
            "sys/fs/cgroup/memory/x/memory.limit_in_bytes",
            "9223372036854771712",
        ),
    ];
    assert_eq!(faults(&first, "/"), []);
    let second = [
        ("sys/fs/cgroup/a/cpu.max", "max 100000"),
        ("sys/fs/cgroup/a/b/memory.max", "max"),
    ];
    assert_eq!(faults(&second, "/"), []);
}

#[test]
fn mounts_that_lose_data_are_problems() {
    let problems = |folder| {
        let found = faults(&[], folder);
        let bad = found
            .into_iter()
            .filter(|(_, level)| *level == Level::Problem);
        bad.map(|(name, _)| name).collect::<Vec<_>>()
    };
    assert_eq!(problems("/tmpfs/x"), ["file-system"]);
    assert_eq!(problems("/bad/data"), ["mount-options"]);
    assert_eq!(problems("/badly"), [""; 0]);
}

#[test]
fn an_empty_machine_is_no_fault() {
    let root = tempfile::tempdir().unwrap();
    let system = System::below(root.path());
    assert!(
        kernel::findings(&system)
            .iter()
            .all(|f| f.level == Level::Ok)
    );
    assert!(storage::findings(&system, Path::new("/")).is_empty());
}

#[test]
fn operations_are_tried_where_the_data_lies() {
    let folder = tempfile::tempdir().unwrap();
    let engine = ring::engine(&System::of_this_machine());
    let trials = ring::trials(folder.path());
    let names: Vec<&str> = trials.iter().map(|f| f.name).collect();
    if engine.level == Level::Ok {
        assert_eq!(names, ["ring-appends", "ring-reads"], "{trials:?}");
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}
