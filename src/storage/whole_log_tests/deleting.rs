//! What goes on in a log while it is deleted, when another log has got its name.

use std::cell::Cell;
use std::path::Path;
use std::rc::Rc;

use thalweg_reactor::disk::{Disk, Operation, Verdict};
use thalweg_reactor::{Runtime, task};
use thalweg_types::{LeaderEpoch, Offset};

use super::{TestLog, bytes_of, file, numbered, small_segments};
use crate::ReadError;

/// Turns for which the slow operation waits, and after which all else is done.
const SLOW: u32 = 2_000;

/// Is slow once: at the operation behind so many others.
#[derive(Default)]
struct SlowOnce(Cell<Option<u32>>);

impl Disk for SlowOnce {
    fn before(&self, _operation: &Operation<'_>) -> Verdict {
        Verdict::Goes
    }

    fn after(&self, _operation: &Operation<'_>, _bytes: usize) {}

    fn delay(&self) -> u32 {
        let left = self.0.get();
        self.0.set(left.and_then(|left| left.checked_sub(1)));
        match left {
            Some(0) => SLOW,
            Some(_) | None => 0,
        }
    }

    fn lifetime(&self) -> String {
        "test".to_owned()
    }
}

/// Lets a read of a cold segment be slow at its operation behind `fast` others, and meanwhile has the log deleted and
/// made again. False when the read has no such operation.
async fn deleted_under_a_read(disk: &SlowOnce, root: &Path, fast: u32) -> bool {
    let old = TestLog::create(root, small_segments()).await;
    old.fill(20).await;
    old.log.flush().await.expect("flushed");
    let first = Rc::clone(&old.log.inner.state.borrow().segments[0]);
    assert!(first.cool(), "all of it is on the disk");
    // It is read anew, and its indexes are made and written anew.
    std::fs::remove_file(file(root, 0, "index")).expect("removed");
    let was = std::fs::read(file(root, 0, "log")).expect("a file");
    disk.0.set(Some(fast));
    let reader = old.log.clone();
    let read = task::spawn(async move { reader.read_plan(Offset(0), Offset(60), 1_000).await });
    for _ in 0..SLOW / 2 {
        task::yield_now().await;
    }
    let is_slow = disk.0.take().is_none();
    old.log.delete().await.expect("deleted");
    let new = TestLog::create(root, small_segments()).await;
    for base in (0..30).step_by(3) {
        new.log.append(numbered(Offset(base), LeaderEpoch(1), 3));
        new.settle().await;
    }
    match read.await.expect("the runtime goes on") {
        Ok(plan) => {
            let bytes = bytes_of(&plan).await;
            assert!(was.starts_with(&bytes), "of another log, behind {fast}");
        }
        Err(ReadError::Closed) => assert!(is_slow),
        Err(error) => panic!("{error:?}, behind {fast}"),
    }
    let index = file(root, 0, "index");
    assert!(
        !index.exists(),
        "the other log has an index of the old one, behind {fast}"
    );
    new.log.delete().await.expect("deleted");
    is_slow
}

#[test]
fn st_15_a_read_in_a_log_that_is_deleted_finds_and_leaves_nothing_in_another_of_its_name() {
    let root = tempfile::tempdir().expect("a directory");
    let disk = Rc::new(SlowOnce::default());
    let runtime = Runtime::simulated(Rc::clone(&disk) as Rc<dyn Disk>).expect("a runtime");
    runtime.block_on(async {
        let mut fast = 0;
        while deleted_under_a_read(&disk, root.path(), fast).await {
            fast += 1;
        }
        assert!(fast > 5, "it reads a file and its indexes");
    });
}
