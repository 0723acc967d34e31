//! The backlog that cold readers drain: written once, kept over the rounds, and pushed out of the page cache before
//! each.

use std::fs::{self, File};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use thalweg_client::{Cluster, MissingTopic, OffsetSpec};

use crate::job::{SampleBatch, TailJob};
use crate::load::{Keep, Part};
use crate::stage;
use crate::workload::{Cold, Workload};

const TOPIC: &str = "bench-backlog";

/// The readers of the backlog; writes it where it is not there yet.
///
/// # Errors
/// When a request fails, or what is there is of another size.
pub fn cold_part(how: &Cold, address: &str) -> Result<Part> {
    let batches = ready(how, address)?;
    Ok(Part {
        name: "cold",
        job: Box::new(TailJob::draining(TOPIC, how, batches)?),
        connections: how.connections,
        in_flight: 1,
        rate: None,
        reader: how.reader,
        keep: Keep::Latency,
        gives_way: false,
    })
}

/// Writes the backlog where it is not there yet; returns how many batches each partition has.
///
/// # Errors
/// When a request fails, or what is there is of another size.
pub fn ready(how: &Cold, address: &str) -> Result<usize> {
    let workload = Workload::of_backlog(how);
    let batch = SampleBatch::of(&workload, 0)?;
    let batches = stage::batches_for(batch.bytes.len(), how.connections, how.backlog_mb);
    let mut cluster = stage::cluster(address)?;
    if cluster.topic(TOPIC, MissingTopic::Refuse).is_err() {
        stage::create_topic(&mut cluster, TOPIC, workload.partitions, &workload.topic)?;
        return stage::fill(&workload, TOPIC, address, how.backlog_mb);
    }
    let wanted = (batches * batch.records) as i64;
    for end in ends(&mut cluster, how.connections)? {
        ensure!(
            end == wanted,
            "topic {TOPIC} holds {end} records in a partition and not {wanted}; delete it"
        );
    }
    Ok(batches)
}

fn ends(cluster: &mut Cluster, partitions: usize) -> Result<Vec<i64>> {
    let all: Vec<i32> = (0..i32::try_from(partitions)?).collect();
    let found = cluster.offsets(TOPIC, &all, OffsetSpec::Latest)?;
    Ok(found.values().filter_map(|end| end.offset).collect())
}

/// Deletes the backlog if there is one.
///
/// # Errors
/// When the broker refuses.
pub fn remove(address: &str) -> Result<()> {
    let mut cluster = stage::cluster(address)?;
    if cluster.topic(TOPIC, MissingTopic::Refuse).is_ok() {
        cluster.delete_topic(TOPIC)?;
    }
    Ok(())
}

/// Pushes the backlog's segments under a broker's data directory out of the page cache, as [`evict_topic`].
///
/// # Errors
/// When the directory or one of the files can not be read.
pub fn evict(dir: &Path) -> Result<()> {
    evict_topic(dir, TOPIC)
}

/// Pushes the segments of all topics that begin so out of the page cache: written back by fsync, then dropped by
/// `posix_fadvise(POSIX_FADV_DONTNEED)`. Pages that some process has mapped stay.
///
/// # Errors
/// When the directory or one of the files can not be read.
pub fn evict_topic(dir: &Path, topic: &str) -> Result<()> {
    let shown = || dir.display().to_string();
    for entry in fs::read_dir(dir).with_context(shown)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if !name.starts_with(topic) || !path.is_dir() {
            continue;
        }
        for file in fs::read_dir(&path)? {
            let path = file?.path();
            if path.extension().is_some_and(|ending| ending == "log") {
                drop_pages(&path).with_context(|| path.display().to_string())?;
            }
        }
    }
    Ok(())
}

fn drop_pages(path: &Path) -> Result<()> {
    let file = File::open(path)?;
    file.sync_data()?;
    posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{TOPIC, evict};
    use std::fs;

    #[test]
    fn eviction_leaves_the_bytes_alone() {
        let dir = tempfile::tempdir().unwrap();
        let partition = dir.path().join(format!("{TOPIC}-0"));
        fs::create_dir(&partition).unwrap();
        let segment = partition.join("00000000000000000000.log");
        fs::write(&segment, vec![7; 100_000]).unwrap();
        evict(dir.path()).unwrap();
        assert_eq!(fs::read(&segment).unwrap(), vec![7; 100_000]);
        let nowhere = evict(&dir.path().join("nowhere")).unwrap_err();
        assert!(format!("{nowhere:#}").contains("nowhere"));
    }
}
