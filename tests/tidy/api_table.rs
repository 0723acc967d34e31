//! docs/api.md is well formed. Whether the broker answers ApiVersions with the same table is asked
//! of the running broker by `tests/blackbox`.

use std::path::Path;

use crate::source;

#[test]
fn api_table_is_sorted_and_complete() {
    let text = source::read(Path::new("docs/api.md"));
    let rows: Vec<(i16, i16, i16)> = text.lines().filter_map(row).collect();
    assert!(rows.len() >= 8, "docs/api.md lists the APIs");
    for pair in rows.windows(2) {
        assert!(
            pair[0].0 < pair[1].0,
            "key {} stands after {}",
            pair[1].0,
            pair[0].0
        );
    }
    for (key, lowest, highest) in rows {
        assert!(lowest <= highest, "versions of key {key}");
    }
}

/// `| 3 | Metadata | 0–13 | ... |`
fn row(line: &str) -> Option<(i16, i16, i16)> {
    let cells: Vec<&str> = line.strip_prefix('|')?.split('|').map(str::trim).collect();
    let (lowest, highest) = cells.get(2)?.split_once('–')?;
    Some((
        cells[0].parse().ok()?,
        lowest.parse().ok()?,
        highest.parse().ok()?,
    ))
}
