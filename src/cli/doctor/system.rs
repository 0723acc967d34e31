//! Small files of `/proc` and `/sys`, or of a folder that stands for `/`.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

/// No file of the kernel that is looked at is larger; of a larger one the rest is not read.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The files of a machine.
pub(super) struct System {
    root: PathBuf,
}

impl System {
    /// Of this one.
    pub(super) fn of_this_machine() -> System {
        System {
            root: PathBuf::from("/"),
        }
    }

    /// Of a folder that stands for `/`.
    #[cfg(test)]
    pub(super) fn below(root: &Path) -> System {
        System {
            root: root.to_owned(),
        }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// Content without the white space around it; `None` where there is no such file, or it may not be read.
    pub(super) fn text(&self, path: &str) -> Option<String> {
        let mut bytes = Vec::new();
        let file = File::open(self.path(path)).ok()?;
        file.take(FILE_BYTES_MAX).read_to_end(&mut bytes).ok()?;
        Some(String::from_utf8_lossy(&bytes).trim().to_owned())
    }

    /// A file that holds one number.
    pub(super) fn number(&self, path: &str) -> Option<u64> {
        self.text(path)?.parse().ok()
    }

    /// Of a choice like `a [b] c` it is `b`.
    pub(super) fn chosen(&self, path: &str) -> Option<String> {
        let text = self.text(path)?;
        let inside = text
            .split_once('[')
            .and_then(|(_, rest)| rest.split_once(']'));
        Some(inside.map_or(text.clone(), |(word, _)| word.to_owned()))
    }

    /// The number behind a key of a table such as `/proc/meminfo`.
    pub(super) fn entry(&self, path: &str, key: &str) -> Option<String> {
        let text = self.text(path)?;
        let line = text.lines().find(|line| line.starts_with(key))?;
        Some(line[key.len()..].trim().to_owned())
    }

    /// Names in a folder, sorted.
    pub(super) fn names(&self, path: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(path)).into_iter().flatten();
        let mut names: Vec<String> = entries
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .collect();
        names.sort();
        names
    }

    /// Where a path leads, as a path below the root.
    pub(super) fn resolved(&self, path: &str) -> Option<String> {
        let real = fs::canonicalize(self.path(path)).ok()?;
        let root = fs::canonicalize(&self.root).ok()?;
        let below = real.strip_prefix(Path::new(&root)).ok()?;
        Some(format!("/{}", below.to_str()?))
    }
}
