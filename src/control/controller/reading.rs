//! What the metadata log says, before anything is changed for it.

use thalweg_metadata::{Broker, Image, Record};
use thalweg_storage::LogDir;
use thalweg_types::BrokerId;

use super::StartError;
use crate::metadata_log::MetadataLog;

/// The metadata as its log has it: read and checked, and nothing written. A start that is refused here can
/// be tried again as if it had not been.
pub struct ReadMetadata {
    pub(super) log: MetadataLog,
    /// Every record, oldest first.
    pub(super) records: Vec<Record>,
    pub(super) image: Image,
}

impl ReadMetadata {
    /// Reads the log in `dir`, or makes it where there are no partitions yet, for the broker `local`.
    ///
    /// # Errors
    /// See [`StartError`].
    pub async fn read(dir: &LogDir, local: BrokerId) -> Result<ReadMetadata, StartError> {
        let (log, records) = MetadataLog::open(dir).await?;
        let (image, _) = Image::default().apply(&records)?;
        check_directory(dir, image.broker(local))?;
        Ok(ReadMetadata {
            log,
            records,
            image,
        })
    }
}

/// ST-28: the metadata was written in this directory, unless its id or the metadata came from elsewhere.
fn check_directory(dir: &LogDir, registered: Option<&Broker>) -> Result<(), StartError> {
    let found = dir.meta().directory_id;
    let known = registered.map(|broker| &broker.log_dirs[..]);
    match known.unwrap_or_default() {
        [] => Ok(()),
        known if found.is_some_and(|id| known.contains(&id)) => Ok(()),
        [wanted, ..] => Err(StartError::OtherDirectory {
            file: dir.meta_file(),
            found,
            wanted: *wanted,
        }),
    }
}
