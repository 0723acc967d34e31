//! Which cores the process may use, and pinning threads to one of them.

use std::io;
use std::sync::OnceLock;

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

static ALLOWED: OnceLock<Vec<usize>> = OnceLock::new();

/// The cores that the process may use, ascending, as they were when this was first asked: pinned
/// threads and what they start do not narrow it. Never empty.
pub fn allowed() -> Vec<usize> {
    ALLOWED.get_or_init(ask_kernel).clone()
}

fn ask_kernel() -> Vec<usize> {
    // The main thread's mask, not the caller's: the caller may be pinned already.
    let set = match sched_getaffinity(Pid::this()) {
        Ok(set) => set,
        Err(error) => {
            tracing::warn!(%error, "cannot read the CPU affinity; assuming core 0 only");
            return vec![0];
        }
    };
    let cores: Vec<usize> = (0..CpuSet::count())
        .filter(|core| set.is_set(*core).unwrap_or(false))
        .collect();
    if cores.is_empty() { vec![0] } else { cores }
}

/// Pins the calling thread to `core`. Threads started from it afterwards inherit the pin.
///
/// # Errors
/// What `sched_setaffinity` says; `EINVAL` also where the cgroup does not grant that core.
pub fn pin(core: usize) -> io::Result<()> {
    set_affinity(&[core])
}

/// Lets the calling thread run on each core the process may use. Used by worker threads, which would
/// otherwise inherit the pin of the runtime that started them.
///
/// # Errors
/// What `sched_setaffinity` says.
pub fn unpin() -> io::Result<()> {
    set_affinity(&allowed())
}

/// Lets the calling thread run on `cores` only.
///
/// # Errors
/// As [`pin`].
pub fn restrict(cores: &[usize]) -> io::Result<()> {
    set_affinity(cores)
}

fn set_affinity(cores: &[usize]) -> io::Result<()> {
    let mut set = CpuSet::new();
    for core in cores {
        set.set(*core)?;
    }
    sched_setaffinity(Pid::from_raw(0), &set)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pinned_thread_does_not_narrow_what_the_process_may_use() {
        let all = allowed();
        let core = all[0];
        std::thread::spawn(move || {
            pin(core).unwrap();
            assert_eq!(allowed(), all);
            let mine = sched_getaffinity(Pid::from_raw(0)).unwrap();
            assert!(mine.is_set(core).unwrap());
            assert_eq!(
                (0..CpuSet::count())
                    .filter(|c| mine.is_set(*c).unwrap())
                    .count(),
                1
            );
            unpin().unwrap();
            let mine = sched_getaffinity(Pid::from_raw(0)).unwrap();
            assert!(all.iter().all(|c| mine.is_set(*c).unwrap()));
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_core_that_does_not_exist_is_an_error() {
        assert!(pin(CpuSet::count() - 1).is_err());
        assert!(pin(usize::MAX).is_err());
    }
}
