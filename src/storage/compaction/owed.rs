//! What a swap still has to do on a disk that had no room for it.
//!
//! A copy-on-write file system without a byte left may have room neither for another name nor for a removal. Before the
//! point of no return of a swap nothing has happened then, and what has its name in `.swap` is to be taken away again. After it
//! the swap goes on when there is room: its new segments are served meanwhile by the files that they have open, of which
//! `.swap` is the name, and a start finds what it finds after a crash.
//!
//! Whoever changes files of closed segments has what is owed done first, and leaves them alone as long as it can not be:
//! the next round, retention, a move to another directory, a close.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use thalweg_reactor::{failpoint, fs};
use thalweg_types::Offset;

use super::swap::{settle_names, unless_missing};
use crate::error::{LogError, is_lack_of_room};
use crate::handles;
use crate::listing::list;
use crate::log::Log;
use crate::name::CleanStep;
use crate::removal::{files_of, rename_or_remove};
use crate::segment::Segment;

/// What is to be done before files of closed segments may change.
#[derive(Default)]
pub(crate) enum Owed {
    #[default]
    Nothing,
    /// New segments, by base offset, that do not take the place of others after all.
    Back(Vec<Offset>),
    Forth(Forth),
}

/// The rest of a swap behind its point of no return.
pub(crate) struct Forth {
    /// Segments whose files are to go.
    olds: VecDeque<Offset>,
    /// Then these get their names, in this order.
    news: VecDeque<Rc<Segment>>,
    /// What is unlinked after `delay`.
    aside: Vec<PathBuf>,
    delay: Duration,
}

impl Forth {
    pub(super) fn new(olds: Vec<Offset>, news: Vec<Rc<Segment>>, delay: Duration) -> Forth {
        Forth {
            aside: Vec::with_capacity(4 * olds.len()),
            olds: olds.into(),
            news: news.into(),
            delay,
        }
    }
}

impl Log {
    /// Does what the last swap owes. Needs both turns.
    ///
    /// # Errors
    /// [`LogError::Io`]: where the log is still open, there is no room for it yet, and it is as it was.
    pub(crate) async fn settle_swap(&self) -> Result<(), LogError> {
        let mut owed = std::mem::take(&mut self.inner.state.borrow_mut().owed);
        let settled = match &mut owed {
            Owed::Nothing => return Ok(()),
            Owed::Back(bases) => self.take_back(bases).await,
            Owed::Forth(rest) => self.go_on(rest).await,
        };
        if settled.is_err() {
            self.inner.state.borrow_mut().owed = owed;
        }
        settled
    }

    pub(super) async fn owe(&self, owed: Owed) -> Result<(), LogError> {
        self.inner.state.borrow_mut().owed = owed;
        self.settle_swap().await
    }

    /// Nothing is left of earlier rounds. As long as there is a `.cleaned`, a start takes every `.swap` behind it for a part
    /// that was not finished, and the old segments may be gone by then.
    pub(super) async fn clear_away(&self) -> Result<(), LogError> {
        self.check_open()?;
        let owes = !matches!(self.inner.state.borrow().owed, Owed::Nothing);
        let dir = &self.inner.dir;
        if !owes && list(dir).await?.left_by_compaction().is_empty() {
            return Ok(());
        }
        let _turns = self.both_turns().await;
        self.check_open()?;
        self.settle_swap().await?;
        for name in list(dir).await?.left_by_compaction() {
            let path = dir.join(name);
            let gone = unless_missing(fs::unlink(&path).await);
            self.inner
                .judged(gone.map_err(LogError::io("remove", &path)))?;
        }
        Ok(())
    }

    /// There was no room for all the new names: nothing has happened. What has one goes before those that
    /// have none, so that no start takes it for a swap.
    async fn take_back(&self, bases: &[Offset]) -> Result<(), LogError> {
        let dir = &self.inner.dir;
        for base in bases {
            for path in files_of(dir, *base) {
                let swap = CleanStep::Swap.of(&path);
                self.changed("remove", &swap, unless_missing(fs::unlink(&swap).await))?;
            }
        }
        self.or_offline("sync", dir, handles::sync_dir(dir).await)
    }

    async fn go_on(&self, rest: &mut Forth) -> Result<(), LogError> {
        let done = self.set_aside(rest).await;
        self.unlink_later(std::mem::take(&mut rest.aside), rest.delay);
        done?;
        while let Some(new) = rest.news.front() {
            match settle_names(&self.inner.dir, new.base).await {
                Err(LogError::Io {
                    operation,
                    path,
                    source,
                }) => self.changed(operation, &path, Err(source))?,
                other => other?,
            }
            new.on_named();
            self.inner.state.borrow().options.cache.add(new);
            rest.news.pop_front();
        }
        Ok(())
    }

    async fn set_aside(&self, rest: &mut Forth) -> Result<(), LogError> {
        while let Some(old) = rest.olds.front() {
            for path in files_of(&self.inner.dir, *old) {
                let done = rename_or_remove(&path, &mut rest.aside).await;
                self.changed("take away", &path, done)?;
            }
            rest.olds.pop_front();
            if rest.olds.is_empty() {
                failpoint::pass("compaction: old files aside");
            }
        }
        Ok(())
    }

    /// As [`Log::or_offline`], of a change that has not happened where there was no room for it.
    pub(super) fn changed(
        &self,
        operation: &'static str,
        path: &Path,
        result: io::Result<()>,
    ) -> Result<(), LogError> {
        match result {
            // What was not synced for lack of room is lost (R1).
            Err(error) if operation != "sync" && is_lack_of_room(&error) => {
                Err(LogError::io(operation, path)(error))
            }
            result => self.or_offline(operation, path, result),
        }
    }
}
