//! Names in backticks with `::` in ARCHITECTURE.md are declared in the room they begin with.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::{assert_none, source};

#[test]
fn symbols_named_in_architecture_md_exist() {
    let text = source::read(Path::new("ARCHITECTURE.md"));
    let mut rooms: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut offenders = Vec::new();
    for (line, text) in text.lines().enumerate() {
        for symbol in text
            .split('`')
            .skip(1)
            .step_by(2)
            .filter(|name| name.contains("::"))
        {
            let mut parts = symbol.trim_end_matches("()").split("::");
            let room = parts.next().unwrap_or_default().to_owned();
            let declared = rooms
                .entry(room.clone())
                .or_insert_with(|| declared_in(&room));
            for part in parts {
                if !declared.contains(part) {
                    offenders.push(format!("line {}: {symbol}: no {part} in {room}", line + 1));
                }
            }
        }
    }
    assert_none(
        "symbols that ARCHITECTURE.md names and the source does not have",
        &offenders,
    );
}

/// Every name that the room declares: items, methods, modules by file, enum variants.
fn declared_in(room: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let folder = if room == "bench" {
        "bench/".to_owned()
    } else {
        format!("src/{room}/")
    };
    for path in source::files(&[".rs"]) {
        if !path.to_string_lossy().starts_with(&folder) {
            continue;
        }
        let stem = path
            .file_stem()
            .and_then(|stem| stem.to_str())
            .unwrap_or_default();
        names.insert(stem.to_owned());
        let code = source::code_only(&source::read(&path));
        for line in code.lines() {
            names.extend(declared_on(line));
        }
    }
    names
}

fn declared_on(line: &str) -> Option<String> {
    const KEYWORDS: [&str; 9] = [
        "fn",
        "struct",
        "enum",
        "trait",
        "mod",
        "const",
        "type",
        "static",
        "macro_rules",
    ];
    let words: Vec<&str> = line
        .split(|c: char| !(c.is_alphanumeric() || c == '_'))
        .filter(|word| !word.is_empty())
        .collect();
    let keyword = words.iter().position(|word| KEYWORDS.contains(word));
    if let Some(at) = keyword {
        return words[at + 1..]
            .iter()
            .find(|word| !KEYWORDS.contains(word))
            .map(|w| (*w).to_owned());
    }
    let first = words.first()?;
    let is_variant = first.starts_with(char::is_uppercase) && line.trim_start().starts_with(first);
    is_variant.then(|| (*first).to_owned())
}

#[test]
fn reads_declarations() {
    assert_eq!(
        declared_on("    pub async fn write_at(&self) {"),
        Some("write_at".to_owned())
    );
    assert_eq!(
        declared_on("pub const fn new() -> Self {"),
        Some("new".to_owned())
    );
    assert_eq!(
        declared_on("    Written { end: Offset },"),
        Some("Written".to_owned())
    );
    assert_eq!(declared_on("    let x = Written;"), None);
}
