//! The metadata log: `__cluster_metadata-0`, one fdatasynced log of KRaft records.

mod snapshot;

use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;

use thalweg_metadata::{Record, RecordError};
use thalweg_protocol::Message;
use thalweg_protocol::messages::LeaderChangeMessage;
use thalweg_protocol::messages::leader_change_message::Voter;
use thalweg_protocol::records::{
    BatchBuilder, BatchError, BatchHeader, BatchOptions, BuildError, Codec,
    control::ControlRecordType, crc_matches, records_of,
};
use thalweg_protocol::wire::{EncodeError, Encoder};
use thalweg_reactor::fs;
use thalweg_storage::{
    AppendBatch, Checkpoint, Log, LogDir, LogError, LogOptions, Missing, Opening, PartitionName,
    ReadError, Unwritten,
};
use thalweg_types::limits::{DECOMPRESSED_BATCH_BYTES_MAX, METADATA_ROOM_BYTES};
use thalweg_types::{BrokerId, ClusterId, LeaderEpoch, Offset, TimestampMs, TopicPartition, Uuid};

/// Name of the metadata topic.
pub(crate) const METADATA_TOPIC: &str = "__cluster_metadata";

/// Its topic id, fixed by Kafka (KIP-500).
const METADATA_TOPIC_ID: Uuid = Uuid([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);

/// In the directory of the metadata log: the id of its cluster, as text.
const CLUSTER_FILE: &str = "thalweg-cluster-id";
/// A larger one is no id.
const CLUSTER_FILE_BYTES_MAX: usize = 4096;

/// Bytes read at once while replaying.
const REPLAY_READ_BYTES: u32 = 1024 * 1024;

/// The metadata log can not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum MetadataLogError {
    /// The log itself. After a refused append it is as it was before.
    #[error("metadata log: {0}")]
    Log(#[from] LogError),
    /// Reading it back.
    #[error("reading the metadata log: {0}")]
    Read(#[from] ReadError),
    /// Reading a range of its file.
    #[error("reading the metadata log at offset {offset}: {source}")]
    Io {
        /// Where the range begins.
        offset: Offset,
        /// The error of the system.
        source: std::io::Error,
    },
    /// A batch that can not be read.
    #[error("metadata log, offset {offset}: {source}")]
    Batch {
        /// Where the batch begins.
        offset: Offset,
        /// What is wrong with it.
        source: BatchError,
    },
    /// A record that this release can not read.
    #[error("metadata log, offset {offset}: {source}")]
    Record {
        /// Offset of the record.
        offset: Offset,
        /// What is wrong with it.
        source: RecordError,
    },
    /// What was before is in a snapshot of Kafka's, which is not there or damaged.
    #[error(
        "the metadata log begins at offset {start}, and no whole snapshot (*.checkpoint) of what was before is in \
         {METADATA_TOPIC}-0: restore that folder from a backup. Nothing was changed"
    )]
    BehindSnapshot {
        /// Its first offset.
        start: Offset,
    },
    /// A snapshot without its header or footer.
    #[error("the snapshot does not begin with a header, or not end with a footer")]
    CutSnapshot,
    /// There are partitions, and no metadata that knows them.
    #[error(
        "{} is missing, and there are partitions beside it: restore it from a backup (to begin anew, \
         take an empty data directory). No partition was changed", path.display()
    )]
    Missing {
        /// Its directory.
        path: PathBuf,
    },
    /// Committed records are not there any more (RP-59).
    #[error(
        "{} ends at offset {end}, and its records up to offset {known_end} were on the disk: restore it \
         from a backup (to begin anew, take an empty data directory). No partition was changed", path.display()
    )]
    Shortened {
        /// Its directory.
        path: PathBuf,
        /// Offset after its last record.
        end: Offset,
        /// What the recovery point checkpoint says.
        known_end: Offset,
    },
    /// `meta.properties` names another cluster than the one that the metadata log was written in (ST-28).
    #[error(
        "cluster.id of {} is {found}, and the metadata log beside it is of cluster {wanted} ({}): one of          them is damaged or from elsewhere. Put the file right, or restore the directory from a backup.          Nothing was changed", meta.display(), file.display()
    )]
    OtherCluster {
        /// `meta.properties`.
        meta: PathBuf,
        /// What it says.
        found: ClusterId,
        /// Where the metadata log keeps its own.
        file: PathBuf,
        /// What that says.
        wanted: ClusterId,
    },
    /// A batch that is not what was written.
    #[error("the metadata log is damaged at offset {offset}: the checksum does not match")]
    Checksum {
        /// Where the batch begins.
        offset: Offset,
    },
    /// Records that do not fit a batch.
    #[error("metadata batch: {0}")]
    Build(#[from] BuildError),
    /// The control record of an epoch.
    #[error("metadata control record: {0}")]
    Encode(#[from] EncodeError),
}

/// The open log, positioned at its end.
pub struct MetadataLog {
    log: Log,
    epoch: LeaderEpoch,
    leader: BrokerId,
    has_begun: bool,
}

/// The cluster id is in `meta.properties` alone, where one flipped bit makes another cluster of it: it is
/// kept beside the metadata log too, and both must agree.
async fn check_cluster(dir: &LogDir, metadata_dir: &Path) -> Result<(), MetadataLogError> {
    let file = metadata_dir.join(CLUSTER_FILE);
    let io = |source| MetadataLogError::Io {
        offset: Offset::ZERO,
        source,
    };
    let found = &dir.meta().cluster_id;
    let kept = match fs::read_file(&file, CLUSTER_FILE_BYTES_MAX).await {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let written = fs::write_file_atomically(&file, Bytes::from(found.0.clone())).await;
            return match written {
                // The next start does it.
                Err(error) if thalweg_storage::may_pass(&error) => Ok(()),
                other => other.map_err(io),
            };
        }
        other => other.map_err(io)?,
    };
    let wanted = ClusterId(String::from_utf8_lossy(&kept).trim().to_owned());
    match wanted == *found {
        true => Ok(()),
        false => Err(MetadataLogError::OtherCluster {
            meta: dir.meta_file(),
            found: found.clone(),
            file,
            wanted,
        }),
    }
}

/// A log that ends below its recovery point, in the words of this one.
fn ends_early(error: LogError, dir: &Path) -> MetadataLogError {
    match error {
        LogError::RecordsMissing {
            what: Missing::End,
            from,
            up_to,
            ..
        } => MetadataLogError::Shortened {
            path: dir.to_owned(),
            end: from,
            known_end: up_to,
        },
        other => MetadataLogError::Log(other),
    }
}

impl MetadataLog {
    /// Topic and index: names its directory.
    #[must_use]
    pub fn partition() -> PartitionName {
        PartitionName::new(METADATA_TOPIC, 0)
    }

    /// The same by the topic's id.
    #[must_use]
    pub fn id() -> TopicPartition {
        TopicPartition {
            topic: METADATA_TOPIC_ID,
            partition: MetadataLog::partition().partition,
        }
    }

    /// Opens the log in `dir`, or creates it where there are no partitions yet, and returns every
    /// record in it, oldest first.
    ///
    /// The epoch of this start is one above the last one in the log; [`MetadataLog::begin_epoch`]
    /// writes it.
    ///
    /// # Errors
    /// See [`MetadataLogError`]. What was durable is never cut away: every append is fdatasynced
    /// before it shows, so only a tail that nobody was told of may be torn.
    pub async fn open(dir: &LogDir) -> Result<(MetadataLog, Vec<Record>), MetadataLogError> {
        // `append_durable` tells the outcome of each append; the events say nothing more.
        let sink = Rc::new(|_| ());
        let name = MetadataLog::partition();
        let options = LogOptions {
            health: Arc::clone(dir.health()),
            ..LogOptions::default()
        };
        let known_end = dir.loaded(Checkpoint::RecoveryPoint).get(&name).copied();
        let known_end = known_end.unwrap_or(Offset::ZERO);
        let opening = Opening {
            unwritten: Unwritten::LastWrite,
            // Told below, in the words of this log.
            known_end: None,
            ..dir.opening(&name, METADATA_TOPIC_ID)
        };
        let path = dir.path().join(name.to_string());
        let exists = fs::exists(&path)
            .await
            .map_err(|source| MetadataLogError::Io {
                offset: Offset::ZERO,
                source,
            })?;
        let partitions = dir.partition_names().await?;
        let serves_topics = partitions.iter().any(|found| *found != name);
        if !exists && (serves_topics || known_end > Offset::ZERO) {
            return Err(MetadataLogError::Missing { path });
        }
        let log = if exists {
            let opened = Log::open(dir.path(), name, options, opening, sink).await;
            opened.map_err(|error| ends_early(error, &path))?.0
        } else {
            Log::create(dir.path(), name, METADATA_TOPIC_ID, options, sink).await?
        };
        let end = log.written_end();
        if end < known_end || (end == Offset::ZERO && serves_topics) {
            return Err(MetadataLogError::Shortened {
                path,
                end,
                known_end,
            });
        }
        let mut opened = MetadataLog {
            log,
            epoch: LeaderEpoch(0),
            leader: dir.meta().node_id,
            has_begun: false,
        };
        let records = opened.replay(&path).await?;
        check_cluster(dir, &path).await?;
        opened.epoch = LeaderEpoch(opened.epoch.0 + 1);
        Ok((opened, records))
    }

    /// Every record, of the log in `dir`: where it does not begin at offset 0, those of a snapshot first.
    async fn replay(&mut self, dir: &Path) -> Result<Vec<Record>, MetadataLogError> {
        let (start, end) = (self.log.start_offset(), self.log.written_end());
        let (mut records, from) = match start > Offset::ZERO {
            true => {
                let snapshot = snapshot::newest(dir, (start, end)).await?;
                self.epoch = snapshot.epoch;
                (snapshot.records, snapshot.end)
            }
            false => (Vec::new(), start),
        };
        let mut next = from;
        while next < end {
            let plan = self.log.read_plan(next, end, REPLAY_READ_BYTES).await?;
            let bytes = fs::read_at(&plan.file, plan.position, plan.len as usize)
                .await
                .map_err(|source| MetadataLogError::Io {
                    offset: next,
                    source,
                })?;
            let mut rest: &[u8] = &bytes;
            while !rest.is_empty() {
                let header = read_batch(rest, next, from, &mut records)?.header;
                self.epoch = self.epoch.max(header.partition_leader_epoch);
                next = header.last_offset().plus(1);
                rest = rest.get(header.total_bytes()..).unwrap_or_default();
            }
        }
        Ok(records)
    }

    /// Offset that the next record will get.
    #[must_use]
    pub fn end(&self) -> Offset {
        self.log.written_end()
    }

    /// The epoch in which this start writes.
    #[must_use]
    pub fn epoch(&self) -> LeaderEpoch {
        self.epoch
    }

    /// Writes the control batch that opens this start's epoch, as a KRaft leader does (KIP-595).
    ///
    /// # Errors
    /// See [`MetadataLogError`].
    pub async fn begin_epoch(&mut self, now: TimestampMs) -> Result<(), MetadataLogError> {
        let leader = self.leader;
        let voter = Voter {
            voter_id: leader.0,
            ..Default::default()
        };
        let message = LeaderChangeMessage {
            leader_id: leader.0,
            voters: vec![voter.clone()],
            granting_voters: vec![voter],
            ..Default::default()
        };
        let mut value = Encoder::new();
        message.encode(&mut value, 0)?;
        let value = value.finish().bytes;
        let mut builder = BatchBuilder::new(BatchOptions {
            is_control: true,
            ..self.batch_options()
        });
        builder.push(
            now,
            Some(&ControlRecordType::LeaderChange.key()),
            Some(&value),
            &[],
        )?;
        self.write(builder, now).await?;
        self.has_begun = true;
        Ok(())
    }

    /// True once the epoch of this start is in the log.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// Appends `records` as one batch and returns when they are on the disk.
    ///
    /// # Errors
    /// See [`MetadataLogError`].
    pub async fn append(
        &mut self,
        records: &[Record],
        now: TimestampMs,
    ) -> Result<(), MetadataLogError> {
        let mut builder = BatchBuilder::new(self.batch_options());
        for record in records {
            builder.push(now, None, Some(&record.encode()?), &[])?;
        }
        self.write(builder, now).await
    }

    fn batch_options(&self) -> BatchOptions {
        BatchOptions {
            base_offset: self.log.assigned_end(),
            leader_epoch: self.epoch,
            ..BatchOptions::default()
        }
    }

    async fn write(
        &mut self,
        mut builder: BatchBuilder,
        now: TimestampMs,
    ) -> Result<(), MetadataLogError> {
        let base = self.log.assigned_end();
        let count = i64::from(builder.record_count());
        let bytes = builder.build(Codec::None)?;
        self.log
            .append_durable(AppendBatch {
                bytes,
                base_offset: base,
                last_offset: base.plus(count - 1),
                max_timestamp: now,
                offset_of_max_timestamp: base,
                leader_epoch: self.epoch,
            })
            .await?;
        // What is written on a full disk, such as that a topic goes, has its room already then.
        self.log.keep_room(METADATA_ROOM_BYTES).await;
        Ok(())
    }

    /// Closes the log; everything in it is on the disk already.
    ///
    /// # Errors
    /// The error of writing its indexes.
    pub async fn close(&self) -> Result<(), MetadataLogError> {
        self.log.close().await?;
        Ok(())
    }

    /// Everything below is on the disk.
    #[must_use]
    pub fn durable_end(&self) -> Offset {
        self.log.durable_end()
    }
}

/// One batch as it was read.
struct ReadBatch {
    header: BatchHeader,
    /// Of a control batch.
    controls: Vec<ControlRecordType>,
}

/// Takes the records out of the batch that begins with `bytes` at offset `at`, those at `from` and after it.
fn read_batch(
    bytes: &[u8],
    at: Offset,
    from: Offset,
    records: &mut Vec<Record>,
) -> Result<ReadBatch, MetadataLogError> {
    let bad_batch = |source| MetadataLogError::Batch { offset: at, source };
    let batch = records_of(bytes, DECOMPRESSED_BATCH_BYTES_MAX).map_err(bad_batch)?;
    let header = batch.header().clone();
    // Also after a clean stop: it is read whole anyway, and everything else hangs on it.
    let whole = bytes.get(..header.total_bytes()).unwrap_or(bytes);
    if !crc_matches(whole) {
        return Err(MetadataLogError::Checksum { offset: at });
    }
    let mut controls = Vec::new();
    for record in batch.iter() {
        let record = record.map_err(bad_batch)?;
        if header.is_control() {
            controls.extend(ControlRecordType::of_key(record.key.unwrap_or_default()));
        } else if record.offset >= from {
            let decoded = Record::decode(record.value.unwrap_or_default());
            records.push(decoded.map_err(|source| MetadataLogError::Record {
                offset: record.offset,
                source,
            })?);
        }
    }
    Ok(ReadBatch { header, controls })
}
