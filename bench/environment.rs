//! What a result was measured on: commit, kernel, CPU, disk, file system and the settings that matter.
//!
//! What can not be found out is absent; a measurement does not fail for it.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::sys::stat::{major, minor};
use serde::Serialize;

use crate::cpu;

/// Files whose content decides figures, and how they are called in a result.
const SETTINGS: [(&str, &str); 12] = [
    (
        "transparent_hugepage",
        "/sys/kernel/mm/transparent_hugepage/enabled",
    ),
    (
        "scaling_governor",
        "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
    ),
    ("vm.swappiness", "/proc/sys/vm/swappiness"),
    ("vm.dirty_ratio", "/proc/sys/vm/dirty_ratio"),
    (
        "vm.dirty_background_ratio",
        "/proc/sys/vm/dirty_background_ratio",
    ),
    ("vm.dirty_bytes", "/proc/sys/vm/dirty_bytes"),
    (
        "vm.dirty_background_bytes",
        "/proc/sys/vm/dirty_background_bytes",
    ),
    ("net.core.somaxconn", "/proc/sys/net/core/somaxconn"),
    ("net.core.wmem_max", "/proc/sys/net/core/wmem_max"),
    ("net.ipv4.tcp_rmem", "/proc/sys/net/ipv4/tcp_rmem"),
    ("net.ipv4.tcp_wmem", "/proc/sys/net/ipv4/tcp_wmem"),
    (
        "kernel.io_uring_disabled",
        "/proc/sys/kernel/io_uring_disabled",
    ),
];

/// The machine and the checkout; its JSON has stable names.
#[derive(Clone, Debug, Serialize)]
pub struct Environment {
    /// Commit of the checkout that this binary was built from, as it is now.
    pub commit: Option<String>,
    /// Whether that checkout has changes that are not committed.
    pub has_changes: Option<bool>,
    /// Whether bench itself was built without optimisation: then its figures mean nothing.
    pub is_debug_build: bool,
    /// Kernel release.
    pub kernel: String,
    /// Model of the first CPU.
    pub cpu: Option<String>,
    /// CPUs that this process may use.
    pub cpus: usize,
    /// Memory of the machine in MiB.
    pub memory_mib: Option<u64>,
    /// The file system of the data directory.
    pub filesystem: Option<Filesystem>,
    /// The device under it.
    pub disk: Option<Disk>,
    /// Settings of the kernel.
    pub settings: BTreeMap<&'static str, String>,
}

/// The file system of the data directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Filesystem {
    /// `ext4`, `xfs`, ...
    pub kind: String,
    /// Where it is mounted.
    pub mount_point: String,
    /// Its mount options, and those of the superblock.
    pub options: String,
    /// What it lies on.
    pub source: String,
}

/// A block device.
#[derive(Clone, Debug, Serialize)]
pub struct Disk {
    /// Name of the whole device.
    pub name: String,
    /// Model, as the device tells it.
    pub model: Option<String>,
    /// Whether it is a spinning disk.
    pub rotational: Option<bool>,
    /// I/O schedulers; the one in brackets is in use.
    pub scheduler: Option<String>,
    /// `write back` or `write through`.
    pub write_cache: Option<String>,
    /// Size in 10^9 bytes.
    pub gb: Option<f64>,
}

impl Environment {
    /// Of this machine, with data in `dir` (or where it will be made).
    #[must_use]
    pub fn of(dir: &Path) -> Environment {
        let filesystem = filesystem(dir);
        let memory = fs::read_to_string("/proc/meminfo").ok();
        let cpus = fs::read_to_string("/proc/cpuinfo").ok();
        Environment {
            commit: git(&["rev-parse", "HEAD"]),
            has_changes: git(&["status", "--porcelain"]).map(|text| !text.is_empty()),
            is_debug_build: cfg!(debug_assertions),
            kernel: read("/proc/sys/kernel/osrelease").unwrap_or_default(),
            cpu: cpus.as_deref().and_then(cpu_model),
            cpus: cpu::allowed().len(),
            memory_mib: memory.as_deref().and_then(memory_mib),
            disk: disk(dir, filesystem.as_ref()),
            filesystem,
            settings: SETTINGS
                .iter()
                .filter_map(|(name, path)| Some((*name, read(path)?)))
                .collect(),
        }
    }
}

/// Content of a small file, without the white space around it.
fn read(path: impl AsRef<Path>) -> Option<String> {
    fs::read_to_string(path)
        .ok()
        .map(|text| text.trim().to_owned())
}

fn git(arguments: &[&str]) -> Option<String> {
    let mut command = Command::new("git");
    command.args(["-C", env!("CARGO_MANIFEST_DIR")]);
    let output = command.args(arguments).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    output.status.success().then_some(text)
}

fn cpu_model(cpuinfo: &str) -> Option<String> {
    let line = cpuinfo.lines().find(|l| l.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn memory_mib(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find(|l| l.starts_with("MemTotal:"))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib / 1024)
}

/// The directory itself, or the nearest one above it that exists.
fn existing(dir: &Path) -> Option<PathBuf> {
    let absolute = std::path::absolute(dir).ok()?;
    let found = absolute.ancestors().find(|path| path.exists())?;
    fs::canonicalize(found).ok()
}

fn filesystem(dir: &Path) -> Option<Filesystem> {
    let table = fs::read_to_string("/proc/self/mountinfo").ok()?;
    mount_of(&table, &existing(dir)?)
}

/// The line of `mountinfo` that holds `path`: the longest mount point above it, and of equal ones the last, which
/// covers the others (proc_pid_mountinfo(5)).
fn mount_of(table: &str, path: &Path) -> Option<Filesystem> {
    let mut best: Option<Filesystem> = None;
    for line in table.lines() {
        let Some((mount, source)) = line.split_once(" - ") else {
            continue;
        };
        let mount: Vec<&str> = mount.split(' ').collect();
        let source: Vec<&str> = source.split(' ').collect();
        let (Some(point), Some(options)) = (mount.get(4), mount.get(5)) else {
            continue;
        };
        let [kind, device, of_super @ ..] = &source[..] else {
            continue;
        };
        let length = best.as_ref().map_or(0, |b| b.mount_point.len());
        if path.starts_with(point) && point.len() >= length {
            best = Some(Filesystem {
                kind: (*kind).to_owned(),
                mount_point: (*point).to_owned(),
                options: format!("{options};{}", of_super.join(" ")),
                source: (*device).to_owned(),
            });
        }
    }
    best
}

/// The device that a directory lies on. File systems with devices of their own (btrfs, overlay) are followed by the
/// source of their mount.
fn disk(dir: &Path, filesystem: Option<&Filesystem>) -> Option<Disk> {
    let of_dir = fs::metadata(existing(dir)?).ok()?.dev();
    let of_source = filesystem
        .and_then(|f| fs::metadata(&f.source).ok())
        .map(|source| source.rdev());
    [Some(of_dir), of_source]
        .into_iter()
        .flatten()
        .find_map(|device| {
            let link = format!("/sys/dev/block/{}:{}", major(device), minor(device));
            whole_disk(&fs::canonicalize(link).ok()?)
        })
}

/// From the directory of a device or of a partition of it in `/sys`.
fn whole_disk(device: &Path) -> Option<Disk> {
    let is_partition = device.join("partition").exists();
    let whole = if is_partition {
        device.parent()?
    } else {
        device
    };
    // Sizes are in units of 512 bytes, whatever the device's own are.
    let sectors: Option<u64> = read(whole.join("size")).and_then(|text| text.parse().ok());
    Some(Disk {
        name: whole.file_name()?.to_string_lossy().into_owned(),
        model: read(whole.join("device/model")),
        rotational: read(whole.join("queue/rotational")).map(|text| text == "1"),
        scheduler: read(whole.join("queue/scheduler")),
        write_cache: read(whole.join("queue/write_cache")),
        gb: sectors.map(|n| n as f64 * 512.0 / 1e9),
    })
}

#[cfg(test)]
mod tests {
    use super::{Environment, cpu_model, memory_mib, mount_of, whole_disk};
    use std::path::Path;

    const MOUNTS: &str = "\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,errors=remount-ro
30 22 0:26 / /data rw,noatime - tmpfs tmpfs rw,size=100k
31 22 259:1 / /data rw,noatime shared:7 master:2 - xfs /dev/nvme0n1p1 rw,attr2
";

    #[test]
    fn the_mount_of_a_path_is_the_nearest_and_the_topmost() {
        let data = mount_of(MOUNTS, Path::new("/data/logs")).unwrap();
        assert_eq!(
            (&data.kind[..], &data.source[..]),
            ("xfs", "/dev/nvme0n1p1")
        );
        assert_eq!(data.options, "rw,noatime;rw,attr2");
        // A name that only begins alike lies elsewhere.
        assert_eq!(
            mount_of(MOUNTS, Path::new("/database")).unwrap().kind,
            "ext4"
        );
        assert_eq!(mount_of("nonsense", Path::new("/")), None);
    }

    #[test]
    fn proc_is_understood() {
        let info = "processor\t: 0\nmodel name\t: A CPU @ 3 GHz\n";
        assert_eq!(cpu_model(info).unwrap(), "A CPU @ 3 GHz");
        assert_eq!(memory_mib("MemTotal:        2097152 kB\n"), Some(2_048));
        assert_eq!(memory_mib(""), None);
    }

    #[test]
    fn a_partition_is_described_by_its_disk() {
        let sys = tempfile::tempdir().unwrap();
        let partition = sys.path().join("sdx/sdx1");
        std::fs::create_dir_all(&partition).unwrap();
        std::fs::create_dir_all(sys.path().join("sdx/queue")).unwrap();
        std::fs::write(partition.join("partition"), "1\n").unwrap();
        std::fs::write(sys.path().join("sdx/queue/rotational"), "1\n").unwrap();
        std::fs::write(sys.path().join("sdx/size"), "2000\n").unwrap();
        let disk = whole_disk(&partition).unwrap();
        assert_eq!((&disk.name[..], disk.rotational), ("sdx", Some(true)));
        assert_eq!(disk.gb, Some(0.001_024));
        assert_eq!(disk.model, None);
    }

    #[test]
    fn this_machine_has_a_kernel_and_a_file_system() {
        let environment = Environment::of(Path::new("not/made/yet"));
        assert!(!environment.kernel.is_empty());
        assert!(environment.filesystem.is_some());
        assert!(environment.cpus >= 1);
    }
}
