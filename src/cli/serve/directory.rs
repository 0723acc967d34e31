//! The log directory: found or formatted at start, marked clean at the end.

use anyhow::anyhow;
use thalweg_config::BrokerConfig;
use thalweg_control::{Ended, Start, StoppedPartition};
use thalweg_reactor::process;
use thalweg_storage::{CleanMark, DirectoryState, FormatPolicy, LogDir, LogDirError, OpenPolicy};
use thalweg_types::{ClusterId, Uuid};

use super::{disk_failed, fatal};
use crate::args::{Property, ServeArgs, SettingsArgs};
use crate::settings::data_dir;

/// Opens the log directory and says how it was left. An empty one is formatted only when no
/// configuration file names it: a mount that failed must not become a new cluster.
///
/// # Errors
/// It belongs to another process or broker, is not formatted, or the system refuses it.
pub(super) async fn open(
    args: &ServeArgs,
    config: &BrokerConfig,
) -> anyhow::Result<(LogDir, Start)> {
    let cluster_id = config.cluster_id().map(|id| ClusterId(id.to_owned()));
    let policy = OpenPolicy {
        node_id: config.node_id(),
        cluster_id: cluster_id.clone(),
        format: match args.settings.config {
            Some(_) => FormatPolicy::Never,
            None => FormatPolicy::WhenEmpty {
                cluster_id: cluster_id.unwrap_or_else(|| ClusterId(draw_id().to_string())),
                directory_id: draw_id(),
            },
        },
    };
    let opened = LogDir::open(&data_dir(&args.settings, config), policy).await;
    let dir = opened.map_err(|error| match error {
        LogDirError::NotFormatted { .. } => anyhow!(error.to_string() + &advice(&args.settings)),
        other => other.into(),
    })?;
    dir.health()
        .on_failure(|path, reason| disk_failed(path, reason));
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

/// How to format the directory that these settings name.
fn advice(args: &SettingsArgs) -> String {
    let mut command = "thalweg format".to_owned();
    let mut add = |flag: &str, value: &str| {
        let quoted = match value.contains(|c: char| c.is_whitespace() || "'\"$&;<>|*?".contains(c))
        {
            true => format!("'{}'", value.replace('\'', r"'\''")),
            false => value.to_owned(),
        };
        command.push_str(&format!(" {flag} {quoted}"));
    };
    if let Some(file) = &args.config {
        add("--config", &file.to_string_lossy());
    }
    if let Some(dir) = &args.data_dir {
        add("--data-dir", &dir.to_string_lossy());
    }
    for Property { key, value } in &args.properties {
        add("--set", &format!("{key}={value}"));
    }
    format!("; is it mounted? if it is to be a new one: {command}")
}

/// Writes the checkpoints, then the clean marker if every log deserves it.
///
/// # Errors
/// The directory can not be written, or a log was not closed well.
pub(super) async fn close(ended: Ended, stopped: Vec<StoppedPartition>) -> anyhow::Result<()> {
    let partitions = stopped.len();
    match ended.checkpoints.close(ended.metadata_end, stopped).await? {
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
pub(crate) fn draw_id() -> Uuid {
    loop {
        let id = Uuid::from_random(random_bytes());
        if !id.reads_as_option() {
            return id;
        }
    }
}

/// 16 random bytes of the kernel. Ids of clusters and topics must not come from anywhere else, so without
/// them the process ends.
pub(super) fn random_bytes() -> [u8; 16] {
    process::random_bytes()
        .unwrap_or_else(|error| fatal(&format!("the kernel has no random bytes: {error}")))
}
