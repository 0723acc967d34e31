//! Whether a log directory can be trusted, told by every log in it and read by all of them, on whatever
//! thread: one failed fsync or write condemns it until the process ends (R1), and no log in it is served
//! or acknowledges anything from then on (ST-18).

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::mem;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use thalweg_reactor::fs::{self, FileSystem};
use thalweg_reactor::task::Task;
use thalweg_reactor::time;
use thalweg_types::limits::{
    DISK_FULL_TOLD_EVERY_MS, DISK_LEFT_BEHIND_MS, DISK_LOOK_EVERY_MS, DISK_SILENT_MS,
};

use crate::allowance::Allowance;
use crate::error::{LogError, is_lack_of_room};
use crate::probe::Answered;
use crate::reserve;

/// What happens when a directory fails; gets its path and the reason.
type OnFailure = Box<dyn Fn(&Path, &str) + Send + Sync>;

/// The health of one log directory. Its logs share it.
#[derive(Default)]
pub struct DirHealth {
    path: PathBuf,
    failure: OnceLock<Arc<str>>,
    on_failure: OnceLock<OnFailure>,
    operations: Mutex<Operations>,
    full: AtomicBool,
    pub(crate) allowance: Allowance,
    free_bytes: AtomicU64,
    file_system: Option<FileSystem>,
    /// The room at the last look.
    usable: AtomicU64,
    headroom: AtomicU64,
    told: Mutex<Told>,
    pub(crate) answered: Answered,
}

/// What was said of a full disk, so that one at the edge fills no log.
#[derive(Default)]
struct Told {
    at: Option<Instant>,
    /// It was not said yet that there is room again.
    is_open: bool,
}

impl Told {
    /// Whether to say that the disk is full.
    fn begins(&mut self, now: Instant) -> bool {
        let apart = Duration::from_millis(DISK_FULL_TOLD_EVERY_MS);
        let is_soon = |at| now.saturating_duration_since(at) < apart;
        if self.is_open || self.at.is_some_and(is_soon) {
            return false;
        }
        *self = Told {
            at: Some(now),
            is_open: true,
        };
        true
    }

    /// Whether to say that it has room again.
    fn ends(&mut self) -> bool {
        mem::take(&mut self.is_open)
    }
}

/// How much room the disk of a log directory has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Room {
    /// Bytes of the file system.
    pub total: u64,
    /// Bytes that may still be written.
    pub usable: u64,
    /// Bytes that are to stay free; 0 when there is no such wish.
    pub headroom: u64,
}

impl Room {
    /// Bytes that clients may write before the next look.
    fn allowance(self) -> u64 {
        match self.headroom {
            0 => u64::MAX,
            headroom => self.usable.saturating_sub(headroom),
        }
    }

    /// Whether appends are refused, if they were before or not: what leaves the state must lie a quarter
    /// above what enters it, so that a disk at the edge does not flap.
    fn is_short(self, before: bool) -> bool {
        let leave = self.headroom.saturating_add(self.headroom / 4);
        match before {
            true => self.usable < leave,
            false => self.usable < self.headroom,
        }
    }
}

#[derive(Default)]
struct Operations {
    next: u64,
    /// By number, which is the order of their begin.
    in_flight: BTreeMap<u64, (Instant, &'static str)>,
}

/// An operation that the disk has not answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OldestOperation {
    /// What it is, for example `fdatasync`.
    pub operation: &'static str,
    /// How long it has been under way.
    pub age: Duration,
}

impl Operations {
    /// Its number.
    fn begin(&mut self, operation: &'static str) -> u64 {
        let number = self.next;
        self.next += 1;
        self.in_flight.insert(number, (Instant::now(), operation));
        number
    }
}

/// Ends with the operation.
pub(crate) struct InFlight<H: Deref<Target = DirHealth>> {
    health: H,
    number: u64,
}

impl DirHealth {
    /// Of a directory in which nothing has failed.
    #[must_use]
    pub fn new(path: &Path) -> Arc<DirHealth> {
        Arc::new(DirHealth {
            path: path.to_owned(),
            ..DirHealth::default()
        })
    }

    /// Of a directory that is there, in which nothing has failed. What fails from now on, on its way to the
    /// disk, is told by [`DirHealth::sync_file_system`].
    ///
    /// # Errors
    /// It can not be opened.
    pub(crate) fn watching(path: &Path) -> io::Result<Arc<DirHealth>> {
        Ok(Arc::new(DirHealth {
            path: path.to_owned(),
            file_system: Some(FileSystem::open(path)?),
            ..DirHealth::default()
        }))
    }

    /// Makes everything durable that was written to the file system of `parent`, which is the directory.
    ///
    /// # Errors
    /// As [`FileSystem::sync`].
    pub(crate) async fn sync_file_system(&self, parent: &Path) -> io::Result<()> {
        match &self.file_system {
            Some(kept) => kept.sync().await,
            // Logs of no [`crate::LogDir`].
            None => FileSystem::open(parent)?.sync().await,
        }
    }

    /// Lets `tell` say so, in place of a line in the log, when the directory fails, on the thread that
    /// found out. Only the first call counts.
    pub fn on_failure(&self, tell: impl Fn(&Path, &str) + Send + Sync + 'static) {
        let _ = self.on_failure.set(Box::new(tell));
    }

    /// Why nothing of the directory is served; `None` while it works.
    #[must_use]
    pub fn failure(&self) -> Option<&Arc<str>> {
        self.failure.get()
    }

    /// Takes the directory out of service. Only the first reason counts.
    pub fn fail(&self, reason: &str) {
        if self.failure.set(reason.into()).is_err() {
            return;
        }
        match self.on_failure.get() {
            Some(tell) => tell(&self.path, reason),
            None => tracing::error!(dir = %self.path.display(), reason,
                "the log directory is offline: look at its disk, then start the broker again"),
        }
    }

    /// Fails the directory if an operation that was to change something on its disk ended with an error
    /// that says so. `path` is where it was tried.
    pub fn judge(&self, path: &Path, error: &io::Error) {
        if condemns(error) {
            self.fail(&reason(path, error));
        }
    }

    /// As [`DirHealth::judge`], of an fsync: there a lack of room is no refusal but a loss of what was
    /// written before. A lack of handles came before the fsync.
    pub fn judge_sync(&self, path: &Path, error: &io::Error) {
        let lost = [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded];
        match lost.contains(&error.kind()) {
            true => self.fail(&reason(path, error)),
            false => self.judge(path, error),
        }
    }

    /// As [`DirHealth::judge`] or [`DirHealth::judge_sync`], by the name of the operation. One that only
    /// looks says nothing of what was written.
    pub(crate) fn judge_operation(&self, operation: &str, path: &Path, error: &io::Error) {
        match operation {
            "fdatasync" | "fsync" | "sync" => self.judge_sync(path, error),
            "open" | "read" | "stat" | "list" | "look for" => {}
            _changes => self.judge(path, error),
        }
    }

    /// Fails the directory if a log in it could not be opened for what says that of the disk.
    pub fn judge_opening(&self, error: &LogError) {
        if let LogError::Io {
            operation,
            path,
            source,
        } = error
        {
            self.judge_operation(operation, path, source);
        }
    }

    /// The directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// True while its disk has less room than its headroom: produce is refused, so that everything that
    /// helps to make room has some.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.full.load(Ordering::Relaxed)
    }

    /// Takes room for bytes of a client. False, and the disk counts as full until a look finds room, when there
    /// is not so much above the headroom.
    pub fn take_room(&self, bytes: usize) -> bool {
        if self.is_full() {
            return false;
        }
        let fits = self.allowance.take(bytes as u64);
        if !fits && !self.full.swap(true, Ordering::Relaxed) {
            self.tell_full("what came in since the last look reaches the headroom");
        }
        fits
    }

    /// Says that produce is refused, with the numbers of the last look, unless that was said just now.
    fn tell_full(&self, cause: &str) {
        if !self.told().begins(Instant::now()) {
            return;
        }
        let headroom = self.headroom.load(Ordering::Relaxed);
        let usable = self.usable.load(Ordering::Relaxed);
        tracing::error!(dir = %self.path.display(), usable, headroom,
            "the disk is nearly full: {cause}; produce is refused with KAFKA_STORAGE_ERROR until {} bytes are \
             free; delete topics or lower retention.bytes or retention.ms (`thalweg topic delete`, \
             `thalweg topic alter`), or enlarge the disk",
            headroom.saturating_add(headroom / 4));
    }

    fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes that may be written beyond the headroom, as they were at the last look; 0 before it.
    #[must_use]
    pub fn free_bytes(&self) -> u64 {
        self.free_bytes.load(Ordering::Relaxed)
    }

    /// Takes note of the room on its disk, and says when that begins or ends to be too little. The reserve
    /// goes when there is hardly any, and is kept again when there is enough.
    pub async fn on_room(&self, room: Room) {
        let before = self.is_full();
        let short = room.is_short(before);
        self.full.store(short, Ordering::Relaxed);
        self.allowance.on_look(room.allowance());
        let free = room.usable.saturating_sub(room.headroom);
        self.free_bytes.store(free, Ordering::Relaxed);
        let dir = self.path.display();
        let Room {
            usable, headroom, ..
        } = room;
        self.usable.store(usable, Ordering::Relaxed);
        self.headroom.store(headroom, Ordering::Relaxed);
        // One that was full for a moment only, between two looks, is said once.
        if short {
            self.tell_full("the headroom is reached");
        } else if self.told().ends() {
            tracing::info!(%dir, usable, headroom, "the disk has room again: produce is taken");
        }
        let reserve = reserve::bytes(room.total);
        let kept = match usable < reserve {
            true => self.release_reserve().await,
            false if !short && usable >= reserve.saturating_mul(4) => {
                reserve::keep(&self.path, reserve).await
            }
            false => Ok(()),
        };
        if let Err(error) = kept {
            tracing::debug!(%dir, %error, "the reserve stays as it is");
        }
    }

    async fn release_reserve(&self) -> io::Result<()> {
        if reserve::release(&self.path).await? {
            tracing::warn!(dir = %self.path.display(),
                "the disk is full: the reserve is given back, so that topics can be deleted");
        }
        Ok(())
    }

    /// The room of its file system.
    ///
    /// # Errors
    /// The kernel's.
    pub async fn space(&self) -> io::Result<fs::Space> {
        let _in_flight = self.begin("statvfs");
        fs::space(&self.path).await
    }

    /// True when the disk has not answered an operation for [`DISK_SILENT_MS`].
    #[must_use]
    pub fn is_silent(&self) -> bool {
        let oldest = self.oldest_operation();
        oldest.is_some_and(|oldest| oldest.age >= Duration::from_millis(DISK_SILENT_MS))
    }

    /// True when the disk has not answered an operation for [`DISK_LEFT_BEHIND_MS`]: a stop goes on without it.
    #[must_use]
    pub fn is_stalled(&self) -> bool {
        let oldest = self.oldest_operation();
        oldest.is_some_and(|oldest| oldest.age >= Duration::from_millis(DISK_LEFT_BEHIND_MS))
    }

    /// Waits for `work`, which needs the disk. `None` when the disk does not answer; the work goes on then.
    pub async fn unless_stalled<T>(&self, mut work: Task<T>) -> Option<T> {
        let look = Duration::from_millis(DISK_LOOK_EVERY_MS);
        loop {
            match time::timeout(look, &mut work).await {
                Ok(done) => return done,
                Err(_) if self.is_stalled() => return None,
                Err(_) => {}
            }
        }
    }

    /// Notes that an operation begins.
    pub(crate) fn begin(&self, operation: &'static str) -> InFlight<&DirHealth> {
        let number = self.operations().begin(operation);
        InFlight {
            health: self,
            number,
        }
    }

    /// As [`DirHealth::begin`], of one on another thread.
    pub(crate) fn begin_apart(
        health: &Arc<DirHealth>,
        operation: &'static str,
    ) -> InFlight<Arc<DirHealth>> {
        let number = health.operations().begin(operation);
        InFlight {
            health: Arc::clone(health),
            number,
        }
    }

    /// The operation that has been under way for longest.
    #[must_use]
    pub fn oldest_operation(&self) -> Option<OldestOperation> {
        let operations = self.operations();
        let (began, operation) = *operations.in_flight.values().next()?;
        Some(OldestOperation {
            operation,
            age: began.elapsed(),
        })
    }

    fn operations(&self) -> MutexGuard<'_, Operations> {
        self.operations
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl<H: Deref<Target = DirHealth>> Drop for InFlight<H> {
    fn drop(&mut self) {
        self.health.operations().in_flight.remove(&self.number);
    }
}

impl fmt::Debug for DirHealth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DirHealth")
            .field("path", &self.path)
            .field("failure", &self.failure)
            .finish_non_exhaustive()
    }
}

/// True for errors of writes, renames and the like that say something about the disk and not about one
/// name, about rights, or about a lack that passes (ST-20, ST-21).
fn condemns(error: &io::Error) -> bool {
    let of_one_name = matches!(
        error.kind(),
        io::ErrorKind::NotFound
            | io::ErrorKind::NotADirectory
            | io::ErrorKind::IsADirectory
            | io::ErrorKind::AlreadyExists
            | io::ErrorKind::DirectoryNotEmpty
            | io::ErrorKind::PermissionDenied
            | io::ErrorKind::InvalidInput
            | io::ErrorKind::InvalidFilename
            | io::ErrorKind::OutOfMemory
    );
    !of_one_name && !is_lack_of_room(error)
}

/// The error with the file that it is about, which most name themselves.
fn reason(path: &Path, error: &io::Error) -> String {
    let (path, error) = (path.display().to_string(), error.to_string());
    match error.contains(&path) {
        true => error,
        false => format!("{path}: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::path::Path;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use std::time::{Duration, Instant};

    use thalweg_types::limits::{DISK_FULL_TOLD_EVERY_MS, DISK_LOOK_EVERY_MS};

    use super::{DirHealth, Told};

    #[test]
    fn st_18_the_first_failure_is_told_once_and_stays() {
        let told = Arc::new(AtomicUsize::new(0));
        let health = DirHealth::new(Path::new("/d"));
        let count = Arc::clone(&told);
        health.on_failure(move |path, reason| {
            assert_eq!((path, reason), (Path::new("/d"), "first"));
            count.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(health.failure(), None);
        health.fail("first");
        health.fail("second");
        assert_eq!(health.failure().map(|reason| &**reason), Some("first"));
        assert_eq!(told.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_disk_at_the_edge_is_told_four_times_a_minute() {
        let mut told = Told::default();
        let begin = Instant::now();
        let mut lines = 0;
        for look in 0..4 * DISK_FULL_TOLD_EVERY_MS / DISK_LOOK_EVERY_MS {
            let now = begin + Duration::from_millis(look * DISK_LOOK_EVERY_MS);
            lines += u32::from(told.begins(now));
            assert!(!told.begins(now), "it is said already");
            told.ends();
        }
        assert_eq!(lines, 4);
        assert!(!told.ends());
    }

    #[test]
    fn st_21_lacks_and_single_names_condemn_no_disk() {
        const PASSING: [i32; 8] = [
            libc_number::ENOSPC,
            libc_number::EDQUOT,
            libc_number::EMFILE,
            libc_number::ENFILE,
            libc_number::ENOMEM,
            libc_number::ENOENT,
            libc_number::EACCES,
            libc_number::EEXIST,
        ];
        for errno in PASSING {
            let health = DirHealth::default();
            health.judge(Path::new("/d/f"), &io::Error::from_raw_os_error(errno));
            assert_eq!(health.failure(), None, "{errno}");
        }
        let full = io::Error::from_raw_os_error(libc_number::ENOSPC);
        let health = DirHealth::default();
        health.judge_sync(
            Path::new("/d/f"),
            &io::Error::from_raw_os_error(libc_number::EMFILE),
        );
        assert_eq!(health.failure(), None);
        health.judge_sync(Path::new("/d/f"), &full);
        assert!(
            health.failure().is_some(),
            "what it was to write is lost (R1)"
        );
        for errno in [libc_number::EIO, libc_number::EROFS, libc_number::ENXIO] {
            let health = DirHealth::default();
            health.judge(Path::new("/d/f"), &io::Error::from_raw_os_error(errno));
            assert!(health.failure().is_some(), "{errno}");
        }
    }

    /// Of Linux, on every architecture that this runs on.
    mod libc_number {
        pub const ENOENT: i32 = 2;
        pub const EIO: i32 = 5;
        pub const ENXIO: i32 = 6;
        pub const ENOMEM: i32 = 12;
        pub const EACCES: i32 = 13;
        pub const EEXIST: i32 = 17;
        pub const ENFILE: i32 = 23;
        pub const EMFILE: i32 = 24;
        pub const ENOSPC: i32 = 28;
        pub const EROFS: i32 = 30;
        pub const EDQUOT: i32 = 122;
    }

    #[test]
    fn st_20_a_disk_at_the_edge_does_not_flap() {
        let short = |usable, before| {
            let total = 10_000;
            let headroom = 1_000;
            super::Room {
                total,
                usable,
                headroom,
            }
            .is_short(before)
        };
        assert!(!short(1_000, false) && short(999, false));
        assert!(short(1_249, true) && !short(1_250, true));
        let off = super::Room {
            total: 10,
            usable: 0,
            headroom: 0,
        };
        assert!(!off.is_short(false) && !off.is_short(true));
    }

    #[test]
    fn st_23_the_oldest_operation_is_the_one_that_began_first() {
        let health = DirHealth::default();
        assert_eq!(health.oldest_operation(), None);
        let first = health.begin("fdatasync");
        let second = health.begin("write");
        let name = || health.oldest_operation().map(|oldest| oldest.operation);
        assert_eq!(name(), Some("fdatasync"));
        drop(first);
        assert_eq!(name(), Some("write"));
        drop(second);
        assert_eq!(name(), None);
    }
}
