//! Getting a ring from the kernel, stepping down where it refuses: first fewer flags, then a smaller
//! ring, then none, with one reason that names what was refused.

use std::io;

use io_uring::{IoUring, opcode};

use crate::cores;
use crate::runtime::RuntimeOptions;

/// The smallest ring worth having; a kernel that refuses it gets the plain engine.
const ENTRIES_MIN: u32 = 64;
/// The kernel's own bound (`IORING_MAX_ENTRIES`).
const ENTRIES_MAX: u32 = 32_768;
/// How much smaller each next try is.
const ENTRIES_STEP: u32 = 4;

/// Setup flags, from most to least.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RingFlags {
    /// Linux 6.0.
    SingleIssuer,
    /// Linux 5.19.
    CoopTaskrun,
    /// Any.
    None,
}

impl RingFlags {
    pub(crate) fn name(self) -> &'static str {
        match self {
            RingFlags::SingleIssuer => "SINGLE_ISSUER|COOP_TASKRUN|TASKRUN_FLAG",
            RingFlags::CoopTaskrun => "COOP_TASKRUN|TASKRUN_FLAG",
            RingFlags::None => "no flags",
        }
    }

    fn fewer(self) -> Option<RingFlags> {
        match self {
            RingFlags::SingleIssuer => Some(RingFlags::CoopTaskrun),
            RingFlags::CoopTaskrun => Some(RingFlags::None),
            RingFlags::None => None,
        }
    }
}

/// One try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Attempt {
    pub(crate) entries: u32,
    pub(crate) flags: RingFlags,
}

/// Asks for a ring: the kernel, or a test in its place.
pub(crate) type RingSetup<'a> = &'a dyn Fn(Attempt) -> io::Result<IoUring>;

/// A ring, and why it is not the one first asked for.
pub(crate) struct Made {
    pub(crate) uring: IoUring,
    pub(crate) flags: RingFlags,
    pub(crate) reason: Option<String>,
}

/// Asks the kernel.
pub(crate) fn kernel_setup(attempt: Attempt) -> io::Result<IoUring> {
    let mut builder = IoUring::builder();
    match attempt.flags {
        RingFlags::SingleIssuer => {
            builder
                .setup_single_issuer()
                .setup_coop_taskrun()
                .setup_taskrun_flag();
        }
        RingFlags::CoopTaskrun => {
            builder.setup_coop_taskrun().setup_taskrun_flag();
        }
        RingFlags::None => {}
    }
    builder.dontfork().build(attempt.entries)
}

/// Gets the best ring that `setup` grants, or the reason why there is none.
pub(crate) fn set_up(entries: u32, setup: RingSetup<'_>) -> Result<Made, String> {
    let entries = entries.clamp(ENTRIES_MIN, ENTRIES_MAX).next_power_of_two();
    let mut attempt = Attempt {
        entries,
        flags: RingFlags::SingleIssuer,
    };
    let mut refused = Vec::new();
    loop {
        let error = match setup(attempt).and_then(check) {
            Ok(uring) => {
                let reason = (!refused.is_empty()).then(|| refused.join("; "));
                return Ok(Made {
                    uring,
                    flags: attempt.flags,
                    reason,
                });
            }
            Err(error) => error,
        };
        refused.push(format!(
            "io_uring with {} entries and {} refused: {error}",
            attempt.entries,
            attempt.flags.name(),
        ));
        match step_down(attempt, &error) {
            Some(next) => attempt = next,
            None => return Err(refused.join("; ")),
        }
    }
}

fn step_down(attempt: Attempt, error: &io::Error) -> Option<Attempt> {
    match error.raw_os_error() {
        Some(libc::EINVAL) => {
            let flags = attempt.flags.fewer()?;
            Some(Attempt { flags, ..attempt })
        }
        Some(libc::ENOMEM) => {
            let entries = attempt.entries / ENTRIES_STEP;
            (entries >= ENTRIES_MIN).then_some(Attempt { entries, ..attempt })
        }
        // EPERM, ENOSYS, EACCES, EMFILE: another shape of ring would be refused too.
        Some(_) | None => None,
    }
}

/// A ring that can be set up may still be of no use: an old kernel, or one whose filter lets
/// `io_uring_setup` pass and refuses `io_uring_enter`. One operation that does nothing tells.
fn check(mut uring: IoUring) -> io::Result<IoUring> {
    let params = uring.params();
    if !params.is_feature_nodrop() || !params.is_feature_rw_cur_pos() {
        return Err(io::Error::other("the kernel is older than 5.6"));
    }
    let nop = opcode::Nop::new().build();
    push_nop(&mut uring, &nop)?;
    while uring.completion().is_empty() {
        match uring.submit_and_wait(1) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => {
                let text = format!("io_uring_enter: {error}");
                return Err(io::Error::other(text));
            }
        }
    }
    uring.completion().for_each(drop);
    Ok(uring)
}

#[allow(unsafe_code)]
fn push_nop(uring: &mut IoUring, nop: &io_uring::squeue::Entry) -> io::Result<()> {
    // SAFETY: a NOP names no memory and no file.
    let pushed = unsafe { uring.submission().push(nop) };
    pushed.map_err(|_| io::Error::other("a fresh ring is full"))
}

/// Bounds the ring's kernel workers and says where they run. Kernels before 5.14 and 5.15 cannot;
/// then they run as they always did.
pub(crate) fn limit_workers(uring: &IoUring, options: &RuntimeOptions) {
    let submitter = uring.submitter();
    let mut workers = [options.io_workers, options.io_workers];
    if let Err(error) = submitter.register_iowq_max_workers(&mut workers) {
        tracing::info!(%error, "cannot bound the ring's workers");
    }
    let cores = match options.io_worker_cores.as_deref() {
        Some(cores) => cores.to_vec(),
        None => cores::allowed(),
    };
    if let Err(error) = submitter.register_iowq_aff(&cpu_set(&cores)) {
        tracing::info!(%error, ?cores, "cannot place the ring's workers");
    }
}

#[allow(unsafe_code)]
fn cpu_set(cores: &[usize]) -> libc::cpu_set_t {
    // SAFETY: a `cpu_set_t` is an array of integers, for which all zeros is a value (no cores).
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    for core in cores
        .iter()
        .copied()
        .filter(|core| *core < libc::CPU_SETSIZE as usize)
    {
        // SAFETY: `core` is below CPU_SETSIZE, the number of bits of the set.
        unsafe { libc::CPU_SET(core, &mut set) };
    }
    set
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    fn refuse(errno: i32) -> io::Result<IoUring> {
        Err(io::Error::from_raw_os_error(errno))
    }

    #[test]
    fn unknown_flags_are_left_away_one_set_at_a_time() {
        let tried = RefCell::new(Vec::new());
        let made = set_up(256, &|attempt| {
            tried.borrow_mut().push(attempt.flags);
            if attempt.flags == RingFlags::None {
                kernel_setup(attempt)
            } else {
                refuse(libc::EINVAL)
            }
        })
        .ok()
        .unwrap();
        assert_eq!(
            *tried.borrow(),
            [
                RingFlags::SingleIssuer,
                RingFlags::CoopTaskrun,
                RingFlags::None
            ]
        );
        assert_eq!(made.flags, RingFlags::None);
        assert_eq!(made.uring.params().sq_entries(), 256);
        assert!(made.reason.unwrap().contains("SINGLE_ISSUER"));
    }

    #[test]
    fn too_little_memory_makes_the_ring_smaller() {
        let made = set_up(1_024, &|attempt| {
            if attempt.entries > 64 {
                refuse(libc::ENOMEM)
            } else {
                kernel_setup(attempt)
            }
        })
        .ok()
        .unwrap();
        assert_eq!(made.uring.params().sq_entries(), 64);
        assert!(made.reason.unwrap().contains("1024 entries"));
    }

    #[test]
    fn a_plain_no_is_asked_once_and_gives_one_reason() {
        for errno in [libc::EPERM, libc::ENOSYS, libc::EACCES] {
            let asked = RefCell::new(0);
            let reason = set_up(1_024, &|_| {
                *asked.borrow_mut() += 1;
                refuse(errno)
            })
            .err()
            .unwrap();
            assert_eq!(*asked.borrow(), 1);
            assert!(reason.contains("1024 entries"), "{reason}");
        }
        let reason = set_up(64, &|_| refuse(libc::ENOMEM)).err().unwrap();
        assert!(reason.contains("64 entries"), "{reason}");
    }

    #[test]
    fn a_good_kernel_gives_the_first_try() {
        let made = set_up(1_024, &kernel_setup).ok().unwrap();
        assert_eq!((made.flags, made.reason), (RingFlags::SingleIssuer, None));
    }
}
