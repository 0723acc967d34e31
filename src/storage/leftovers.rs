//! Files and folders that are to go and can not go yet: a system without a file handle, rights that were
//! taken. They are tried again until they are gone, ever later, as long as their disk works.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use thalweg_reactor::{failpoint, fs, task, time};
use thalweg_types::limits::{
    LEFTOVERS_AGAIN_AFTER_MS_MAX, LEFTOVERS_AGAIN_AFTER_MS_MIN, LEFTOVERS_WAITING_MAX,
};

use crate::health::DirHealth;

/// Something that is to go.
#[derive(Debug)]
pub(crate) enum Leftover {
    /// A file.
    File(PathBuf),
    /// A folder, with all that is in it.
    Folder(PathBuf),
}

impl Leftover {
    fn path(&self) -> &Path {
        match self {
            Leftover::File(path) | Leftover::Folder(path) => path,
        }
    }

    async fn remove(&self) -> io::Result<()> {
        let removed = match self {
            Leftover::File(path) => fs::unlink(path).await,
            Leftover::Folder(path) => fs::remove_dir_all(path).await,
        };
        match removed {
            // Its partition may be deleted meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }
}

/// What waits to be removed; the logs of one shard share it.
#[derive(Debug, Default)]
pub struct Leftovers {
    waiting: RefCell<VecDeque<(Leftover, Arc<DirHealth>)>>,
    is_working: Cell<bool>,
}

impl Leftovers {
    /// Removes them, one after the other; what can not be removed is tried again in the background.
    pub(crate) async fn remove(
        self: &Rc<Self>,
        leftovers: impl IntoIterator<Item = Leftover>,
        health: &Arc<DirHealth>,
    ) {
        for one in leftovers {
            match one.remove().await {
                Ok(()) => failpoint::pass("removal: file unlinked"),
                Err(error) => self.keep(one, health, &error),
            }
        }
    }

    /// How many wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.borrow().len()
    }

    fn keep(self: &Rc<Self>, one: Leftover, health: &Arc<DirHealth>, error: &io::Error) {
        let path = one.path().display();
        if self.waiting() >= LEFTOVERS_WAITING_MAX {
            tracing::warn!(%path, %error, "can not be removed now: removed at the next start");
            return;
        }
        let is_first = !self.is_working.replace(true);
        if is_first {
            tracing::warn!(%path, %error, "can not be removed now: tried again until it is gone");
        }
        let kept = (one, Arc::clone(health));
        self.waiting.borrow_mut().push_back(kept);
        if is_first {
            task::spawn(try_again(Rc::clone(self)));
        }
    }

    /// Tries each once; how many are gone.
    async fn try_each(&self) -> usize {
        let mut gone = 0;
        for _ in 0..self.waiting() {
            let next = self.waiting.borrow_mut().pop_front();
            let Some((one, health)) = next else { break };
            // What lies on a disk that failed is for the next start.
            if health.failure().is_some() || one.remove().await.is_ok() {
                gone += 1;
            } else {
                self.waiting.borrow_mut().push_back((one, health));
            }
        }
        gone
    }
}

async fn try_again(leftovers: Rc<Leftovers>) {
    let first = Duration::from_millis(LEFTOVERS_AGAIN_AFTER_MS_MIN);
    let most = Duration::from_millis(LEFTOVERS_AGAIN_AFTER_MS_MAX);
    let mut pause = first;
    while leftovers.waiting() > 0 {
        time::sleep(pause).await;
        pause = match leftovers.try_each().await {
            0 => (pause * 2).min(most),
            _some => first,
        };
    }
    leftovers.is_working.set(false);
    tracing::info!("everything that could not be removed before is removed");
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;
    use std::time::Duration;

    use thalweg_reactor::time;

    use super::{Leftover, Leftovers};
    use crate::health::DirHealth;
    use crate::whole_log_tests::on_plain_engine;

    #[test]
    fn st_21_what_can_not_be_removed_is_tried_again_until_it_is_gone() {
        on_plain_engine(|root| async move {
            let health = DirHealth::new(&root);
            let leftovers: Rc<Leftovers> = Rc::default();
            let (file, folder) = (root.join("file"), root.join("folder"));
            std::fs::write(&file, "x").expect("written");
            std::fs::create_dir(&folder).expect("made");
            // The wrong call for each fails for as long as they are what they are.
            let wrong = [
                Leftover::Folder(file.clone()),
                Leftover::File(folder.clone()),
                Leftover::File(root.join("none")),
            ];
            leftovers.remove(wrong, &health).await;
            assert_eq!(leftovers.waiting(), 2);
            std::fs::remove_file(&file).expect("removed");
            std::fs::create_dir_all(file.join("below")).expect("made");
            std::fs::remove_dir(&folder).expect("removed");
            std::fs::write(&folder, "x").expect("written");
            while leftovers.waiting() > 0 || leftovers.is_working.get() {
                time::sleep(Duration::from_millis(10)).await;
            }
            assert!(!file.exists() && !folder.exists());
        });
    }
}
