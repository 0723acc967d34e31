//! Looking at files of a log directory without a broker: shows what is in them and what is wrong.
//!
//! Reads only, takes no lock, and hands everything on as it comes: memory does not grow with the size
//! of a file. A running broker's files can be inspected; the end of its active segment may then look
//! torn.

mod index_file;
mod log_file;
mod next_file;
mod small_file;
mod text_file;

use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use thalweg_protocol::records::{BatchHeader, Record};
use thalweg_reactor::fs::{self, File};
use thalweg_types::{LeaderEpoch, Offset, TimestampMs};

use crate::name::{DirKind, FileKind, PartitionName, dir_kind, file_kind};

/// How closely to look.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct InspectOptions {
    /// Also check checksums, the records inside of batches, and indexes against their log.
    pub verify: bool,
    /// Also show records.
    pub records: bool,
}

/// What kind of file it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Record batches.
    Log,
    /// Offsets to positions.
    OffsetIndex,
    /// Timestamps to offsets.
    TimeIndex,
    /// One of the root checkpoints.
    Checkpoint,
    /// `leader-epoch-checkpoint`.
    LeaderEpochs,
    /// `partition.metadata`.
    PartitionMetadata,
    /// `meta.properties`.
    MetaProperties,
    /// `thalweg-quarantine`.
    Quarantine,
    /// `.kafka_cleanshutdown`.
    CleanMarker,
    /// `thalweg-written-checkpoint`.
    Marks,
    /// `thalweg-page-cache`.
    PageCache,
    /// Transactions aborted in a segment.
    TxnIndex,
    /// What is known of producers at an offset.
    Snapshot,
    /// The file that is made ahead for the next segment.
    NextSegment,
    /// A file that is told by its name and not looked into.
    Opaque,
}

/// One thing seen, in the order of the files.
#[derive(Clone, Copy, Debug)]
pub enum Item<'a> {
    /// A file begins.
    File {
        /// Where it is.
        path: &'a Path,
        /// What it is.
        kind: Kind,
        /// Its length.
        bytes: u64,
    },
    /// A batch of a `.log` file.
    Batch {
        /// Byte at which it begins.
        position: u64,
        /// Its header.
        header: &'a BatchHeader,
    },
    /// A record of the batch before it.
    Record {
        /// The batch.
        header: &'a BatchHeader,
        /// The record.
        record: &'a Record<'a>,
    },
    /// An entry of an `.index` file.
    IndexEntry {
        /// Last offset of the batch.
        offset: Offset,
        /// Byte at which the batch begins.
        position: u32,
    },
    /// An entry of a `.timeindex` file.
    TimeIndexEntry {
        /// Largest timestamp up to the batch.
        timestamp: TimestampMs,
        /// Last offset of the batch.
        offset: Offset,
    },
    /// An entry of a root checkpoint.
    CheckpointEntry {
        /// Of which partition.
        name: &'a PartitionName,
        /// Its offset.
        offset: Offset,
    },
    /// An entry of `leader-epoch-checkpoint`.
    EpochEntry {
        /// The epoch.
        epoch: LeaderEpoch,
        /// Where it begins.
        start: Offset,
    },
    /// A line `key=value` of `partition.metadata` or `meta.properties`.
    Property {
        /// Left of the sign.
        key: &'a str,
        /// Right of it.
        value: &'a str,
    },
    /// Something is wrong, or worth a word, in the file before it.
    Finding(&'a Finding),
}

/// How bad a finding is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Severity {
    /// Normal in some states, for example a torn tail after a crash or a file that is not looked into.
    Note,
    /// Not as it was written.
    Damage,
}

/// Something that is wrong or worth a word.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// In which file.
    pub path: PathBuf,
    /// At which byte, if it has a place.
    pub position: Option<u64>,
    /// How bad.
    pub severity: Severity,
    /// What.
    pub text: String,
}

/// Sums over everything inspected.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Summary {
    /// Files looked at.
    pub files: u64,
    /// Batches in them.
    pub batches: u64,
    /// Records in those, by the batch headers.
    pub records: u64,
    /// Bytes of valid batches.
    pub batch_bytes: u64,
    /// Entries of indexes and checkpoints.
    pub entries: u64,
    /// Findings of [`Severity::Damage`].
    pub damages: u64,
}

/// Called with each item; [`ControlFlow::Break`] ends the inspection.
pub type Visit<'a> = &'a mut dyn FnMut(Item<'_>) -> ControlFlow<()>;

/// Inspects a file, a partition directory or a log directory.
///
/// # Errors
/// When a file or directory can not be read; what is wrong inside of a file is a [`Finding`].
pub async fn inspect(
    path: &Path,
    options: InspectOptions,
    visit: Visit<'_>,
) -> io::Result<Summary> {
    let mut out = Out {
        visit,
        options,
        summary: Summary::default(),
        stopped: false,
    };
    if !fs::metadata(path).await?.is_dir {
        inspect_file(path, &mut out).await?;
        return Ok(out.summary);
    }
    inspect_dir(path, &mut out).await?;
    for partition in partitions_in(path).await? {
        inspect_dir(&path.join(partition), &mut out).await?;
    }
    Ok(out.summary)
}

/// Where items go, with what is counted on the way.
pub(super) struct Out<'a> {
    visit: Visit<'a>,
    pub(super) options: InspectOptions,
    pub(super) summary: Summary,
    stopped: bool,
}

impl Out<'_> {
    /// Hands an item on. `false` when the visitor wants no more.
    pub(super) fn item(&mut self, item: Item<'_>) -> bool {
        match item {
            Item::File { .. } => self.summary.files += 1,
            Item::Batch { header, .. } => {
                self.summary.batches += 1;
                self.summary.records += u64::try_from(header.record_count).unwrap_or(0);
                self.summary.batch_bytes += header.total_bytes() as u64;
            }
            Item::IndexEntry { .. }
            | Item::TimeIndexEntry { .. }
            | Item::CheckpointEntry { .. }
            | Item::EpochEntry { .. } => self.summary.entries += 1,
            Item::Finding(finding) => {
                self.summary.damages += u64::from(finding.severity == Severity::Damage);
            }
            Item::Record { .. } | Item::Property { .. } => {}
        }
        self.stopped = self.stopped || (self.visit)(item).is_break();
        !self.stopped
    }

    pub(super) fn damage(&mut self, path: &Path, position: Option<u64>, text: String) -> bool {
        self.finding(path, position, Severity::Damage, text)
    }

    pub(super) fn note(&mut self, path: &Path, position: Option<u64>, text: String) -> bool {
        self.finding(path, position, Severity::Note, text)
    }

    fn finding(
        &mut self,
        path: &Path,
        position: Option<u64>,
        severity: Severity,
        text: String,
    ) -> bool {
        self.item(Item::Finding(&Finding {
            path: path.to_owned(),
            position,
            severity,
            text,
        }))
    }

    pub(super) fn stopped(&self) -> bool {
        self.stopped
    }
}

/// What is wrong with the records in a batch whose checksum holds.
pub(crate) async fn damage_inside(
    path: &Path,
    file: &File,
    position: u64,
    header: &BatchHeader,
) -> io::Result<Option<String>> {
    let mut damage = None;
    let mut visit = |item: Item<'_>| {
        if let Item::Finding(finding) = item
            && finding.severity == Severity::Damage
        {
            damage = Some(finding.text.clone());
        }
        ControlFlow::Continue(())
    };
    let mut out = Out {
        visit: &mut visit,
        options: InspectOptions {
            verify: true,
            records: false,
        },
        summary: Summary::default(),
        stopped: false,
    };
    log_file::look_into(path, file, position, header, &mut out).await?;
    Ok(damage)
}

/// The files right in a directory, each segment's log before its indexes.
async fn inspect_dir(dir: &Path, out: &mut Out<'_>) -> io::Result<()> {
    let mut names: Vec<String> = fs::list_dir(dir)
        .await?
        .into_iter()
        .filter(|entry| !entry.is_dir)
        .map(|entry| entry.name.to_string_lossy().into_owned())
        .collect();
    names.sort_by_key(|name| {
        let rank = match file_kind(name) {
            FileKind::Other | FileKind::Leftover => (0, Offset::ZERO, 0),
            FileKind::Log(base) => (1, base, 0),
            FileKind::Index(base) => (1, base, 1),
            FileKind::TimeIndex(base) => (1, base, 2),
            FileKind::TxnIndex(base) => (1, base, 3),
            FileKind::Snapshot(base) => (1, base, 4),
            FileKind::Next => (2, Offset::ZERO, 0),
        };
        (rank, name.clone())
    });
    // Segments of one log follow one another: offsets and epochs must not run back.
    let (mut before, mut last) = (log_file::Place::default(), None);
    for name in names {
        if out.stopped() {
            return Ok(());
        }
        let path = dir.join(&name);
        match file_kind(&name) {
            FileKind::Log(base) => {
                before = log_file::inspect(&path, Kind::Log, base, before, out).await?;
                last = Some(base);
            }
            FileKind::Next => next_file::inspect(&path, last, before, out).await?,
            FileKind::Index(_)
            | FileKind::TimeIndex(_)
            | FileKind::TxnIndex(_)
            | FileKind::Snapshot(_)
            | FileKind::Leftover
            | FileKind::Other => inspect_file(&path, out).await?,
        }
    }
    Ok(())
}

async fn inspect_file(path: &Path, out: &mut Out<'_>) -> io::Result<()> {
    let name = path
        .file_name()
        .map(|name| name.to_string_lossy().into_owned());
    let name = name.unwrap_or_default();
    match file_kind(&name) {
        FileKind::Log(base) => {
            log_file::inspect(path, Kind::Log, base, log_file::Place::default(), out).await?;
            Ok(())
        }
        FileKind::Next => next_file::inspect(path, None, log_file::Place::default(), out).await,
        FileKind::Index(base) => index_file::offsets(path, base, out).await,
        FileKind::TimeIndex(base) => index_file::times(path, base, out).await,
        FileKind::TxnIndex(base) => small_file::inspect(path, Kind::TxnIndex, base, out).await,
        FileKind::Snapshot(at) => small_file::inspect(path, Kind::Snapshot, at, out).await,
        FileKind::Leftover => opaque(path, out).await,
        FileKind::Other => match text_file::kind(&name) {
            Some(kind) => small_file::inspect(path, kind, Offset::ZERO, out).await,
            None => opaque(path, out).await,
        },
    }
}

async fn opaque(path: &Path, out: &mut Out<'_>) -> io::Result<()> {
    let bytes = fs::metadata(path).await?.len;
    out.item(Item::File {
        path,
        kind: Kind::Opaque,
        bytes,
    });
    Ok(())
}

async fn partitions_in(dir: &Path) -> io::Result<Vec<String>> {
    let mut names: Vec<String> = fs::list_dir(dir)
        .await?
        .into_iter()
        .filter(|entry| entry.is_dir)
        .map(|entry| entry.name.to_string_lossy().into_owned())
        .filter(|name| match dir_kind(name) {
            DirKind::Partition(_) | DirKind::Stray => true,
            DirKind::Deleted | DirKind::Future(_) | DirKind::Other => false,
        })
        .collect();
    names.sort();
    Ok(names)
}
