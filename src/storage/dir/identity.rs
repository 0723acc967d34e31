//! Whose a log directory is: its lock, its `meta.properties`, and how an empty one gets one.

use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use thalweg_reactor::fs::{self, DirEntry, DirLock};
use thalweg_types::{BrokerId, ClusterId, Uuid};

use super::{META_PROPERTIES, NO_BROKER_EPOCH, ROOT_FILE_BYTES_MAX, write_clean_marker};
use crate::meta_properties::MetaProperties;

/// Names that an empty directory may have: of a lock, of a formatting that a crash interrupted, and
/// of a fresh file system.
const NAMES_IN_EMPTY: [&str; 3] = [".lock", "meta.properties.tmp", "lost+found"];
/// What [`LogDir::open`] may do and must find.
#[derive(Clone, Debug)]
pub struct OpenPolicy {
    /// The directory must belong to this node.
    pub node_id: BrokerId,
    /// The directory must belong to this cluster; `None` takes any.
    pub cluster_id: Option<ClusterId>,
    /// What to do with a missing or empty directory.
    pub format: FormatPolicy,
}

/// What to do with a missing or empty directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FormatPolicy {
    /// Refuse it.
    Never,
    /// Make it and give it an identity.
    WhenEmpty {
        /// Id of the new cluster.
        cluster_id: ClusterId,
        /// Id of the new directory, drawn at random.
        directory_id: Uuid,
    },
}

/// Outcome of [`format_log_dir`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Formatted {
    /// It was missing or empty, and has this identity now.
    Now(MetaProperties),
    /// It has had this identity already; nothing was changed.
    Before(MetaProperties),
}

/// Gives a missing or empty directory its identity. The marker of a clean stop lies beside it: the
/// first start has nothing to check.
///
/// # Errors
/// As [`LogDir::open`]; nothing is changed then.
pub async fn format_log_dir(path: &Path, policy: &OpenPolicy) -> Result<Formatted, LogDirError> {
    let io = |source| LogDirError::Io {
        path: path.to_owned(),
        source,
    };
    let empty = look(path, policy).await?;
    let _lock = lock(path)?;
    match &policy.format {
        FormatPolicy::WhenEmpty {
            cluster_id,
            directory_id,
        } if empty => {
            let meta = give_identity(path, policy.node_id, cluster_id, *directory_id).await?;
            write_clean_marker(path, NO_BROKER_EPOCH)
                .await
                .map_err(io)?;
            Ok(Formatted::Now(meta))
        }
        FormatPolicy::WhenEmpty { .. } | FormatPolicy::Never => {
            load_meta(path, policy).await.map(Formatted::Before)
        }
    }
}

pub(super) fn lock(path: &Path) -> Result<DirLock, LogDirError> {
    let locked = DirLock::acquire(path).map_err(|source| LogDirError::Io {
        path: path.to_owned(),
        source,
    })?;
    locked.ok_or_else(|| LogDirError::Locked {
        path: path.to_owned(),
    })
}

pub(super) async fn give_identity(
    path: &Path,
    node_id: BrokerId,
    cluster_id: &ClusterId,
    directory_id: Uuid,
) -> Result<MetaProperties, LogDirError> {
    let meta = MetaProperties {
        cluster_id: cluster_id.clone(),
        node_id,
        directory_id: Some(directory_id),
    };
    let text = Bytes::from(meta.to_text());
    fs::write_file_atomically(&path.join(META_PROPERTIES), text)
        .await
        .map_err(|source| LogDirError::Io {
            path: path.to_owned(),
            source,
        })?;
    Ok(meta)
}

/// A log directory can not be opened.
#[derive(Debug, thiserror::Error)]
pub enum LogDirError {
    /// The system refused an operation; its text names it.
    #[error("log directory {}: {source}{}", path.display(), what_to_do(source))]
    Io {
        /// The directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Another process has it (ST-28).
    #[error(
        "log directory {} is in use by another process: stop the broker first, or name another directory",
        path.display()
    )]
    Locked {
        /// The directory.
        path: PathBuf,
    },
    /// There is nothing in it, and the policy does not let it be formatted.
    #[error("log directory {} is not formatted", path.display())]
    NotFormatted {
        /// The directory.
        path: PathBuf,
    },
    /// It holds something, but no `meta.properties`: it is not a log directory.
    #[error(
        "{} is not empty (it has {example:?}) and has no meta.properties, so it is no log \
         directory; give an empty or a formatted one", path.display()
    )]
    Foreign {
        /// The directory.
        path: PathBuf,
        /// One of the names in it.
        example: String,
    },
    /// Its `meta.properties` can not be used.
    #[error("{}: {reason}", path.display())]
    MetaProperties {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// It belongs to another cluster (ST-28).
    #[error(
        "log directory {} belongs to cluster {found}, not {wanted}: name directories of one cluster only, and, \
         if it is set, that cluster in thalweg.cluster.id", path.display()
    )]
    WrongCluster {
        /// The directory.
        path: PathBuf,
        /// In `meta.properties`.
        found: ClusterId,
        /// In the configuration.
        wanted: ClusterId,
    },
    /// It belongs to another node (ST-28).
    #[error(
        "log directory {} belongs to node {found}, not {wanted}: set node.id={found}, or name the directory of \
         node {wanted}", path.display()
    )]
    WrongNode {
        /// The directory.
        path: PathBuf,
        /// In `meta.properties`.
        found: BrokerId,
        /// In the configuration.
        wanted: BrokerId,
    },
}

/// What helps where the system refuses a log directory for reasons that its words do not tell.
fn what_to_do(refused: &io::Error) -> &'static str {
    match refused.kind() {
        io::ErrorKind::PermissionDenied => {
            ". Who runs the broker must own it and what is in it, also where somebody else, root say, has \
             formatted it: chown -R"
        }
        io::ErrorKind::ReadOnlyFilesystem => {
            ". It is mounted read-only, or the unit that starts the broker keeps it so: ReadWritePaths="
        }
        _told_by_itself => "",
    }
}

/// True when the directory is empty and will be formatted; makes it if it is missing.
pub(super) async fn look(path: &Path, policy: &OpenPolicy) -> Result<bool, LogDirError> {
    let io = |source| LogDirError::Io {
        path: path.to_owned(),
        source,
    };
    let may_format = policy.format != FormatPolicy::Never;
    let entries = match fs::list_dir(path).await {
        Err(error) if error.kind() == io::ErrorKind::NotFound && may_format => {
            fs::create_dir_all(path).await.map_err(io)?;
            return Ok(true);
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(LogDirError::NotFormatted {
                path: path.to_owned(),
            });
        }
        other => other.map_err(io)?,
    };
    if entries.iter().any(|entry| entry.name == META_PROPERTIES) {
        return Ok(false);
    }
    let foreign = entries.iter().filter(|entry| !is_of_empty(entry));
    let foreign = foreign.map(|entry| entry.name.to_string_lossy()).min();
    match foreign {
        Some(name) => Err(LogDirError::Foreign {
            path: path.to_owned(),
            example: name.into_owned(),
        }),
        None if may_format => Ok(true),
        None => Err(LogDirError::NotFormatted {
            path: path.to_owned(),
        }),
    }
}

impl MetaProperties {
    /// Whose the log directory `path` is.
    ///
    /// # Errors
    /// [`LogDirError::MetaProperties`].
    pub async fn of(path: &Path) -> Result<MetaProperties, LogDirError> {
        read_meta(path).await
    }
}

pub(super) fn is_of_empty(entry: &DirEntry) -> bool {
    NAMES_IN_EMPTY.iter().any(|name| entry.name == *name)
}

pub(super) async fn read_meta(path: &Path) -> Result<MetaProperties, LogDirError> {
    let file = path.join(META_PROPERTIES);
    let bad = |reason: String| LogDirError::MetaProperties {
        path: file.clone(),
        reason,
    };
    let bytes = fs::read_file(&file, ROOT_FILE_BYTES_MAX)
        .await
        .map_err(|e| bad(e.to_string()))?;
    MetaProperties::parse(&bytes).map_err(|error| bad(error.to_string()))
}

pub(super) async fn load_meta(
    path: &Path,
    policy: &OpenPolicy,
) -> Result<MetaProperties, LogDirError> {
    let meta = read_meta(path).await?;
    if let Some(wanted) = &policy.cluster_id
        && *wanted != meta.cluster_id
    {
        return Err(LogDirError::WrongCluster {
            path: path.to_owned(),
            found: meta.cluster_id,
            wanted: wanted.clone(),
        });
    }
    if meta.node_id != policy.node_id {
        return Err(LogDirError::WrongNode {
            path: path.to_owned(),
            found: meta.node_id,
            wanted: policy.node_id,
        });
    }
    Ok(meta)
}
