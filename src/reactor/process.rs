//! What belongs to the process as a whole: its limits and its signals.

use std::io;
use std::os::fd::AsRawFd;
use std::time::Duration;

use nix::sys::resource::{Resource, UsageWho, getrlimit, getrusage, setrlimit};
use nix::sys::time::TimeVal;
use tokio::signal::unix::{Signal as Stream, SignalKind, signal};

/// Raises the soft limit of open files to the hard one. Returns the limit that now holds.
///
/// # Errors
/// What `getrlimit` or `setrlimit` says; the old limit then still holds.
pub fn raise_open_files_limit() -> io::Result<u64> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    if soft < hard {
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
    }
    Ok(hard)
}

/// Lets every panic end the process, after its message: a broker that lost a task, or a core, must not
/// go on answering half of what it is asked (BI-28). Call it first of all, once.
pub fn abort_on_panic() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        report(info);
        std::process::abort();
    }));
}

/// The limit of open files that holds now.
///
/// # Errors
/// What `getrlimit` says.
pub fn open_files_limit() -> io::Result<u64> {
    Ok(getrlimit(Resource::RLIMIT_NOFILE)?.0)
}

/// CPU time that the calling thread has used, its own and the kernel's for it.
///
/// # Errors
/// What `getrusage` says.
pub fn thread_cpu() -> io::Result<Duration> {
    let used = getrusage(UsageWho::RUSAGE_THREAD)?;
    let of = |time: TimeVal| {
        let seconds = u64::try_from(time.tv_sec()).unwrap_or(0);
        let micros = u64::try_from(time.tv_usec()).unwrap_or(0);
        Duration::from_secs(seconds) + Duration::from_micros(micros)
    };
    Ok(of(used.user_time()) + of(used.system_time()))
}

/// Columns and lines of the terminal on stdout; `None` where there is none, or it does not say.
pub fn terminal_size() -> Option<(usize, usize)> {
    crate::sys::terminal_size(io::stdout().as_raw_fd())
}

/// 16 random bytes of the kernel, for an id that nobody can guess.
///
/// # Errors
/// The kernel has none, or refuses this process the call (a seccomp filter).
pub fn random_bytes() -> io::Result<[u8; 16]> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(bytes)
}

/// Keeps a static binary from loading the system's plugins for looking up names: they belong to another
/// build of the C library. Names then come from `/etc/hosts` and DNS. Does nothing in a dynamic binary.
///
/// Call it at the start of the process, before anything looks up a name.
pub fn look_names_up_without_plugins() {
    #[cfg(all(target_env = "gnu", target_feature = "crt-static"))]
    crate::sys::look_hosts_up_in_files_and_dns();
}

/// A request to end, by signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// SIGTERM.
    Terminate,
    /// SIGINT (Ctrl-C).
    Interrupt,
}

/// SIGTERM and SIGINT, caught from the moment of [`TerminateSignals::install`]; their default action
/// (the process's end) is off from then on, for good.
#[derive(Debug)]
pub struct TerminateSignals {
    terminate: Stream,
    interrupt: Stream,
}

impl TerminateSignals {
    /// Starts catching. Works inside [`crate::Runtime::block_on`] and inside a tokio runtime.
    ///
    /// # Errors
    /// What `sigaction` says.
    pub fn install() -> io::Result<TerminateSignals> {
        Ok(TerminateSignals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// The next of the two signals.
    pub async fn next(&mut self) -> Signal {
        std::future::poll_fn(|cx| {
            if self.terminate.poll_recv(cx).is_ready() {
                return std::task::Poll::Ready(Signal::Terminate);
            }
            self.interrupt.poll_recv(cx).map(|_| Signal::Interrupt)
        })
        .await
    }
}

/// Waits for SIGTERM or SIGINT. Signals are caught from the first poll on: install
/// [`TerminateSignals`] where one may come before.
///
/// # Errors
/// What `sigaction` says.
pub async fn terminate_signal() -> io::Result<Signal> {
    Ok(TerminateSignals::install()?.next().await)
}

#[cfg(test)]
mod tests {
    use nix::sys::signal::{self as send, raise};

    use super::*;
    use crate::{Runtime, RuntimeOptions};

    #[test]
    fn terminate_and_interrupt_are_told_apart() {
        let runtime = Runtime::new(RuntimeOptions::default()).unwrap();
        runtime.block_on(async {
            let mut signals = TerminateSignals::install().unwrap();
            raise(send::Signal::SIGTERM).unwrap();
            assert_eq!(signals.next().await, Signal::Terminate);
            raise(send::Signal::SIGINT).unwrap();
            assert_eq!(signals.next().await, Signal::Interrupt);
        });
    }

    #[test]
    fn the_limit_of_open_files_is_the_hard_one() {
        let limit = raise_open_files_limit().unwrap();
        assert_eq!(getrlimit(Resource::RLIMIT_NOFILE).unwrap(), (limit, limit));
    }
}
