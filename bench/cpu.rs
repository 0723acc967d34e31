//! CPU time of a process and of the machine, memory of a process, and placement on CPUs, from `/proc`.

use std::fs;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::{Pid, SysconfVar, gettid, sysconf};

fn tick() -> Duration {
    let hz = sysconf(SysconfVar::CLK_TCK)
        .ok()
        .flatten()
        .unwrap_or(100)
        .max(1);
    Duration::from_nanos(1_000_000_000 / hz as u64)
}

fn ticks(n: u64) -> Duration {
    tick() * u32::try_from(n).unwrap_or(u32::MAX)
}

/// User plus system time of all threads of `pid` so far, its `io_uring` workers included. Steps of one
/// clock tick (10 ms).
///
/// # Errors
/// When the process is gone.
pub fn process_time(pid: u32) -> Result<Duration> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat"))
        .with_context(|| format!("process {pid} is gone"))?;
    Ok(time_in(&text))
}

/// As [`process_time`], of those of its threads whose names begin with `name`; one that ends takes its time with it.
///
/// # Errors
/// When the process is gone.
pub fn thread_time(pid: u32, name: &str) -> Result<Duration> {
    let threads = fs::read_dir(format!("/proc/{pid}/task"));
    let threads = threads.with_context(|| format!("process {pid} is gone"))?;
    let stats = threads.filter_map(|thread| {
        let path = thread.ok()?.path();
        let named = fs::read_to_string(path.join("comm")).ok()?;
        let stat = fs::read_to_string(path.join("stat")).ok()?;
        named.starts_with(name).then_some(stat)
    });
    Ok(stats.map(|stat| time_in(&stat)).sum())
}

/// User plus system time in the text of a `stat` file.
fn time_in(stat: &str) -> Duration {
    // The name in parentheses may hold spaces; the fields after it are numbered from 3 (state).
    let after = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let field = |n: usize| -> u64 {
        after
            .split_whitespace()
            .nth(n - 3)
            .and_then(|f| f.parse().ok())
            .unwrap_or(0)
    };
    ticks(field(14) + field(15))
}

/// Time that all CPUs of the machine were busy so far (neither idle nor waiting for a disk).
///
/// # Errors
/// When `/proc/stat` can not be read.
pub fn machine_busy() -> Result<Duration> {
    let text = fs::read_to_string("/proc/stat").context("cannot read /proc/stat")?;
    let line = text.lines().next().unwrap_or("");
    let fields: Vec<u64> = line
        .split_whitespace()
        .skip(1)
        .filter_map(|f| f.parse().ok())
        .collect();
    // user nice system idle iowait irq softirq steal; guest time is part of user.
    let busy = fields.iter().take(8).sum::<u64>()
        - fields.get(3).copied().unwrap_or(0)
        - fields.get(4).copied().unwrap_or(0);
    Ok(ticks(busy))
}

/// Resident set of `pid` in bytes.
///
/// # Errors
/// When the process is gone.
pub fn resident_bytes(pid: u32) -> Result<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status"))
        .with_context(|| format!("process {pid} is gone"))?;
    let line = text
        .lines()
        .find(|l| l.starts_with("VmRSS:"))
        .context("no VmRSS")?;
    let kib: u64 = line
        .split_whitespace()
        .nth(1)
        .and_then(|f| f.parse().ok())
        .unwrap_or(0);
    Ok(kib * 1024)
}

/// Confines this thread, and the threads and processes it starts from now on, to one CPU.
///
/// # Errors
/// When the CPU does not exist or may not be used.
pub fn confine_to(cpu: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu).with_context(|| format!("no CPU {cpu}"))?;
    sched_setaffinity(Pid::from_raw(0), &set).with_context(|| format!("cannot run on CPU {cpu}"))
}

/// Lets this thread run only while nobody else wants its CPU (`SCHED_IDLE`).
///
/// # Errors
/// When `chrt` (Debian: util-linux) is missing or refuses.
pub fn give_way() -> Result<()> {
    let thread = gettid().to_string();
    let status = Command::new("chrt")
        .args(["--idle", "--pid", "0", &thread])
        .status();
    let status = status.context("cannot run chrt: install util-linux")?;
    ensure!(status.success(), "chrt ended with {status}");
    Ok(())
}

/// CPUs this process may use.
#[must_use]
pub fn allowed() -> Vec<usize> {
    let set = nix::sched::sched_getaffinity(Pid::from_raw(0)).unwrap_or_default();
    (0..CpuSet::count())
        .filter(|&cpu| set.is_set(cpu).unwrap_or(false))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{machine_busy, process_time, resident_bytes, thread_time};

    #[test]
    fn proc_is_understood() {
        let pid = std::process::id();
        assert!(resident_bytes(pid).unwrap() > 100_000);
        let before = (process_time(pid).unwrap(), machine_busy().unwrap());
        let start = std::time::Instant::now();
        let mut x = 0u64;
        while start.elapsed().as_millis() < 60 {
            x = std::hint::black_box(x + 1);
        }
        assert!(process_time(pid).unwrap() > before.0);
        assert!(machine_busy().unwrap() > before.1);
        assert!(thread_time(pid, "").unwrap() >= before.0);
        assert_eq!(thread_time(pid, "nobody").unwrap().as_millis(), 0);
    }
}
