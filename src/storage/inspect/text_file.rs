//! The small text files: checkpoints, `partition.metadata`, `meta.properties`.

use std::path::Path;

use thalweg_replica::EpochCache;

use super::{Item, Kind, Out};
use crate::dir::{BoundOffsets, CLEAN_MARKER, Checkpoint, META_PROPERTIES};
use crate::meta_properties::MetaProperties;
use crate::page_cache;
use crate::partition_files::{LEADER_EPOCHS, PARTITION_METADATA, parse_partition_metadata};
use crate::quarantine::{self, QUARANTINE};
use crate::written;

const CRC_DIFFERS: &str = "it is cut off, or not what was written";

fn checkpoint(name: &str) -> Option<Checkpoint> {
    const ROOT: [Checkpoint; 9] = [
        Checkpoint::RecoveryPoint,
        Checkpoint::LogStart,
        Checkpoint::HighWatermark,
        Checkpoint::FoundDamaged,
        Checkpoint::DamagedAfterKill,
        Checkpoint::Unopened,
        Checkpoint::AcceptedGaps,
        Checkpoint::Cleaner,
        Checkpoint::EpochsUnseen,
    ];
    let mut all = ROOT.into_iter();
    all.find(|checkpoint| checkpoint.file_name() == name)
}

/// The kind of a text file, by its name.
pub(super) fn kind(name: &str) -> Option<Kind> {
    if checkpoint(name).is_some() {
        return Some(Kind::Checkpoint);
    }
    if name == LEADER_EPOCHS {
        return Some(Kind::LeaderEpochs);
    }
    if name == PARTITION_METADATA {
        return Some(Kind::PartitionMetadata);
    }
    if name == QUARANTINE {
        return Some(Kind::Quarantine);
    }
    if name == CLEAN_MARKER {
        return Some(Kind::CleanMarker);
    }
    if name == written::FILE {
        return Some(Kind::Marks);
    }
    if name == page_cache::FILE {
        return Some(Kind::PageCache);
    }
    (name == META_PROPERTIES).then_some(Kind::MetaProperties)
}

pub(super) fn quarantine(bytes: &[u8], out: &mut Out<'_>) -> Result<(), String> {
    let ranges = quarantine::parse(bytes).map_err(|line| format!("line {line} is wrong"))?;
    for (base, (size, damaged)) in ranges {
        for range in damaged {
            let value = format!(
                "bytes {} to {} of the segment at {base} ({size} bytes), offsets {} to below {}",
                range.bytes.start, range.bytes.end, range.first, range.next
            );
            let item = Item::Property {
                key: "damaged",
                value: &value,
            };
            if !out.item(item) {
                return Ok(());
            }
        }
    }
    Ok(())
}

pub(super) fn marks(bytes: &[u8], out: &mut Out<'_>) -> Result<(), String> {
    let (lifetime, marks) = written::decode(bytes).ok_or(CRC_DIFFERS)?;
    of_lifetime(lifetime, out);
    entries(&marks, out);
    Ok(())
}

pub(super) fn page_cache(bytes: &[u8], out: &mut Out<'_>) -> Result<(), String> {
    let (lifetime, doubted) = page_cache::decode(bytes).ok_or(CRC_DIFFERS)?;
    of_lifetime(lifetime, out);
    for name in doubted.keys() {
        out.item(Item::Property {
            key: "not known to be whole",
            value: &name.to_string(),
        });
    }
    Ok(())
}

/// The boot and mount that a file holds for.
fn of_lifetime(lifetime: &str, out: &mut Out<'_>) {
    out.item(Item::Property {
        key: "boot and mount",
        value: lifetime,
    });
}

fn entries(of: &BoundOffsets, out: &mut Out<'_>) {
    for (name, offset) in of.offsets() {
        if !out.item(Item::CheckpointEntry {
            name,
            offset: *offset,
        }) {
            break;
        }
    }
}

pub(super) fn root_checkpoint(path: &Path, bytes: &[u8], out: &mut Out<'_>) -> Result<(), String> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let checkpoint = checkpoint(&name).ok_or("no checkpoint has this name")?;
    let found = checkpoint.parse(bytes).map_err(|error| error.to_string())?;
    entries(&found, out);
    Ok(())
}

pub(super) fn leader_epochs(bytes: &[u8], out: &mut Out<'_>) -> Result<(), String> {
    let text = std::str::from_utf8(bytes).map_err(|error| error.to_string())?;
    let entries = EpochCache::entries_from_text(text).map_err(|error| error.to_string())?;
    let mut last = None;
    for entry in entries {
        out.item(Item::EpochEntry {
            epoch: entry.epoch,
            start: entry.start,
        });
        if last.is_some_and(|(epoch, start)| epoch >= entry.epoch || start > entry.start) {
            return Err(format!(
                "epoch {} does not ascend from the one before it",
                entry.epoch
            ));
        }
        last = Some((entry.epoch, entry.start));
    }
    Ok(())
}

pub(super) fn partition_metadata(bytes: &[u8], out: &mut Out<'_>) -> Result<(), String> {
    let id = parse_partition_metadata(bytes).ok_or("it is no version 0 with a topic id")?;
    out.item(Item::Property {
        key: "topic_id",
        value: &id.to_string(),
    });
    Ok(())
}

pub(super) fn meta_properties(bytes: &[u8], out: &mut Out<'_>) -> Result<(), String> {
    let meta = MetaProperties::parse(bytes).map_err(|error| error.to_string())?;
    out.item(Item::Property {
        key: "cluster.id",
        value: &meta.cluster_id.0,
    });
    out.item(Item::Property {
        key: "node.id",
        value: &meta.node_id.to_string(),
    });
    if let Some(id) = meta.directory_id {
        out.item(Item::Property {
            key: "directory.id",
            value: &id.to_string(),
        });
    }
    Ok(())
}
