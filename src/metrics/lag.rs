//! How far groups are behind, as a scrape finds it.

use std::borrow::Cow;

use thalweg_types::limits::GROUP_LABEL_BYTES_MAX;

use crate::Kind;
use crate::prometheus::Page;

/// One partition of one group.
#[derive(Clone, Debug, PartialEq)]
pub struct LagRow {
    /// Name of the group.
    pub group: String,
    /// Name of the topic.
    pub topic: String,
    /// Index in the topic.
    pub partition: i32,
    /// Offset of the next record to read.
    pub committed_offset: i64,
    /// Records from there to the high watermark.
    pub records: i64,
    /// Of these, those that a consumer with `isolation.level=read_committed` can read: up to the last
    /// stable offset.
    pub stable_records: i64,
    /// Their bytes, whole batches counted; `None` when not known.
    pub bytes: Option<u64>,
    /// Age of the first of them; `None` when it has no timestamp.
    pub seconds: Option<f64>,
    /// Time until retention may take it; `None` when that is not known.
    pub removal_seconds: Option<f64>,
}

/// What a scrape found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GroupLag {
    /// By group, topic and partition.
    pub rows: Vec<LagRow>,
    /// Committed offsets that are not among the rows: beyond their bound, or of a shard or a log that
    /// gave no answer.
    pub left_out: u64,
}

/// Name, help text, and how to read it from a row.
type LagMetric = (&'static str, &'static str, fn(&LagRow) -> Option<f64>);

const LAG_METRICS: [LagMetric; 5] = [
    (
        "thalweg_group_lag_records",
        "Records that a group has not read, up to the high watermark.",
        |row| Some(row.records as f64),
    ),
    (
        "thalweg_group_lag_stable_records",
        "Records that a group has not read, up to the last stable offset: all that read_committed sees.",
        |row| Some(row.stable_records as f64),
    ),
    (
        "thalweg_group_lag_bytes",
        "Bytes of the batches that a group has not read.",
        |row| row.bytes.map(|bytes| bytes as f64),
    ),
    (
        "thalweg_group_lag_seconds",
        "Age of the first record that a group has not read; 0 when it has read everything.",
        |row| row.seconds,
    ),
    (
        "thalweg_group_removal_seconds",
        "Seconds until retention may remove what a group has not read.",
        |row| row.removal_seconds,
    ),
];

/// The name of a group as a label. A long one, of which a page would repeat thousands, is cut, and told
/// from others that begin like it by a hash of the whole.
fn label_of(group: &str) -> Cow<'_, str> {
    if group.len() <= GROUP_LABEL_BYTES_MAX {
        return Cow::Borrowed(group);
    }
    // FNV-1a: the same in every version and process, so that a series goes on.
    let hash = group.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let kept = group.floor_char_boundary(GROUP_LABEL_BYTES_MAX);
    Cow::Owned(format!("{}...{hash:016x}", &group[..kept]))
}

pub(crate) fn render(page: &mut Page, lag: &GroupLag) {
    for (metric, help, read) in LAG_METRICS {
        page.head(metric, Kind::Gauge.name(), help);
        for row in &lag.rows {
            let Some(value) = read(row) else { continue };
            let labels = [
                ("group", &*label_of(&row.group)),
                ("topic", row.topic.as_str()),
                ("partition", &row.partition.to_string()),
            ];
            page.sample(metric, &labels, value);
        }
    }
    const LEFT_OUT: &str = "thalweg_group_lag_left_out";
    let help = "Committed offsets that the lag metrics leave out.";
    page.head(LEFT_OUT, Kind::Gauge.name(), help);
    page.sample(LEFT_OUT, &[], lag.left_out);
}
