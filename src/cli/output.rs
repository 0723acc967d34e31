//! Tables and JSON on stdout.

use std::io::{self, Write};

use serde::Serialize;

/// How a column is set.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
}

/// Prints rows under headings, each column as wide as its widest cell.
pub(crate) fn table(headings: &[(&str, Align)], rows: &[Vec<String>]) -> io::Result<()> {
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
    for row in std::iter::once(&names).chain(rows) {
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
