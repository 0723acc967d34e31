//! Sizes, forbidden words and the top level.

use std::path::{Path, PathBuf};
use std::{collections::BTreeSet, fs};

use crate::{assert_none, source};

const FILE_LINES_MAX: usize = 1_000;
const FUNCTION_LINES_MAX: &str = "too-many-lines-threshold = 70";

/// Files over the limit with their length. An entry may shrink or go, never grow or come.
const LONG_FILES: [(&str, usize); 0] = [];
/// Source files that switch the function limit off, with how often. May shrink, never grow.
/// The generated codec has a function per struct, however many fields that has.
const LONG_FUNCTIONS: [(&str, usize); 1] = [("src/protocol/messages.rs", 1)];

/// Where `unsafe` may stand.
const UNSAFE_ALLOWED: [&str; 2] = ["src/reactor/", "bench/floor"];

#[test]
fn files_stay_short() {
    let mut offenders = Vec::new();
    for path in source::files(&[".rs", ".sh", ".py", ".c"]) {
        let lines = source::read(&path).lines().count();
        let limit = allowance(&LONG_FILES, &path).unwrap_or(FILE_LINES_MAX);
        if lines > limit {
            offenders.push(format!(
                "{} has {lines} lines, at most {limit}",
                path.display()
            ));
        }
    }
    assert_none("files that are too long", &offenders);
}

/// Clippy counts the lines of each function; this test keeps anyone from switching that off.
#[test]
fn functions_stay_short() {
    let mut offenders = Vec::new();
    if !source::read(Path::new("clippy.toml")).contains(FUNCTION_LINES_MAX) {
        offenders.push(format!("clippy.toml does not say {FUNCTION_LINES_MAX}"));
    }
    if !source::read(Path::new("Cargo.toml")).contains("too_many_lines = \"deny\"") {
        offenders.push("Cargo.toml does not deny too_many_lines".to_owned());
    }
    for path in rust_files() {
        let off = source::words(&source::code_only(&source::read(&path)))
            .filter(|(_, word)| *word == "too_many_lines")
            .count();
        if off > allowance(&LONG_FUNCTIONS, &path).unwrap_or(0) {
            offenders.push(format!("{} allows {off} long functions", path.display()));
        }
    }
    assert_none("functions that are too long", &offenders);
}

#[test]
fn unsafe_stays_in_the_reactor() {
    let mut offenders = Vec::new();
    for path in rust_files() {
        let allowed = UNSAFE_ALLOWED
            .iter()
            .any(|start| path.starts_with_text(start));
        let text = source::read(&path);
        let code = source::code_only(&text);
        let lines: Vec<&str> = text.lines().collect();
        for (line, word) in source::words(&code) {
            if word != "unsafe" {
                continue;
            }
            if !allowed {
                offenders.push(format!("{}:{line}: unsafe", path.display()));
            } else if !is_explained(&lines, line) {
                offenders.push(format!("{}:{line}: unsafe without SAFETY", path.display()));
            }
        }
    }
    assert_none("unsafe where it may not be, or unexplained", &offenders);
}

/// Whether a `SAFETY:` comment (or a `# Safety` section, for an `unsafe fn`) belongs to the statement or item
/// in which `unsafe` stands: on its line, or above it with nothing but attributes, comments and the begin of the
/// same statement in between.
fn is_explained(lines: &[&str], line: usize) -> bool {
    let says = |text: &str| text.contains("SAFETY:") || text.contains("# Safety");
    let mut upwards = lines[..line].iter().rev().map(|text| text.trim());
    if upwards.next().is_some_and(says) {
        return true;
    }
    for text in upwards {
        if text.starts_with("//") || text.starts_with("#[") {
            if says(text) {
                return true;
            }
        } else if text.is_empty() || text.ends_with([';', '{', '}', ',']) {
            return false;
        }
    }
    false
}

#[test]
fn a_safety_comment_counts_for_its_own_statement_only() {
    let explained = |text: &str| {
        let lines: Vec<&str> = text.lines().collect();
        is_explained(&lines, lines.len())
    };
    assert!(explained("// SAFETY: so.\nlet a = unsafe {"));
    assert!(explained(
        "// SAFETY: so.\n// And so.\n#[allow(x)]\nlet a =\n    unsafe {"
    ));
    assert!(explained("/// # Safety\n/// So.\npub unsafe fn f() {"));
    assert!(!explained(
        "fn f() {\n    // SAFETY: so.\n    unsafe { g() }\n}\nfn h() {\n    unsafe { g() }"
    ));
    assert!(!explained(
        "// SAFETY: so.\nunsafe { g() };\nunsafe { h() }"
    ));
    assert!(!explained("unsafe { h() }"));
}

#[test]
fn nothing_unfinished_and_no_unwrap_outside_tests() {
    let mut offenders = Vec::new();
    for path in rust_files()
        .into_iter()
        .filter(|path| !source::is_test_file(path))
    {
        let code = source::without_tests(&source::code_only(&source::read(&path)));
        for (line, text) in code.lines().enumerate() {
            for word in ["todo!", "dbg!", "unimplemented!", ".unwrap()"] {
                if text.contains(word) {
                    offenders.push(format!("{}:{}: {word}", path.display(), line + 1));
                }
            }
        }
    }
    assert_none("unfinished or unwrapped", &offenders);
}

/// What lies outside the checkout means nothing to a reader of it.
#[test]
fn nothing_points_outside_the_project() {
    let parts = [
        ("..", "/shared"),
        ("/wo", "rk/"),
        ("DESIGN", ".md"),
        ("SEAMS", ".md"),
    ];
    let forbidden: Vec<String> = parts.iter().map(|(a, b)| format!("{a}{b}")).collect();
    let mut offenders = Vec::new();
    for path in source::files(&[
        ".rs",
        ".md",
        ".sh",
        ".py",
        ".toml",
        "run",
        "test",
        "acceptance",
    ]) {
        for (line, text) in source::read(&path).lines().enumerate() {
            for word in &forbidden {
                if text.contains(word.as_str()) {
                    offenders.push(format!("{}:{}: {word}", path.display(), line + 1));
                }
            }
        }
    }
    assert_none("references to what is not in the project", &offenders);
}

#[test]
fn the_top_level_holds_only_what_it_should() {
    let expected: BTreeSet<&str> = [
        "Cargo.toml",
        "Cargo.lock",
        "src",
        "bench",
        "tuning",
        "scripts",
        "tests",
        "fuzz",
        "docs",
        "README.md",
        "ARCHITECTURE.md",
        "CHANGELOG.md",
        "LICENSE",
        "clippy.toml",
        "rustfmt.toml",
        "rust-toolchain.toml",
        "target",
        "data",
    ]
    .into();
    let mut offenders = Vec::new();
    for entry in fs::read_dir(source::root()).expect("the checkout is readable") {
        let name = entry
            .expect("an entry")
            .file_name()
            .to_string_lossy()
            .into_owned();
        if !name.starts_with('.') && !expected.contains(name.as_str()) {
            offenders.push(name);
        }
    }
    assert_none("strangers at the top level", &offenders);
}

fn rust_files() -> Vec<PathBuf> {
    source::files(&[".rs"])
}

fn allowance(list: &[(&str, usize)], path: &Path) -> Option<usize> {
    list.iter()
        .find(|(name, _)| Path::new(name) == path)
        .map(|(_, limit)| *limit)
}

trait StartsWithText {
    fn starts_with_text(&self, start: &str) -> bool;
}

impl StartsWithText for Path {
    /// As text, so that `bench/floor` covers both `bench/floor.rs` and `bench/floor/`.
    fn starts_with_text(&self, start: &str) -> bool {
        self.to_string_lossy().starts_with(start)
    }
}
