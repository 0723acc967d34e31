//! The guides against the commands that there are.

use std::collections::BTreeSet;

use clap::error::ErrorKind;
use clap::{Command, CommandFactory, Parser};

use super::Arguments;

const GUIDE: &str = include_str!("../../../docs/cli.md");
const README: &str = include_str!("../../../README.md");
const OPERATING: &str = include_str!("../../../docs/operate.md");

/// The section of a top-level command; the text before the first for all of them.
fn section(name: &str) -> &'static str {
    let mut sections = GUIDE.split("\n## ");
    let intro = sections.next().unwrap_or_default();
    let found = sections.find(|text| text.lines().next() == Some(name));
    found.unwrap_or(intro)
}

/// Long options of a command and all below it, without those that clap adds.
fn options(command: &Command) -> BTreeSet<String> {
    let own = command.get_arguments().filter_map(|arg| arg.get_long());
    let own = own.filter(|long| !matches!(*long, "help" | "version"));
    let below = command.get_subcommands().flat_map(options);
    own.map(str::to_owned).chain(below).collect()
}

/// Other names of the same options.
fn aliases(command: &Command) -> BTreeSet<String> {
    let own = command
        .get_arguments()
        .filter_map(|arg| arg.get_all_aliases());
    let own = own.flatten().map(str::to_owned);
    let below = command.get_subcommands().flat_map(aliases);
    own.chain(below).collect()
}

/// What follows `--` in a text.
fn named(text: &str) -> BTreeSet<String> {
    let words = text.split("--").skip(1).map(|rest| {
        let end = rest.find(|c: char| !(c.is_ascii_lowercase() || c == '-'));
        rest[..end.unwrap_or(rest.len())].to_owned()
    });
    words
        .filter(|word| word.starts_with(|c: char| c.is_ascii_lowercase()))
        .collect()
}

#[test]
fn the_guide_names_every_command_and_option() {
    let mut missing = Vec::new();
    let intro = section("");
    for command in Arguments::command().get_subcommands() {
        let name = command.get_name();
        if !intro.contains(&format!("`thalweg {name}")) {
            missing.push(name.to_owned());
        }
        let text = section(name);
        let told = [intro, text].concat();
        for below in command.get_subcommands() {
            let below = below.get_name();
            if !["`", "|"]
                .iter()
                .any(|before| told.contains(&format!("{before}{below}")))
            {
                missing.push(format!("{name} {below}"));
            }
        }
        let left = &options(command) - &named(&told);
        missing.extend(left.iter().map(|option| format!("{name} --{option}")));
    }
    assert!(missing.is_empty(), "not in docs/cli.md: {missing:?}");
}

#[test]
fn the_guide_names_no_option_that_is_not_there() {
    let mut known = BTreeSet::from(["help".to_owned(), "version".to_owned()]);
    known.extend(options(&Arguments::command()));
    known.extend(aliases(&Arguments::command()));
    let strange = &named(GUIDE) - &known;
    assert!(strange.is_empty(), "only in docs/cli.md: {strange:?}");
}

/// The lines of a page that are to be typed or copied: those of its fenced blocks.
fn typed(page: &str) -> impl Iterator<Item = &str> {
    page.split("```").skip(1).step_by(2).flat_map(str::lines)
}

/// The words of each `thalweg ...` in a line, up to where the shell sends its output elsewhere.
fn calls(line: &str) -> impl Iterator<Item = Vec<&str>> {
    line.split(['|', '&', ';']).filter_map(|part| {
        let words: Vec<&str> = part.split_whitespace().collect();
        // After `runuser ... --`, and in a unit.
        let begin = words
            .iter()
            .rposition(|word| *word == "--")
            .map_or(0, |at| at + 1);
        let words = &words[begin..];
        let name = words
            .first()?
            .trim_start_matches("ExecStart=/usr/local/bin/");
        let end = words
            .iter()
            .position(|word| word.starts_with(['>', '<']))
            .unwrap_or(words.len());
        (name == "thalweg").then(|| words[..end].to_vec())
    })
}

#[test]
fn every_command_that_the_guides_have_typed_is_understood() {
    let lines = typed(README).chain(typed(OPERATING));
    let calls: Vec<Vec<&str>> = lines.flat_map(calls).collect();
    assert!(calls.len() > 20, "{calls:?}");
    for call in calls {
        let refused = Arguments::try_parse_from(&call).err();
        let refused = refused.filter(|error| error.kind() != ErrorKind::DisplayVersion);
        assert!(refused.is_none(), "{call:?}: {refused:?}");
    }
}

#[test]
fn calls_are_found_in_lines() {
    let found = |line| calls(line).map(|words| words.join(" ")).collect::<Vec<_>>();
    assert_eq!(
        found("echo x | thalweg produce t >/dev/null && echo y"),
        ["thalweg produce t"]
    );
    assert_eq!(
        found("runuser --user thalweg -- thalweg format"),
        ["thalweg format"]
    );
    assert!(found("cp thalweg /usr/local/bin/thalweg").is_empty());
}
