//! Rule numbers (`ST-7`, `R7`, `rp_11_...`) stand for lines of docs/rules.md.

use std::collections::BTreeSet;
use std::path::Path;

use crate::{assert_none, source};

const FAMILIES: [&str; 5] = ["R", "ST", "RP", "BI", "TRAP"];

#[test]
fn every_rule_number_in_use_has_its_line() {
    let known = known_rules();
    let mut offenders = Vec::new();
    for path in source::files(&[".rs", ".sh", ".py", ".md"]) {
        for (line, text) in source::read(&path).lines().enumerate() {
            for rule in rules_in(text) {
                if !known.contains(&rule) {
                    offenders.push(format!("{}:{}: {rule}", path.display(), line + 1));
                }
            }
        }
    }
    assert_none("rule numbers that docs/rules.md does not have", &offenders);
}

#[test]
fn rules_are_numbered_without_gaps() {
    let known = known_rules();
    for family in FAMILIES {
        let own = format!("{family}-");
        let count = known.iter().filter(|rule| rule.starts_with(&own)).count();
        let missing: Vec<String> = (1..=count)
            .map(|number| format!("{family}-{number}"))
            .filter(|rule| !known.contains(rule))
            .collect();
        assert!(count > 0, "docs/rules.md has rules of {family}");
        assert_none("numbers skipped by docs/rules.md", &missing);
    }
}

/// A rule is named by a test, a script or the code that keeps it, or docs/rules.md says that it is owed.
#[test]
fn every_rule_is_named_or_owed() {
    let text = source::read(Path::new("docs/rules.md"));
    let owed = text.split("## Owed").nth(1).unwrap_or_default();
    let mut named: BTreeSet<String> = rules_in(owed).into_iter().collect();
    for path in source::files(&[".rs", ".sh", ".py"]) {
        if !path.starts_with("tests/tidy") {
            named.extend(rules_in(&source::read(&path)));
        }
    }
    let known = known_rules();
    let silent: Vec<String> = known.difference(&named).cloned().collect();
    assert_none("rules that nothing names and nobody owes", &silent);
}

/// What the README promises is shown by tests that are there.
#[test]
fn tests_named_by_the_promises_of_the_readme_exist() {
    let text = source::read(Path::new("README.md"));
    let promises = text
        .split("## What is lost when")
        .nth(1)
        .unwrap_or_default();
    let promises = promises.split("\n## ").next().unwrap_or_default();
    let is_test = |name: &str| {
        name.matches('_').count() > 2 && name.chars().all(|c| c.is_alphanumeric() || c == '_')
    };
    let words = promises.split('`').skip(1).step_by(2);
    let named: BTreeSet<&str> = words.filter(|word| is_test(word)).collect();
    assert!(named.len() > 5, "the promises name their tests: {named:?}");
    let declared: Vec<String> = source::files(&[".rs"])
        .iter()
        .map(|path| source::read(path))
        .collect();
    let is_missing = |name: &&&str| {
        let declaration = format!("fn {name}(");
        !declared.iter().any(|file| file.contains(&declaration))
    };
    let missing: Vec<String> = named
        .iter()
        .filter(is_missing)
        .map(ToString::to_string)
        .collect();
    assert_none("tests that the README names and nobody wrote", &missing);
}

/// The rules whose line in docs/rules.md starts with `- **ST-7**`.
fn known_rules() -> BTreeSet<String> {
    source::read(Path::new("docs/rules.md"))
        .lines()
        .filter_map(|line| line.strip_prefix("- **")?.split("**").next())
        .map(str::to_owned)
        .collect()
}

/// `ST-7` in prose and `st_7_` or `st7_` in names of functions.
fn rules_in(text: &str) -> Vec<String> {
    let is_word = |c: char| c.is_ascii_alphanumeric();
    let mut found = Vec::new();
    for word in text.split(|c: char| !(is_word(c) || c == '-' || c == '_')) {
        let pieces: Vec<&str> = word.split(['-', '_']).collect();
        for (at, piece) in pieces.iter().enumerate() {
            let Some(family) = family_of(piece) else {
                continue;
            };
            let same = &piece[family.len()..];
            let number = if same.is_empty() {
                pieces.get(at + 1).copied()
            } else {
                Some(same)
            };
            let is_number =
                |text: &&str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
            if let Some(number) = number.filter(is_number) {
                found.push(format!("{family}-{number}"));
            }
        }
    }
    found
}

fn family_of(piece: &str) -> Option<&'static str> {
    FAMILIES.into_iter().find(|family| {
        let (lower, digits) = (family.to_lowercase(), |rest: &str| {
            rest.bytes().all(|b| b.is_ascii_digit())
        });
        piece.strip_prefix(family).is_some_and(digits)
            || piece.strip_prefix(lower.as_str()).is_some_and(digits)
    })
}

#[test]
fn finds_rule_numbers_in_prose_and_names() {
    assert_eq!(
        rules_in("// ST-7, (RP-41) and BI-12."),
        ["ST-7", "RP-41", "BI-12"]
    );
    assert_eq!(rules_in("fn st_7_and_rp41_hold()"), ["ST-7", "RP-41"]);
    assert_eq!(
        rules_in("R5's defaults (R7, ST-3): r9_room"),
        ["R-5", "R-7", "ST-3", "R-9"]
    );
    assert!(rules_in("best-7 test_8 stop").is_empty());
}
