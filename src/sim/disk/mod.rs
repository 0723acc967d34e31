//! The disk: real files, and beside each what of it would outlive a loss of power.

mod faults;
mod node;

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use thalweg_reactor::disk::{Disk, Operation, Verdict};
use thalweg_reactor::fs::{File, OpenMode};

use crate::dice::Dice;
pub use faults::Faults;
pub(crate) use faults::undisturbed;
use node::{DirNode, FileNode, NameChange, Names, Node, NodeId};

/// The lock on a directory belongs to the process, not to what is stored.
const LOCK_FILE: &str = ".lock";
/// Operations that a failed run shows.
const TRACE_MAX: usize = 4_000;

/// A disk whose content is a real directory.
///
/// Order of calls: [`SimDisk::new`]; a runtime with it as its disk; [`SimDisk::arm`] and what the
/// runtime does; the runtime is dropped; [`SimDisk::lose_power`] or not; the next runtime.
pub struct SimDisk {
    state: RefCell<State>,
    /// Apart, so that how long things take does not depend on what they are.
    delays: RefCell<Dice>,
}

struct State {
    root: PathBuf,
    dice: Dice,
    nodes: BTreeMap<NodeId, Node>,
    root_node: NodeId,
    /// Of open files: by the inode of the real one.
    by_inode: HashMap<u64, NodeId>,
    next_node: u64,
    /// Of the system.
    starts: u64,
    faults: Faults,
    happened: Happened,
    crash_at: Option<u64>,
    trace: Vec<String>,
}

/// What a disk has done since it was armed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Happened {
    /// Operations asked for.
    pub operations: u64,
    /// Those that failed with EIO.
    pub io_errors: u64,
    /// Those that failed for lack of room.
    pub no_room: u64,
    /// Those that failed for lack of a file handle.
    pub no_handles: u64,
    /// Those of them that were to change something, or to make it durable: the directory can not be trusted any
    /// more (R1).
    pub changes_failed: u64,
    /// Writes of nothing but zeros, ahead of the batches of a log.
    pub zeros_ahead: u64,
    /// An fsync failed: what the page cache holds is not what the disk will ever hold.
    pub sync_failed: bool,
    /// The system stopped: nothing happened from then on.
    pub crashed: bool,
}

impl Happened {
    /// Something failed that may go well later.
    #[must_use]
    pub fn lacks(&self) -> bool {
        self.no_room + self.no_handles > 0
    }
}

impl SimDisk {
    /// A disk over the empty directory `root`.
    #[must_use]
    pub fn new(root: &Path, seed: u64) -> SimDisk {
        let root_node = NodeId(0);
        SimDisk {
            state: RefCell::new(State {
                root: root.to_owned(),
                dice: Dice::new(seed ^ 0xd15c),
                nodes: BTreeMap::from([(root_node, Node::Dir(DirNode::default()))]),
                root_node,
                by_inode: HashMap::new(),
                next_node: 1,
                starts: 1,
                faults: Faults::default(),
                happened: Happened::default(),
                crash_at: None,
                trace: Vec::new(),
            }),
            delays: RefCell::new(Dice::new(seed ^ 0x0de1)),
        }
    }

    /// From now on the disk behaves like this, and the system stops at the operation of this number,
    /// counted from now.
    pub fn arm(&self, faults: Faults, crash_at: Option<u64>) {
        let mut state = self.state.borrow_mut();
        state.faults = faults;
        state.crash_at = crash_at;
        state.happened = Happened::default();
    }

    /// Other faults from now on; gives those before.
    pub fn set_faults(&self, faults: Faults) -> Faults {
        std::mem::replace(&mut self.state.borrow_mut().faults, faults)
    }

    /// The system stops here, if it has not yet.
    pub fn crash(&self) {
        self.state.borrow_mut().happened.crashed = true;
    }

    /// The system stops no more by itself.
    pub fn disarm(&self) -> Option<u64> {
        self.state.borrow_mut().crash_at.take()
    }

    /// What it has done since it was armed.
    #[must_use]
    pub fn happened(&self) -> Happened {
        self.state.borrow().happened
    }

    /// The last operations, oldest first.
    #[must_use]
    pub fn trace(&self) -> Vec<String> {
        self.state.borrow().trace.clone()
    }

    /// Puts a line of the user's between the operations that are shown.
    pub fn note(&self, text: String) {
        self.state.borrow_mut().note(text);
    }

    /// Leaves of every file and directory what a power loss may leave. No runtime may be using it.
    ///
    /// # Panics
    /// When the real directory can not be changed, or is not what was done to it.
    pub fn lose_power(&self) {
        let mut state = self.state.borrow_mut();
        state.check_real(state.root_node, &state.root);
        state.note("power loss".to_owned());
        state.starts += 1;
        let mut old = std::mem::take(&mut state.nodes);
        state.by_inode.clear();
        let (root, root_node) = (state.root.clone(), state.root_node);
        state.survive(root_node, &root, &mut old);
    }
}

impl Disk for SimDisk {
    fn before(&self, operation: &Operation<'_>) -> Verdict {
        self.state.borrow_mut().before(operation)
    }

    fn after(&self, operation: &Operation<'_>, bytes: usize) {
        self.state.borrow_mut().after(operation, bytes);
    }

    fn delay(&self) -> u32 {
        let faults = self.state.borrow().faults;
        faults.delay(&mut self.delays.borrow_mut())
    }

    fn lifetime(&self) -> String {
        format!("{} starts", self.state.borrow().starts)
    }
}

impl State {
    fn note(&mut self, text: String) {
        if self.trace.len() >= TRACE_MAX {
            self.trace.drain(..TRACE_MAX / 4);
        }
        self.trace.push(text);
    }

    fn before(&mut self, operation: &Operation<'_>) -> Verdict {
        if self.happened.crashed {
            return Verdict::Fails(libc::EIO);
        }
        self.happened.operations += 1;
        let text = describe(&self.root, operation);
        if self.crash_at == Some(self.happened.operations) {
            self.note(format!("stopped at: {text}"));
            self.happened.crashed = true;
            return Verdict::Fails(libc::EIO);
        }
        let grows = self.grows(operation);
        let verdict = self.faults.judge(operation, grows, &mut self.dice);
        match verdict {
            Verdict::Fails(libc::EIO) => {
                self.happened.io_errors += 1;
                self.on_io_error(operation);
            }
            Verdict::Fails(libc::ENOSPC) => self.happened.no_room += 1,
            Verdict::Fails(libc::EMFILE) => self.happened.no_handles += 1,
            Verdict::Fails(_) | Verdict::Goes | Verdict::GoesUpTo(_) | Verdict::Counts => {}
        }
        if let Operation::Look(_) | Operation::Read(..) = operation {
            return verdict;
        }
        self.note(format!("{text} {verdict:?}"));
        verdict
    }

    fn on_io_error(&mut self, operation: &Operation<'_>) {
        match operation {
            Operation::Sync(file) => {
                self.happened.sync_failed = true;
                self.happened.changes_failed += 1;
                if let Some(file) = self.file_mut(file) {
                    file.forgotten = true;
                }
            }
            Operation::SyncDir(_) => {
                self.happened.sync_failed = true;
                self.happened.changes_failed += 1;
            }
            Operation::Write(..) | Operation::Truncate(..) | Operation::Rename(..) => {
                self.happened.changes_failed += 1;
            }
            Operation::Open(..)
            | Operation::Look(_)
            | Operation::Read(..)
            | Operation::Allocate(_)
            | Operation::CreateDir(_)
            | Operation::Unlink(_)
            | Operation::RemoveDirAll(_) => {}
        }
    }

    fn grows(&mut self, operation: &Operation<'_>) -> bool {
        match operation {
            Operation::Open(path, mode) => match mode {
                OpenMode::Read | OpenMode::ReadWrite => false,
                OpenMode::Create | OpenMode::CreateNew | OpenMode::CreateEmpty => {
                    self.find(path).is_none()
                }
            },
            Operation::Write(file, offset, slices) => {
                let end = usize_of(*offset) + slices.iter().map(|s| s.len()).sum::<usize>();
                self.file_mut(file).is_some_and(|file| end > file.now.len())
            }
            Operation::Truncate(file, length) => {
                let length = usize_of(*length);
                self.file_mut(file)
                    .is_some_and(|file| length > file.now.len())
            }
            Operation::Allocate(_) | Operation::CreateDir(_) => true,
            Operation::Look(_)
            | Operation::Read(..)
            | Operation::Sync(_)
            | Operation::SyncDir(_)
            | Operation::Rename(..)
            | Operation::Unlink(_)
            | Operation::RemoveDirAll(_) => false,
        }
    }

    fn after(&mut self, operation: &Operation<'_>, _bytes: usize) {
        match operation {
            Operation::Look(_) | Operation::Read(..) | Operation::Allocate(_) => {}
            Operation::Open(path, mode) => self.opened(path, *mode),
            Operation::Write(file, offset, slices) => {
                let bytes = slices.concat();
                let is_zeros = bytes.iter().all(|byte| *byte == 0);
                self.happened.zeros_ahead += u64::from(is_zeros && !bytes.is_empty());
                if let Some(file) = self.file_mut(file) {
                    file.write(usize_of(*offset), bytes);
                }
            }
            Operation::Truncate(file, length) => {
                if let Some(file) = self.file_mut(file) {
                    file.set_length(usize_of(*length));
                }
            }
            Operation::Sync(file) => {
                if let Some(file) = self.file_mut(file) {
                    file.sync();
                }
            }
            Operation::SyncDir(path) => {
                if let Some(dir) = self.dir_mut(path) {
                    dir.sync();
                }
            }
            Operation::CreateDir(path) => {
                if self.find(path).is_none() {
                    self.add(path, Node::Dir(DirNode::default()));
                }
            }
            Operation::Rename(from, to) => self.renamed(from, to),
            Operation::Unlink(path) => self.change_names(path, NameChange::Remove),
            Operation::RemoveDirAll(path) => self.removed_all(path),
        }
    }

    fn opened(&mut self, path: &Path, mode: OpenMode) {
        if !path.starts_with(&self.root) {
            return;
        }
        let id = match self.find(path) {
            Some(id) => id,
            None => self.add(path, Node::File(FileNode::default())),
        };
        if mode == OpenMode::CreateEmpty
            && let Some(Node::File(file)) = self.nodes.get_mut(&id)
            && !file.now.is_empty()
        {
            file.set_length(0);
        }
        let inode = fs::metadata(path).expect("opened just now").ino();
        self.by_inode.insert(inode, id);
    }

    fn renamed(&mut self, from: &Path, to: &Path) {
        assert_eq!(from.parent(), to.parent(), "names move within a directory");
        let to = name_of(to);
        self.change_names(from, |from| NameChange::Rename(from, to));
    }

    fn removed_all(&mut self, path: &Path) {
        if let Some(dir) = self.dir_mut(path) {
            let names: Vec<OsString> = dir.now.keys().cloned().collect();
            for name in names {
                dir.change(NameChange::Remove(name));
            }
        }
        self.change_names(path, NameChange::Remove);
    }

    fn add(&mut self, path: &Path, node: Node) -> NodeId {
        let id = NodeId(self.next_node);
        self.next_node += 1;
        self.nodes.insert(id, node);
        self.change_names(path, |name| NameChange::Set(name, id));
        id
    }

    fn change_names(&mut self, path: &Path, change: impl FnOnce(OsString) -> NameChange) {
        let parent = path.parent().expect("below the root");
        let dir = self.dir_mut(parent).expect("its directory is known");
        dir.change(change(name_of(path)));
    }

    fn find(&self, path: &Path) -> Option<NodeId> {
        let inside = path.strip_prefix(&self.root).ok()?;
        let mut at = self.root_node;
        for name in inside.iter() {
            let Some(Node::Dir(dir)) = self.nodes.get(&at) else {
                return None;
            };
            at = *dir.now.get(name)?;
        }
        Some(at)
    }

    fn dir_mut(&mut self, path: &Path) -> Option<&mut DirNode> {
        let id = self.find(path)?;
        match self.nodes.get_mut(&id)? {
            Node::Dir(dir) => Some(dir),
            Node::File(_) => None,
        }
    }

    fn file_mut(&mut self, file: &File) -> Option<&mut FileNode> {
        let inode = nix::sys::stat::fstat(file).expect("an open file").st_ino;
        let id = self.by_inode.get(&inode)?;
        match self.nodes.get_mut(id)? {
            Node::File(file) => Some(file),
            Node::Dir(_) => None,
        }
    }

    /// The real directory holds what was done to it: else the simulation is wrong.
    fn check_real(&self, id: NodeId, path: &Path) {
        match &self.nodes[&id] {
            Node::File(file) => {
                let real = fs::read(path).expect("a real file");
                assert!(real == file.now, "{} is not as written", path.display());
            }
            Node::Dir(dir) => {
                let real = real_names(path);
                let known: Vec<_> = dir.now.keys().cloned().collect();
                assert_eq!(real, known, "names in {}", path.display());
                for (name, id) in &dir.now {
                    self.check_real(*id, &path.join(name));
                }
            }
        }
    }

    /// Makes the real directory `path` what is left of node `id`, and everything below.
    fn survive(&mut self, id: NodeId, path: &Path, old: &mut BTreeMap<NodeId, Node>) {
        let Some(Node::Dir(dir)) = old.remove(&id) else {
            return;
        };
        for name in real_names(path) {
            remove(&path.join(name));
        }
        let mut names = Names::new();
        for (name, child) in dir.after_power_loss(&mut self.dice) {
            let child_path = path.join(&name);
            match old.get(&child) {
                Some(Node::File(file)) => {
                    let content = file.after_power_loss(&mut self.dice);
                    fs::write(&child_path, &content).expect("a real file");
                    let file = FileNode::on_disk(content);
                    self.nodes.insert(child, Node::File(file));
                }
                Some(Node::Dir(_)) => {
                    fs::create_dir(&child_path).expect("a real directory");
                    self.survive(child, &child_path, old);
                }
                None => continue,
            }
            names.insert(name, child);
        }
        self.nodes.insert(id, Node::Dir(DirNode::on_disk(names)));
    }
}

fn remove(path: &Path) {
    let removed = match path.is_dir() {
        true => fs::remove_dir_all(path),
        false => fs::remove_file(path),
    };
    removed.expect("a real file can be removed");
}

/// Sorted, without the lock.
fn real_names(path: &Path) -> Vec<OsString> {
    let entries = fs::read_dir(path).expect("a real directory");
    let names = entries.map(|entry| entry.expect("an entry").file_name());
    let mut names: Vec<_> = names.filter(|name| name != OsStr::new(LOCK_FILE)).collect();
    names.sort();
    names
}

fn name_of(path: &Path) -> OsString {
    path.file_name().expect("a name").to_owned()
}

fn usize_of(length: u64) -> usize {
    usize::try_from(length).expect("a small file")
}

fn describe(root: &Path, operation: &Operation<'_>) -> String {
    let short = |path: &Path| {
        let inside = path.strip_prefix(root).unwrap_or(path);
        inside.display().to_string()
    };
    match operation {
        Operation::Open(path, mode) => format!("open {} {mode:?}", short(path)),
        Operation::Look(path) => format!("look at {}", short(path)),
        Operation::Read(file, offset) => format!("read {} at {offset}", short(file.path())),
        Operation::Write(file, offset, slices) => {
            let bytes: usize = slices.iter().map(|slice| slice.len()).sum();
            format!("write {} at {offset}, {bytes} bytes", short(file.path()))
        }
        Operation::Truncate(file, length) => format!("cut {} to {length}", short(file.path())),
        Operation::Allocate(file) => format!("allocate {}", short(file.path())),
        Operation::Sync(file) => format!("sync {}", short(file.path())),
        Operation::SyncDir(path) => format!("sync directory {}", short(path)),
        Operation::CreateDir(path) => format!("make directory {}", short(path)),
        Operation::Rename(from, to) => format!("rename {} to {}", short(from), short(to)),
        Operation::Unlink(path) => format!("unlink {}", short(path)),
        Operation::RemoveDirAll(path) => format!("remove directory {}", short(path)),
    }
}
