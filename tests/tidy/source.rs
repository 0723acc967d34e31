//! Finds the project's files and reads Rust source without its comments and literals.

use std::fs;
use std::path::{Path, PathBuf};

/// The checkout.
pub fn root() -> PathBuf {
    // Cargo sets it at run time too; that one holds when the checkout was moved since the build.
    let at_run_time = std::env::var_os("CARGO_MANIFEST_DIR");
    at_run_time.map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from)
}

/// Every file of the project whose name ends in one of `endings`, as a path relative to the root.
/// Build output, the data directory and git's own files are left out.
pub fn files(endings: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    walk(&root(), &mut found);
    let mut found: Vec<PathBuf> = found
        .into_iter()
        .filter(|path| {
            let name = path.to_string_lossy();
            endings.iter().any(|ending| name.ends_with(ending))
        })
        .map(|path| {
            path.strip_prefix(root())
                .expect("walked from the root")
                .to_path_buf()
        })
        .collect();
    found.sort();
    found
}

fn walk(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).expect("the checkout is readable") {
        let path = entry.expect("the checkout is readable").path();
        let name = path
            .file_name()
            .expect("an entry has a name")
            .to_string_lossy()
            .into_owned();
        let skipped = ["target", "data", ".git", "results", "corpus", "artifacts"];
        if path.is_dir() {
            if !skipped.contains(&name.as_str()) {
                walk(&path, found);
            }
        } else {
            found.push(path);
        }
    }
}

/// The text of a file named relative to the root.
pub fn read(path: &Path) -> String {
    match fs::read(root().join(path)) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) => panic!("{}: {error}", path.display()),
    }
}

/// Whether the file holds tests only: their helpers may unwrap.
pub fn is_test_file(path: &Path) -> bool {
    let inside = path
        .components()
        .filter_map(|part| part.as_os_str().to_str())
        .any(|part| {
            matches!(part, "tests" | "benches" | "examples" | "testing") || part.ends_with("_tests")
        });
    let name = path
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or_default();
    inside || name == "tests.rs" || name.ends_with("_tests.rs") || name.ends_with("_test.rs")
}

/// Rust source with comments and the contents of literals blanked; line breaks stay, so that line
/// numbers hold.
pub fn code_only(text: &str) -> String {
    Blanker {
        input: text.chars().collect(),
        at: 0,
        output: String::with_capacity(text.len()),
    }
    .run()
}

struct Blanker {
    input: Vec<char>,
    at: usize,
    output: String,
}

impl Blanker {
    fn run(mut self) -> String {
        while let Some(c) = self.peek(0) {
            match (c, self.peek(1)) {
                ('/', Some('/')) => self.blank_until(|b| b.peek(0) == Some('\n')),
                ('/', Some('*')) => self.block_comment(),
                ('"', _) => self.string(),
                ('r', Some('"' | '#')) if !self.inside_word() => self.raw_string(),
                ('\'', _) => self.quote(),
                _ => self.keep(),
            }
        }
        self.output
    }

    fn peek(&self, ahead: usize) -> Option<char> {
        self.input.get(self.at + ahead).copied()
    }

    fn keep(&mut self) {
        self.output.extend(self.peek(0));
        self.at += 1;
    }

    fn blank(&mut self) {
        self.output.push(if self.peek(0) == Some('\n') {
            '\n'
        } else {
            ' '
        });
        self.at += 1;
    }

    fn blank_until(&mut self, done: impl Fn(&Self) -> bool) {
        while self.at < self.input.len() && !done(self) {
            self.blank();
        }
    }

    fn inside_word(&self) -> bool {
        let before = self.at.checked_sub(1).map(|at| self.input[at]);
        before.is_some_and(|c| c != 'b' && (c.is_alphanumeric() || c == '_'))
    }

    fn block_comment(&mut self) {
        let mut depth = 0;
        while let Some(c) = self.peek(0) {
            match (c, self.peek(1)) {
                ('/', Some('*')) => depth += 1,
                ('*', Some('/')) => depth -= 1,
                _ => {
                    self.blank();
                    continue;
                }
            }
            self.blank();
            self.blank();
            if depth == 0 {
                return;
            }
        }
    }

    fn string(&mut self) {
        self.keep();
        while let Some(c) = self.peek(0) {
            match c {
                '\\' => {
                    self.blank();
                    self.blank();
                }
                '"' => return self.keep(),
                _ => self.blank(),
            }
        }
    }

    fn raw_string(&mut self) {
        let hashes = self.input[self.at + 1..]
            .iter()
            .take_while(|c| **c == '#')
            .count();
        if self.peek(1 + hashes) != Some('"') {
            return self.keep(); // a raw identifier
        }
        for _ in 0..hashes + 2 {
            self.blank();
        }
        self.blank_until(|b| {
            b.peek(0) == Some('"') && (1..=hashes).all(|ahead| b.peek(ahead) == Some('#'))
        });
        for _ in 0..=hashes {
            self.blank();
        }
    }

    /// A character literal, or a lifetime, which is kept.
    fn quote(&mut self) {
        let escaped = self.peek(1) == Some('\\');
        if escaped {
            self.blank();
            self.blank();
            self.blank();
            self.blank_until(|b| b.peek(0) == Some('\''));
            self.blank();
        } else if self.peek(2) == Some('\'') {
            for _ in 0..3 {
                self.blank();
            }
        } else {
            self.keep();
        }
    }
}

/// `code` without its `#[cfg(test)]` items. Expects the output of [`code_only`].
pub fn without_tests(code: &str) -> String {
    let mut output = String::with_capacity(code.len());
    let mut rest = code;
    while let Some(found) = rest.find("#[cfg(test)]") {
        let (before, after) = rest.split_at(found);
        output.push_str(before);
        let end = item_end(after);
        output.extend(
            after[..end]
                .chars()
                .map(|c| if c == '\n' { '\n' } else { ' ' }),
        );
        rest = &after[end..];
    }
    output.push_str(rest);
    output
}

/// Where the item at the start of `code` ends: its closing brace, or its semicolon.
fn item_end(code: &str) -> usize {
    let mut depth = 0_usize;
    for (at, c) in code.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth <= 1 => return at + 1,
            '}' => depth -= 1,
            ';' if depth == 0 => return at + 1,
            _ => {}
        }
    }
    code.len()
}

/// The words of `code` with the line each stands on, from 1.
pub fn words(code: &str) -> impl Iterator<Item = (usize, &str)> {
    code.lines().enumerate().flat_map(|(line, text)| {
        text.split(|c: char| !(c.is_alphanumeric() || c == '_'))
            .filter(|word| !word.is_empty())
            .map(move |word| (line + 1, word))
    })
}

#[test]
fn blanks_comments_and_literals_and_keeps_lifetimes() {
    let text = "let a = \"todo!()\"; // unsafe\nfn f<'a>(c: char) { c == '\\'' || c == '\"' } /* a /* b */\nc */ r#\"x\" y\"# z";
    let code = code_only(text);
    assert_eq!(code.lines().count(), text.lines().count());
    for gone in ["todo", "unsafe", "b */", "x\""] {
        assert!(!code.contains(gone), "{gone} in {code}");
    }
    for kept in ["fn f<'a>(c: char)", " z"] {
        assert!(code.contains(kept), "{kept} not in {code}");
    }
}

#[test]
fn leaves_out_test_modules() {
    let code = "fn a() {}\n#[cfg(test)]\nmod tests { fn b() { x.unwrap(); } }\nfn c() {}\n#[cfg(test)]\nmod tests;\nfn d() {}";
    let left = without_tests(code);
    assert!(!left.contains("unwrap") && !left.contains("mod tests"));
    assert!(left.contains("fn a") && left.contains("fn c") && left.contains("fn d"));
}
