//! Tables and JSON on stdout.

use std::borrow::Cow;
use std::io::{self, Write};

use serde::Serialize;

/// How a column is set.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
}

/// Text without anything that a terminal would obey: control characters, and those that turn the
/// direction of writing, are escaped. Names of groups and clients are whatever a client sent.
pub(crate) fn printable(text: &str) -> Cow<'_, str> {
    let commands =
        |c: char| c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    if !text.contains(commands) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match commands(c) {
            true => out.extend(c.escape_default()),
            false => out.push(c),
        }
    }
    Cow::Owned(out)
}

/// A value, or the sign for none.
pub(crate) fn or_dash<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(|| "-".to_owned(), |v| v.to_string())
}

/// Characters that a cell of a table shows; JSON tells all of a longer one.
const CELL_CHARS_MAX: usize = 300;

/// Characters that a cell makes its column wide: one that is longer moves the rest of its own row only.
const COLUMN_CHARS_MAX: usize = 64;

/// Prints rows under headings, each column as wide as its widest cell, but not for the sake of single long
/// ones. Cells are made [`printable`], and cut.
pub(crate) fn table(headings: &[(&str, Align)], rows: &[Vec<String>]) -> io::Result<()> {
    lines(&set_table(headings, rows))
}

/// Prints lines.
pub(crate) fn lines(lines: &[String]) -> io::Result<()> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    for line in lines {
        writeln!(out, "{line}")?;
    }
    out.flush()
}

/// The lines of [`table`], headings first.
pub(crate) fn set_table(headings: &[(&str, Align)], rows: &[Vec<String>]) -> Vec<String> {
    let clean = |row: &Vec<String>| row.iter().map(|cell| shown(cell)).collect();
    let names: Vec<String> = headings
        .iter()
        .map(|(name, _)| (*name).to_owned())
        .collect();
    let rows: Vec<Vec<String>> = std::iter::once(names)
        .chain(rows.iter().map(clean))
        .collect();
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        let widths = cells.map(|cell| cell.chars().count());
        widths
            .filter(|width| *width <= COLUMN_CHARS_MAX)
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..headings.len()).map(width).collect();
    let set = |row: &Vec<String>| {
        let mut line = String::new();
        for ((cell, width), (_, align)) in row.iter().zip(&widths).zip(headings) {
            if !line.is_empty() {
                line.push_str("  ");
            }
            match align {
                Align::Left => line.push_str(&format!("{cell:<width$}")),
                Align::Right => line.push_str(&format!("{cell:>width$}")),
            }
        }
        line.trim_end().to_owned()
    };
    rows.iter().map(set).collect()
}

/// A cell as a table shows it.
fn shown(cell: &str) -> String {
    let clean = printable(cell);
    match clean.char_indices().nth(CELL_CHARS_MAX) {
        Some((end, _)) => format!("{}...", &clean[..end]),
        None => clean.into_owned(),
    }
}

/// How many there are of what `one` names, which takes an s.
pub(crate) fn count(n: u64, one: &str) -> String {
    match n {
        1 => format!("1 {one}"),
        n => format!("{n} {one}s"),
    }
}

/// Prints a value as indented JSON.
pub(crate) fn json<T: Serialize>(value: &T) -> io::Result<()> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    serde_json::to_writer_pretty(&mut out, value)?;
    writeln!(out)?;
    out.flush()
}

/// Prints a value as JSON on one line, at once.
pub(crate) fn json_line<T: Serialize>(value: &T) -> io::Result<()> {
    line(&serde_json::to_string(value)?)
}

/// Prints one line.
pub(crate) fn line(text: &str) -> io::Result<()> {
    writeln!(io::stdout().lock(), "{text}")
}

#[cfg(test)]
mod tests {
    use super::{Align, printable, set_table};

    #[test]
    fn a_long_name_widens_no_other_row_and_is_cut() {
        let headings = [("NAME", Align::Left), ("N", Align::Right)];
        let row = |name: &str| vec![name.to_owned(), "7".to_owned()];
        let long = "x".repeat(30_000);
        let set = set_table(
            &headings,
            &[row("group"), row(&long), row(&"y".repeat(100))],
        );
        assert_eq!(set[0], "NAME   N");
        assert_eq!(set[1], "group  7");
        assert_eq!(set[2], format!("{}...  7", "x".repeat(300)));
        assert_eq!(set[3], format!("{}  7", "y".repeat(100)));
    }

    #[test]
    fn what_a_terminal_obeys_is_escaped() {
        assert_eq!(printable("grüße/a b"), "grüße/a b");
        assert_eq!(printable("a\u{1b}[2Jb\n"), "a\\u{1b}[2Jb\\n");
        assert_eq!(printable("\u{202e}x\u{9b}"), "\\u{202e}x\\u{9b}");
    }
}
