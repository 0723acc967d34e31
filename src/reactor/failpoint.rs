//! Places where a test can have the process end, wait or fail.
//!
//! Only builds with debug assertions have them; elsewhere [`reach`] is nothing. What happens where is
//! said in the environment of the process, `THALWEG_FAILPOINTS`, as `name=action` with `;` between:
//! `abort` ends the process at once, as a kill does; `hold:PATH` waits as long as a file is at
//! `PATH`, so only threads that may block reach such a place; `fail` makes the operation fail with
//! EIO, `fail:PATH` as long as a file is at `PATH`. `@N` behind the action means: only when the place is reached for the Nth time.

#[cfg(not(debug_assertions))]
use std::io;

/// A place with this name is reached.
///
/// # Errors
/// EIO, when a test wants the operation to fail.
#[cfg(not(debug_assertions))]
#[inline(always)]
pub fn reach(_name: &'static str) -> io::Result<()> {
    Ok(())
}

#[cfg(debug_assertions)]
pub use armed::{pass_at, reach};

/// Whatever waits for a disk reaches this place, of the disk that its file is on.
pub const DISK: &str = "disk";

/// Something at `path` reaches a place with this name, which is told from the same place elsewhere: a test names it
/// with a folder that `path` goes through, as in `disk stalled=hold:PATH`. Nothing can fail there.
#[cfg(not(debug_assertions))]
#[inline(always)]
pub fn pass_at(_name: &'static str, _path: &std::path::Path) {}

/// As [`reach`], where nothing can fail: a test may only want the process to end here.
#[cfg_attr(not(debug_assertions), inline(always))]
pub fn pass(name: &'static str) {
    let _ = reach(name);
}

#[cfg(debug_assertions)]
mod armed {
    use std::io;
    use std::path::{Path, PathBuf};
    use std::sync::LazyLock;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    /// How often a held place looks whether it may go on.
    const HOLD_LOOK: Duration = Duration::from_millis(2);

    static POINTS: LazyLock<Vec<Point>> = LazyLock::new(|| {
        let text = std::env::var("THALWEG_FAILPOINTS").unwrap_or_default();
        parse(&text).unwrap_or_else(|| {
            tracing::error!(text, "THALWEG_FAILPOINTS can not be read: none is armed");
            Vec::new()
        })
    });

    #[derive(Debug)]
    struct Point {
        name: String,
        action: Action,
        /// Only this time; every time without.
        only: Option<u64>,
        reached: AtomicU64,
    }

    #[derive(Debug, PartialEq, Eq)]
    enum Action {
        Abort,
        Hold(PathBuf),
        Fail,
        FailWith(PathBuf),
    }

    fn parse(text: &str) -> Option<Vec<Point>> {
        let parts = text.split(';').filter(|part| !part.is_empty());
        parts
            .map(|part| {
                let (name, action) = part.split_once('=')?;
                let (action, only) = match action.split_once('@') {
                    Some((action, only)) => (action, Some(only.parse().ok()?)),
                    None => (action, None),
                };
                let action = match action.split_once(':') {
                    Some(("hold", path)) => Action::Hold(PathBuf::from(path)),
                    Some(("fail", path)) => Action::FailWith(PathBuf::from(path)),
                    None if action == "abort" => Action::Abort,
                    None if action == "fail" => Action::Fail,
                    Some(_) | None => return None,
                };
                Some(Point {
                    name: name.to_owned(),
                    action,
                    only,
                    reached: AtomicU64::new(0),
                })
            })
            .collect()
    }

    /// See the release form.
    ///
    /// # Errors
    /// EIO, when a test wants the operation to fail.
    pub fn reach(name: &'static str) -> io::Result<()> {
        POINTS
            .iter()
            .filter(|point| point.name == name)
            .try_for_each(Point::reach)
    }

    /// See the release form.
    pub fn pass_at(name: &'static str, path: &Path) {
        for point in POINTS.iter() {
            let folder = point.name.strip_prefix(name);
            let folder = folder.and_then(|rest| rest.strip_prefix(' '));
            if folder.is_some_and(|folder| path.iter().any(|part| part == folder)) {
                let _ = point.reach();
            }
        }
    }

    impl Point {
        fn reach(&self) -> io::Result<()> {
            let count = self.reached.fetch_add(1, Ordering::Relaxed) + 1;
            if self.only.is_some_and(|only| only != count) {
                return Ok(());
            }
            match &self.action {
                Action::Abort => {
                    tracing::error!(
                        name = self.name,
                        "the process ends here, as a test wants it"
                    );
                    std::process::abort()
                }
                Action::Hold(path) => hold(path),
                Action::FailWith(path) if !path.exists() => {}
                Action::Fail | Action::FailWith(_) => {
                    return Err(io::Error::from_raw_os_error(libc::EIO));
                }
            }
            Ok(())
        }
    }

    fn hold(path: &Path) {
        while path.exists() {
            std::thread::sleep(HOLD_LOOK);
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn what_tests_say_is_understood() {
            let points =
                parse("roll: created=abort@2;ack flush=hold:/tmp/x;sync=fail@1;read=fail:/x")
                    .unwrap();
            let facts: Vec<_> = points
                .iter()
                .map(|p| (p.name.as_str(), &p.action, p.only))
                .collect();
            assert_eq!(
                facts,
                [
                    ("roll: created", &Action::Abort, Some(2)),
                    ("ack flush", &Action::Hold(PathBuf::from("/tmp/x")), None),
                    ("sync", &Action::Fail, Some(1)),
                    ("read", &Action::FailWith(PathBuf::from("/x")), None),
                ]
            );
            assert!(parse("").unwrap().is_empty());
            for bad in ["x", "x=", "x=abort@y", "x=hold", "x=go:1"] {
                assert!(parse(bad).is_none(), "{bad}");
            }
        }

        #[test]
        fn only_the_time_that_was_asked_for() {
            let point = parse("x=fail@2").unwrap().remove(0);
            let times: Vec<bool> = (0..3).map(|_| point.reach().is_err()).collect();
            assert_eq!(times, [false, true, false]);
        }
    }
}
