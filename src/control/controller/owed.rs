//! What a start has to write into the metadata log, on a disk that has no room for it: the broker serves what
//! it can, and writes it down before any other change (ST-20).

use std::time::Duration;

use thalweg_metadata::{Image, Record, ReplicaHome};
use thalweg_reactor::{mailbox, time};
use thalweg_types::{BrokerId, Offset, TimestampMs};

use super::{Controller, Start};
use crate::log_dirs::LogDirs;
use crate::metadata_log::{MetadataLog, MetadataLogError};
use crate::requests::ControlRequest;

/// How often it is tried again.
const TRY_EVERY: Duration = Duration::from_secs(2);

/// Records that hold already and are not in the log yet.
pub(super) struct Owed {
    records: Vec<Record>,
}

/// Where the partitions are that `local` has, which it leads, and in what epochs. The metadata log ends at
/// `metadata_end`.
pub(super) async fn of_leaders(
    image: &Image,
    dirs: &LogDirs,
    local: BrokerId,
    start: Start,
    metadata_end: Offset,
) -> Vec<Record> {
    let home = |at| dirs.replica_home(image, local, at);
    let works = |at| matches!(home(at), Some(ReplicaHome::In(_)));
    let mut records = image.settle_directories(local, home);
    records.extend(image.elect_for_leaderless(local, works));
    if start == Start::AfterCrash && !dirs.are_epochs_unseen(metadata_end) {
        let untouched = dirs.untouched(image, local).await;
        let raised = |at| works(at) && !untouched.contains(&at);
        records.extend(image.raise_leader_epochs(local, raised));
    }
    records
}

impl Owed {
    /// Writes the epoch of this start and `records`, if there is room.
    ///
    /// # Errors
    /// See [`MetadataLogError`]; a lack of room or rights is none.
    pub(super) async fn write(
        log: &mut MetadataLog,
        records: &[Record],
    ) -> Result<Owed, MetadataLogError> {
        let mut owed = Owed {
            records: records.to_vec(),
        };
        match owed.settle(log).await {
            Err(MetadataLogError::Log(error)) if error.may_pass() => {
                tracing::error!(%error, "no room to write this start into the metadata log: serving what is \
                    there; topics can not be made or changed until there is some");
                Ok(owed)
            }
            other => other.map(|()| owed),
        }
    }

    /// Nothing is owed.
    pub(super) fn is_settled(&self, log: &MetadataLog) -> bool {
        log.has_begun() && self.records.is_empty()
    }

    async fn settle(&mut self, log: &mut MetadataLog) -> Result<(), MetadataLogError> {
        let now = TimestampMs(time::unix_ms());
        if !log.has_begun() {
            log.begin_epoch(now).await?;
        }
        if !self.records.is_empty() {
            log.append(&self.records, now).await?;
            self.records.clear();
        }
        Ok(())
    }
}

impl Controller {
    /// Writes down what is owed: to be called before any other record is written.
    pub(super) async fn settle(&mut self) -> Result<(), MetadataLogError> {
        if self.owed.is_settled(&self.log) {
            return Ok(());
        }
        self.owed.settle(&mut self.log).await?;
        tracing::info!("the disk has room again: this start is in the metadata log");
        Ok(())
    }

    /// The next request. Meanwhile what is owed is tried again.
    pub(super) async fn next_request(
        &mut self,
        requests: &mut mailbox::Receiver<ControlRequest>,
    ) -> Option<ControlRequest> {
        loop {
            if self.owed.is_settled(&self.log) {
                return requests.recv().await;
            }
            match time::timeout(TRY_EVERY, requests.recv()).await {
                Ok(request) => return request,
                Err(_) => {
                    if let Err(error) = self.settle().await {
                        tracing::debug!(%error, "the metadata log is still behind");
                    }
                }
            }
        }
    }
}
