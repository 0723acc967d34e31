//! One file or directory as the page cache has it and as the disk has it.

use std::collections::BTreeMap;
use std::ffi::OsString;

use crate::dice::Dice;

/// What a disk writes whole or not at all, in bytes.
const SECTOR: usize = 512;

/// Names a node for the life of a simulated disk.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct NodeId(pub(super) u64);

pub(super) type Names = BTreeMap<OsString, NodeId>;

pub(super) enum Node {
    File(FileNode),
    Dir(DirNode),
}

/// Content in the page cache, content on the disk, and what leads from one to the other.
#[derive(Default)]
pub(super) struct FileNode {
    pub(super) now: Vec<u8>,
    pub(super) disk: Vec<u8>,
    since: Vec<Change>,
    /// An fsync failed: the kernel has forgotten what it could not write, and a later fsync that
    /// succeeds says nothing of it.
    pub(super) forgotten: bool,
}

enum Change {
    Write(usize, Vec<u8>),
    Length(usize),
}

impl FileNode {
    /// A file that is on the disk as it is.
    pub(super) fn on_disk(content: Vec<u8>) -> FileNode {
        FileNode {
            now: content.clone(),
            disk: content,
            ..FileNode::default()
        }
    }

    pub(super) fn write(&mut self, at: usize, bytes: Vec<u8>) {
        self.change(Change::Write(at, bytes));
    }

    pub(super) fn set_length(&mut self, length: usize) {
        self.change(Change::Length(length));
    }

    fn change(&mut self, change: Change) {
        change.apply(&mut self.now);
        self.since.push(change);
    }

    pub(super) fn sync(&mut self) {
        if !self.forgotten {
            self.disk.clone_from(&self.now);
            self.since.clear();
        }
    }

    /// What a power loss may leave of it.
    pub(super) fn after_power_loss(&self, dice: &mut Dice) -> Vec<u8> {
        if self.since.is_empty() {
            return self.disk.clone();
        }
        match dice.below(6) {
            0 => self.disk.clone(),
            1 => self.now.clone(),
            2 | 3 => self.first_changes(dice),
            _some_sectors => self.some_sectors(dice),
        }
    }

    /// The first changes, and of the next one, if it is a write, a part.
    fn first_changes(&self, dice: &mut Dice) -> Vec<u8> {
        let mut content = self.disk.clone();
        let count = dice.below_len(self.since.len() + 1);
        self.since[..count]
            .iter()
            .for_each(|c| c.apply(&mut content));
        if let Some(Change::Write(at, bytes)) = self.since.get(count) {
            let torn = dice.below_len(bytes.len() + 1);
            Change::Write(*at, bytes[..torn].to_vec()).apply(&mut content);
        }
        content
    }

    /// Each sector as it was or as it is, in any mixture; what was not written below the length reads
    /// as zeros.
    fn some_sectors(&self, dice: &mut Dice) -> Vec<u8> {
        let (short, long) = match self.disk.len() <= self.now.len() {
            true => (self.disk.len(), self.now.len()),
            false => (self.now.len(), self.disk.len()),
        };
        let length = match dice.below(4) {
            0 => short,
            1 => short + dice.below_len(long - short + 1),
            _all => long,
        };
        let mut content = self.disk.clone();
        content.resize(length, 0);
        let kept_in = 1 + dice.below(4);
        for start in (0..length).step_by(SECTOR) {
            let end = (start + SECTOR).min(length).min(self.now.len());
            if start < end && !dice.once_in(kept_in) {
                content[start..end].copy_from_slice(&self.now[start..end]);
            }
        }
        content
    }
}

impl Change {
    fn apply(&self, content: &mut Vec<u8>) {
        match self {
            Change::Length(length) => content.resize(*length, 0),
            Change::Write(at, bytes) => {
                let end = at + bytes.len();
                if content.len() < end {
                    content.resize(end, 0);
                }
                content[*at..end].copy_from_slice(bytes);
            }
        }
    }
}

/// Names in the page cache, names on the disk, and what leads from one to the other, in order.
#[derive(Default)]
pub(super) struct DirNode {
    pub(super) now: Names,
    pub(super) disk: Names,
    since: Vec<NameChange>,
}

pub(super) enum NameChange {
    Set(OsString, NodeId),
    Remove(OsString),
    Rename(OsString, OsString),
}

impl DirNode {
    /// A directory that is on the disk as it is.
    pub(super) fn on_disk(names: Names) -> DirNode {
        DirNode {
            now: names.clone(),
            disk: names,
            since: Vec::new(),
        }
    }

    pub(super) fn change(&mut self, change: NameChange) {
        change.apply(&mut self.now);
        self.since.push(change);
    }

    pub(super) fn sync(&mut self) {
        self.disk.clone_from(&self.now);
        self.since.clear();
    }

    /// What a power loss may leave of it: file systems with a journal change the names of a directory
    /// in order.
    pub(super) fn after_power_loss(&self, dice: &mut Dice) -> Names {
        let count = match dice.below(4) {
            0 => 0,
            1 => self.since.len(),
            _some => dice.below_len(self.since.len() + 1),
        };
        let mut names = self.disk.clone();
        self.since[..count].iter().for_each(|c| c.apply(&mut names));
        names
    }
}

impl NameChange {
    fn apply(&self, names: &mut Names) {
        match self {
            NameChange::Set(name, id) => {
                names.insert(name.clone(), *id);
            }
            NameChange::Remove(name) => {
                names.remove(name);
            }
            NameChange::Rename(from, to) => {
                if let Some(id) = names.remove(from) {
                    names.insert(to.clone(), id);
                }
            }
        }
    }
}
