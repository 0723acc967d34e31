//! The log directories: found or formatted at start, marked clean at the end.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use anyhow::{anyhow, bail};
use thalweg_config::BrokerConfig;
use thalweg_control::{DirFound, DirIndex, Ended, LogDirs, Start, StoppedPartition};
use thalweg_reactor::{fs, process};
use thalweg_storage::{
    CleanMark, DirHealth, DirectoryState, FormatPolicy, LogDir, LogDirError, OpenPolicy,
};
use thalweg_types::{ClusterId, Uuid};

use super::fatal;
use crate::args::{Property, ServeArgs, SettingsArgs};
use crate::settings::data_dirs;

/// Opens the log directories and says how they were left. Empty ones are formatted only when all of them
/// are, and no configuration file names them: a mount that failed must not become a new cluster. One that
/// is missing, empty or can not be read while that of the metadata can is taken for failed.
///
/// # Errors
/// That of the metadata can not be used; or one belongs to another process, broker or cluster.
pub(super) async fn open(
    args: &ServeArgs,
    config: &BrokerConfig,
) -> anyhow::Result<(LogDirs, Start)> {
    let dirs = data_dirs(&args.settings, config);
    let all = dirs.all();
    if all.len() > 1 {
        // One disk that does not answer holds up nothing of the others.
        all.iter().for_each(|dir| fs::give_threads(dir));
    }
    let configured = config.cluster_id().map(|id| ClusterId(id.to_owned()));
    let may_format = args.settings.config.is_none() && are_blank(&all).await;
    let policy = |cluster_id: &Option<ClusterId>| OpenPolicy {
        node_id: config.node_id(),
        cluster_id: cluster_id.clone(),
        format: match may_format {
            false => FormatPolicy::Never,
            true => FormatPolicy::WhenEmpty {
                cluster_id: cluster_id
                    .clone()
                    .unwrap_or_else(|| ClusterId(draw_id().to_string())),
                directory_id: draw_id(),
            },
        },
    };
    let unformatted = |error: LogDirError| match error {
        LogDirError::NotFormatted { .. } => anyhow!(error.to_string() + &advice(&args.settings)),
        other => other.into(),
    };
    let opened = LogDir::open(&dirs.metadata, policy(&configured)).await;
    let metadata = opened.map_err(unformatted)?;
    let cluster_id = Some(metadata.meta().cluster_id.clone());
    let mut found = Vec::with_capacity(all.len());
    let mut metadata = Some(metadata);
    let mut metadata_index = DirIndex(0);
    for (i, path) in all.iter().enumerate() {
        if *path == dirs.metadata {
            metadata_index = DirIndex(i);
            found.extend(metadata.take().map(Box::new).map(DirFound::Open));
            continue;
        }
        found.push(match LogDir::open(path, policy(&cluster_id)).await {
            Ok(dir) => DirFound::Open(Box::new(dir)),
            Err(error @ (LogDirError::Io { .. } | LogDirError::NotFormatted { .. })) => {
                let health = DirHealth::new(path);
                health.fail(&format!("{:#}", unformatted(error)));
                DirFound::Failed(health)
            }
            Err(
                error @ (LogDirError::Locked { .. }
                | LogDirError::Foreign { .. }
                | LogDirError::MetaProperties { .. }
                | LogDirError::WrongCluster { .. }
                | LogDirError::WrongNode { .. }),
            ) => return Err(error.into()),
        });
    }
    check_ids(&found)?;
    let start = how_left(&found);
    Ok((LogDirs::new(found, metadata_index, dirs.logs.len()), start))
}

async fn are_blank(dirs: &[&Path]) -> bool {
    for dir in dirs {
        if !LogDir::is_blank(dir).await.unwrap_or(false) {
            return false;
        }
    }
    true
}

fn opened(found: &[DirFound]) -> impl Iterator<Item = &LogDir> {
    found.iter().filter_map(|found| match found {
        DirFound::Open(dir) => Some(&**dir),
        DirFound::Failed(_) => None,
    })
}

/// A copy of a directory has its id, and nobody could tell what is where.
fn check_ids(found: &[DirFound]) -> anyhow::Result<()> {
    let mut known: HashMap<Uuid, PathBuf> = HashMap::new();
    for dir in opened(found) {
        let Some(id) = dir.meta().directory_id else {
            continue;
        };
        if let Some(first) = known.insert(id, dir.meta_file()) {
            bail!(
                "{} and {} have one directory.id, {id}: one is a copy of the other. Take it out of log.dirs",
                first.display(),
                dir.meta_file().display()
            );
        }
    }
    Ok(())
}

fn how_left(found: &[DirFound]) -> Start {
    let unclean = opened(found).filter(|dir| dir.state() == DirectoryState::Unclean);
    let mut start = Start::AfterCleanStop;
    for dir in unclean {
        tracing::warn!(dir = %dir.path().display(),
            "the last process did not stop in order, or thalweg repair changed logs: checking logs, raising leader epochs");
        start = Start::AfterCrash;
    }
    match opened(found).all(|dir| dir.state() == DirectoryState::New) {
        true => Start::Formatted,
        false => start,
    }
}

/// How to format the directories that these settings name.
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
    match ended.dirs.close(ended.metadata_end, stopped).await? {
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
