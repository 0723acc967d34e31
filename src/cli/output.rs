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

/// Prints rows under headings, each column as wide as its widest cell. Cells are made [`printable`].
pub(crate) fn table(headings: &[(&str, Align)], rows: &[Vec<String>]) -> io::Result<()> {
    let clean = |row: &Vec<String>| {
        row.iter()
            .map(|cell| printable(cell).into_owned())
            .collect()
    };
    let rows: Vec<Vec<String>> = rows.iter().map(clean).collect();
    let width = |column: usize| {
        let cells = rows
            .iter()
            .filter_map(|r| r.get(column))
            .map(|c| c.chars().count());
        cells.chain([headings[column].0.len()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..headings.len()).map(width).collect();
    let mut out = io::BufWriter::new(io::stdout().lock());
    let names: Vec<String> = headings
        .iter()
        .map(|(name, _)| (*name).to_owned())
        .collect();
    for row in std::iter::once(&names).chain(&rows) {
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
        writeln!(out, "{}", line.trim_end())?;
    }
    out.flush()
}

/// Prints a value as indented JSON.
pub(crate) fn json<T: Serialize>(value: &T) -> io::Result<()> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    serde_json::to_writer_pretty(&mut out, value)?;
    writeln!(out)?;
    out.flush()
}

/// Prints one line.
pub(crate) fn line(text: &str) -> io::Result<()> {
    writeln!(io::stdout().lock(), "{text}")
}

#[cfg(test)]
mod tests {
    use super::printable;

    #[test]
    fn what_a_terminal_obeys_is_escaped() {
        assert_eq!(printable("grüße/a b"), "grüße/a b");
        assert_eq!(printable("a\u{1b}[2Jb\n"), "a\\u{1b}[2Jb\\n");
        assert_eq!(printable("\u{202e}x\u{9b}"), "\\u{202e}x\\u{9b}");
    }
}
