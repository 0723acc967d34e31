//! The settings of a broker, from a file and flags.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use thalweg_config::{BrokerConfig, LoadedBrokerConfig, Settings};
use thalweg_types::limits::CONFIG_FILE_BYTES_MAX;

use crate::args::SettingsArgs;
use crate::exit::{Exit, Failure};

/// Reads and checks the settings; `listen` is an address that wins over `listeners`.
///
/// # Errors
/// The file can not be read, or settings are wrong: all of them, with their places.
pub(crate) fn load(
    args: &SettingsArgs,
    listen: Option<&str>,
) -> Result<LoadedBrokerConfig, Failure> {
    let mut settings = Settings::new();
    if let Some(name) = host_name() {
        settings.know_host_name(&name);
    }
    if let Some(path) = &args.config {
        settings.add_file(&path.to_string_lossy(), &read(path)?);
    }
    for property in &args.properties {
        settings.add_setting(&format!("{}={}", property.key, property.value));
    }
    if let Some(dir) = &args.data_dir {
        settings.add_data_dir(&dir.to_string_lossy());
    }
    if let Some(listen) = listen {
        settings.add_listen(listen);
    }
    settings
        .load()
        .map_err(|errors| Failure::new(Exit::Usage, errors.to_string()))
}

/// The directories of a broker's data.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct DataDirs {
    /// The log directories; one at least.
    pub(crate) logs: Vec<PathBuf>,
    /// That of the metadata log: one of those, or another.
    pub(crate) metadata: PathBuf,
}

impl DataDirs {
    /// Each once: the log directories, then that of the metadata log if it is none of them.
    pub(crate) fn all(&self) -> Vec<&Path> {
        let own = Some(&self.metadata).filter(|dir| !self.logs.contains(dir));
        self.logs.iter().chain(own).map(PathBuf::as_path).collect()
    }
}

/// The directories that the settings name. The flag is taken as it stands, also where it is not UTF-8.
pub(crate) fn data_dirs(args: &SettingsArgs, config: &BrokerConfig) -> DataDirs {
    let logs: Vec<PathBuf> = match &args.data_dir {
        Some(dir) => vec![dir.clone()],
        None => config.log_dirs().iter().map(PathBuf::from).collect(),
    };
    DataDirs {
        metadata: match config.metadata_log_dir() {
            Some(dir) => PathBuf::from(dir),
            None => logs[0].clone(),
        },
        logs,
    }
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    let failure = |error: io::Error| {
        let exit = match error.kind() {
            io::ErrorKind::NotFound => Exit::NotFound,
            _other => Exit::Failed,
        };
        Failure::new(exit, format!("--config {}: {error}", path.display()))
    };
    let file = File::open(path).map_err(failure)?;
    let mut bytes = Vec::new();
    let mut limited = file.take(CONFIG_FILE_BYTES_MAX + 1);
    limited.read_to_end(&mut bytes).map_err(failure)?;
    if bytes.len() as u64 > CONFIG_FILE_BYTES_MAX {
        let text = format!(
            "--config {}: larger than {CONFIG_FILE_BYTES_MAX} bytes, so hardly a configuration",
            path.display()
        );
        return Err(Failure::new(Exit::Usage, text));
    }
    Ok(bytes)
}

/// What the kernel calls this machine.
fn host_name() -> Option<String> {
    let text = fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    let name = text.trim();
    (!name.is_empty()).then(|| name.to_owned())
}
