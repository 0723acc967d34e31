//! A place of the broker that a test holds up, by a failpoint of the test build.

use std::path::PathBuf;

use crate::broker::Options;

/// Whatever reaches the place waits as long as the file of this is there.
pub struct Gate {
    file: PathBuf,
    _folder: tempfile::TempDir,
}

impl Gate {
    /// A gate at the failpoint `place`, open, and the options of a broker that has it.
    pub fn at(place: &str) -> (Gate, Options) {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("closed");
        let options = Options {
            wrapper: failpoint(&format!("{place}=hold:{}", file.display())),
            ..Options::default()
        };
        let _folder = folder;
        (Gate { file, _folder }, options)
    }

    /// A gate at these failpoints, open: whatever reaches one of them fails as long as it is closed.
    pub fn failing(places: &[&str]) -> (Gate, Options) {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("closed");
        let points = places
            .iter()
            .map(|place| format!("{place}=fail:{}", file.display()));
        let options = Options {
            wrapper: failpoint(&points.collect::<Vec<_>>().join(";")),
            ..Options::default()
        };
        let _folder = folder;
        (Gate { file, _folder }, options)
    }

    /// From now on they wait.
    pub fn close(&self) {
        std::fs::write(&self.file, "").expect("a file");
    }

    /// They wait no longer.
    pub fn release(&self) {
        std::fs::remove_file(&self.file).expect("it was closed");
    }
}

/// Runs the broker with this failpoint.
pub fn failpoint(text: &str) -> Vec<&'static str> {
    let points = format!("THALWEG_FAILPOINTS={text}");
    // The process's few; an argument of a program needs a text that lives as long.
    vec!["env", Box::leak(points.into_boxed_str())]
}
