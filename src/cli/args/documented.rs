//! `docs/cli.md` against the commands that there are.

use std::collections::BTreeSet;

use clap::{Command, CommandFactory};

use super::Arguments;

const GUIDE: &str = include_str!("../../../docs/cli.md");

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
