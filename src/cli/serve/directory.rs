//! The log directory: found or formatted at start, marked clean at the end.

use std::path::PathBuf;

use anyhow::anyhow;
use thalweg_config::BrokerConfig;
use thalweg_control::{Ended, MetadataLog, Start, StoppedPartition};
use thalweg_storage::{CleanMark, DirectoryState, FormatPolicy, LogDir, OpenPolicy};
use thalweg_types::{ClusterId, Uuid};

use super::fatal;
use crate::args::ServeArgs;

const DATA_DIR_DEFAULT: &str = "data";

/// Opens the log directory, formatting it if it is empty, and says how it was left.
///
/// # Errors
/// It belongs to another process or broker, or the system refuses it.
pub(super) async fn open(
    args: &ServeArgs,
    config: &BrokerConfig,
) -> anyhow::Result<(LogDir, Start)> {
    let policy = OpenPolicy {
        node_id: config.node_id(),
        cluster_id: None,
        format: FormatPolicy::WhenEmpty {
            cluster_id: ClusterId(draw_id().to_string()),
            directory_id: draw_id(),
        },
    };
    let dir = LogDir::open(&data_dir(args, config), policy).await?;
    let start = match dir.state() {
        DirectoryState::New => Start::Formatted,
        DirectoryState::Clean { .. } => Start::AfterCleanStop,
        DirectoryState::Unclean => {
            tracing::warn!(dir = %dir.path().display(),
                "the last process did not stop in order: checking logs, raising leader epochs");
            Start::AfterCrash
        }
    };
    Ok((dir, start))
}

fn data_dir(args: &ServeArgs, config: &BrokerConfig) -> PathBuf {
    match (&args.data_dir, config.log_dir()) {
        (Some(dir), _) => dir.clone(),
        (None, Some(dir)) => PathBuf::from(dir),
        (None, None) => PathBuf::from(DATA_DIR_DEFAULT),
    }
}

/// Writes the checkpoints, then the clean marker if every log deserves it.
///
/// # Errors
/// The directory can not be written, or a log was not closed well.
pub(super) async fn close(ended: Ended, stopped: Vec<StoppedPartition>) -> anyhow::Result<()> {
    let partitions = stopped.len();
    let metadata = (MetadataLog::partition(), ended.metadata_end);
    match ended.checkpoints.close(metadata, stopped).await? {
        CleanMark::Written => {
            tracing::info!(partitions, "stopped");
            Ok(())
        }
        CleanMark::Withheld(open) => Err(anyhow!(
            "stopped, but {} not closed well: the next start checks every log",
            open.iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join(", ")
        )),
    }
}

/// A random id that no command line takes for an option.
fn draw_id() -> Uuid {
    loop {
        let id = Uuid::from_random(random_bytes());
        if !id.reads_as_option() {
            return id;
        }
    }
}

/// 16 random bytes of the kernel.
pub(super) fn random_bytes() -> [u8; 16] {
    let mut bytes = [0; 16];
    if let Err(error) = getrandom::fill(&mut bytes) {
        fatal(&format!("the kernel has no random bytes: {error}"));
    }
    bytes
}
