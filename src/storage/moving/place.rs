//! How a copy takes the place of its log, so that a crash at any step leaves one of the two.
//!
//! 1. `thalweg-leaving` is written into the folder of the log, `thalweg-arriving` into that of the copy.
//! 2. The copy gets the log's name in its own log directory: it is moved.
//! 3. The folder of the log is removed, then `thalweg-arriving`.
//!
//! Nothing is appended between 1 and 2. Where a start finds both folders, the one that arrives is the log if the
//! other one leaves ([`rightful`]). A move that is taken back takes `thalweg-leaving` away first, durably, and so
//! does whoever opens a folder that leaves: from then on the other one has no claim, wherever it turns up.

use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use thalweg_reactor::{failpoint, fs};

use super::{FutureLog, MoveError, remove, remove_folder};
use crate::error::LogError;
use crate::log::Log;

/// In a folder that another one is about to replace.
pub(crate) const LEAVING: &str = "thalweg-leaving";
/// In a folder that came to replace another one.
const ARRIVING: &str = "thalweg-arriving";

/// Which of two folders of one partition has its log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rightful {
    /// The first of the two.
    First,
    /// The second.
    Second,
}

/// Which of two folders of one partition has its log, when a move ended in between. `None` when no move is
/// the reason why there are two.
///
/// # Errors
/// The system's.
pub async fn rightful(first: &Path, second: &Path) -> io::Result<Option<Rightful>> {
    let has = async |folder: &Path, name: &str| fs::exists(&folder.join(name)).await;
    let leaving = (has(first, LEAVING).await?, has(second, LEAVING).await?);
    let arriving = (has(first, ARRIVING).await?, has(second, ARRIVING).await?);
    Ok(match (leaving, arriving) {
        ((true, false), (_, true)) => Some(Rightful::Second),
        ((false, true), (true, _)) => Some(Rightful::First),
        // The move was taken back.
        ((false, false), (true, false)) => Some(Rightful::Second),
        ((false, false), (false, true)) => Some(Rightful::First),
        _undecided => None,
    })
}

/// Whether another folder was about to replace this one.
///
/// # Errors
/// The system's.
pub async fn is_leaving(folder: &Path) -> io::Result<bool> {
    fs::exists(&folder.join(LEAVING)).await
}

/// Whoever opens a folder that leaves stays: see above.
pub(crate) async fn stay(dir: &Path) -> Result<(), LogError> {
    remove(&dir.join(LEAVING)).await?;
    fs::sync_dir(dir).await.map_err(LogError::io("sync", dir))
}

impl FutureLog {
    /// Gives the complete copy the place of the log. Afterwards comes [`Log::open_moved`], and then
    /// [`FutureLog::arrive`] or [`FutureLog::take_back`].
    ///
    /// # Errors
    /// See [`MoveError`]; then comes [`FutureLog::take_back`].
    pub async fn take_place(&mut self, log: &Log) -> Result<(), MoveError> {
        let taken = self.try_take_place(log).await;
        self.judged(taken)
    }

    async fn try_take_place(&mut self, log: &Log) -> Result<(), MoveError> {
        // Of a move before this one.
        remove(&log.dir().join(ARRIVING)).await?;
        let to = self.place();
        for (folder, name, other) in [
            (log.dir(), LEAVING, self.dir.as_path()),
            (self.dir.as_path(), ARRIVING, log.dir()),
        ] {
            let path = folder.join(name);
            let text = Bytes::from(other.to_string_lossy().into_owned());
            fs::write_file_atomically(&path, text)
                .await
                .map_err(LogError::io("write", &path))?;
            failpoint::pass("move: marked");
        }
        fs::rename(&self.dir, &to)
            .await
            .map_err(LogError::io("rename", &self.dir))?;
        self.dir.clone_from(&to);
        failpoint::pass("move: renamed");
        let parent = self.health.path();
        let synced = fs::sync_dir(parent).await;
        if let Err(error) = &synced {
            self.health.judge_sync(parent, error);
        }
        synced.map_err(LogError::io("sync", parent))?;
        failpoint::pass("move: in place");
        Ok(())
    }

    fn place(&self) -> PathBuf {
        self.health.path().join(self.name.to_string())
    }

    /// The log stays where it is, for `error`. The copy, if the move can go on with it later; else its folder goes.
    /// Of one that was found to differ nothing stays, and of another not what its opening may have touched.
    pub async fn take_back(mut self, log: &Log, error: &MoveError) -> Option<FutureLog> {
        if let Err(error) = stay(log.dir()).await {
            // It is not known whether the next start finds this folder or the other one the log: nothing may
            // be acknowledged here.
            log.inner
                .judge(log.dir(), &io::Error::other(error.to_string()));
            log.inner.go_offline(&error.to_string());
            tracing::error!(partition = %log.name(), %error,
                "OFFLINE until the next start: a move ended half-way and can not be taken back");
            return None;
        }
        match self.step_back(error).await {
            Ok(()) if error.may_pass() => Some(self),
            Ok(()) => None,
            Err(error) => {
                tracing::warn!(path = %self.dir.display(), %error, "the next start removes it");
                None
            }
        }
    }

    async fn step_back(&mut self, error: &MoveError) -> Result<(), LogError> {
        // Under the name of the log it goes as a whole or not at all.
        if self.dir != self.future {
            fs::rename(&self.dir, &self.future)
                .await
                .map_err(LogError::io("rename", &self.dir))?;
            self.dir.clone_from(&self.future);
        }
        if !error.may_pass() {
            return remove_folder(&self.dir).await;
        }
        remove(&self.dir.join(ARRIVING)).await?;
        self.is_resumed = true;
        self.between = None;
        match error {
            MoveError::Differs { .. } => self.copied.clear(),
            MoveError::Log(_)
            | MoveError::Read(_)
            | MoveError::Unreadable { .. }
            | MoveError::Changed => {
                self.copied.pop_last();
            }
        }
        Ok(())
    }

    /// The log is served from its new place: the folder that it was in goes.
    ///
    /// # Errors
    /// [`LogError`]; the next start removes what is left of the old folder.
    pub async fn arrive(self, left: &Log) -> Result<(), LogError> {
        failpoint::pass("move: served");
        left.delete().await?;
        failpoint::pass("move: old gone");
        remove(&self.place().join(ARRIVING)).await
    }
}
