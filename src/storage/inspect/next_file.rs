//! The file of the next segment: what is in it, and what a start makes of that.

use std::io;
use std::path::Path;

use thalweg_reactor::fs;
use thalweg_types::Offset;

use super::{Item, Kind, Out, log_file};
use crate::name::log_name;
use crate::next_segment::{first_batch, follows};

/// Behind the segment that begins at `last`, if that is known.
pub(super) async fn inspect(
    path: &Path,
    last: Option<Offset>,
    before: log_file::Place,
    out: &mut Out<'_>,
) -> io::Result<()> {
    let kind = Kind::NextSegment;
    let bytes = fs::metadata(path).await?.len;
    let base = first_batch(path, bytes).await?;
    let base = base.filter(|base| last.is_none_or(|last| follows(*base, last)));
    let text = if let Some(base) = base {
        log_file::inspect(path, kind, base, before, out).await?;
        format!(
            "these batches have no segment's name yet: the next start calls the file {}",
            log_name(base)
        )
    } else if out.item(Item::File { path, kind, bytes }) {
        let what = match bytes {
            0 => "made ahead for a segment that has not begun",
            _ => "no whole batch that comes after the last segment, so nobody was told of one",
        };
        format!("{what}: the next start removes it")
    } else {
        return Ok(());
    };
    if !out.stopped() {
        out.note(path, None, text);
    }
    Ok(())
}
