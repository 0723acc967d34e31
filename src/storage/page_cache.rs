//! Whether a log still has all that was written to it, durable or not: after a kill it has, because the page cache
//! keeps what a process wrote, and after anything else it may not.
//!
//! That is known from a file that names the boot of the system and the mount of the file system
//! ([`fs::cache_lifetime`]) and the logs for which it does not hold: those that no process of this boot has
//! opened well, so that what an earlier loss of power tore may be torn still. A start carries it on
//! ([`crate::LogDir::begin`]) and, when all logs are open, says anew which are left
//! ([`crate::LogDir::record_whole`]). Nothing of it is durable: it is worthless when it could be lost.
//!
//! One line with the CRC-32C of all that follows, in 8 hexadecimal digits, then one line with boot and mount, then
//! a line per log that is left out.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use thalweg_reactor::fs;

use crate::checked_text::{seal, unseal};
use crate::error::may_pass;
use crate::name::PartitionName;

/// Name of the file in the root of a log directory.
pub(crate) const FILE: &str = "thalweg-page-cache";
/// A larger one is not read.
const FILE_BYTES_MAX: usize = 256 * 1024 * 1024;

/// What is known of the logs of a log directory.
#[derive(Clone, Debug, Default)]
pub(crate) struct PageCache {
    path: PathBuf,
    /// As [`fs::cache_lifetime`] tells it for this life; without it nothing is ever known.
    lifetime: Option<String>,
    /// The logs that may have lost something; `None`: any may have.
    doubted: Option<BTreeSet<PartitionName>>,
}

impl PageCache {
    /// Reads what the last life has left, if it holds.
    pub(crate) async fn read(dir: &Path) -> io::Result<PageCache> {
        let path = dir.join(FILE);
        let lifetime = fs::cache_lifetime(dir).await.unwrap_or(None);
        let doubted = match fs::read_file(&path, FILE_BYTES_MAX).await {
            Ok(bytes) => parse(&bytes, lifetime.as_deref()),
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::FileTooLarge
                ) =>
            {
                None
            }
            Err(error) => return Err(error),
        };
        Ok(PageCache {
            path,
            lifetime,
            doubted,
        })
    }

    /// The last life is not to be believed.
    pub(crate) fn doubting_all(self) -> PageCache {
        PageCache {
            doubted: None,
            ..self
        }
    }

    /// True when the log has all that was written to it.
    pub(crate) fn is_whole(&self, name: &PartitionName) -> bool {
        self.doubted
            .as_ref()
            .is_some_and(|doubted| !doubted.contains(name))
    }

    /// A life begins. After a stop in order all logs are whole but those that were `not_open` in it.
    pub(crate) async fn begin(&self, not_open: Option<BTreeSet<PartitionName>>) -> io::Result<()> {
        match self.doubted.as_ref().or(not_open.as_ref()) {
            Some(doubted) => self.write(doubted).await,
            None => self.take_away().await,
        }
    }

    /// All logs of this life are open but `not_open`.
    pub(crate) async fn record(&self, not_open: &BTreeSet<PartitionName>) -> io::Result<()> {
        let left = |name: &&PartitionName| !self.is_whole(name);
        self.write(&not_open.iter().filter(left).cloned().collect())
            .await
    }

    async fn write(&self, doubted: &BTreeSet<PartitionName>) -> io::Result<()> {
        let Some(lifetime) = &self.lifetime else {
            return Ok(());
        };
        let text = format(lifetime, doubted);
        match fs::replace_file(&self.path, Bytes::from(text)).await {
            // Without it the next start takes more for torn.
            Err(error) if may_pass(&error) => {
                tracing::debug!(path = %self.path.display(), %error, "not written");
                self.take_away().await
            }
            other => other,
        }
    }

    async fn take_away(&self) -> io::Result<()> {
        match fs::unlink(&self.path).await {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }
}

fn format(lifetime: &str, doubted: &BTreeSet<PartitionName>) -> String {
    let mut text = format!("{lifetime}\n");
    for name in doubted {
        let _ = writeln!(text, "{name}");
    }
    seal(&text)
}

/// `None` when it is of another boot or mount, or damaged.
fn parse(bytes: &[u8], lifetime: Option<&str>) -> Option<BTreeSet<PartitionName>> {
    let (found, names) = unseal(bytes)?.split_once('\n')?;
    let is_ours = Some(found) == lifetime;
    is_ours.then(|| names.lines().map(|name| name.parse().ok()).collect())?
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{format, parse};
    use crate::name::PartitionName;

    #[test]
    fn it_holds_for_one_boot_and_mount_and_only_undamaged() {
        let doubted = BTreeSet::from([PartitionName::new("t", 3), PartitionName::new("u-v", 0)]);
        let text = format("boot 7", &doubted);
        assert_eq!(parse(text.as_bytes(), Some("boot 7")), Some(doubted));
        assert_eq!(parse(text.as_bytes(), Some("boot 8")), None);
        assert_eq!(parse(text.as_bytes(), None), None);
        let none = format("boot 7", &BTreeSet::new());
        assert_eq!(
            parse(none.as_bytes(), Some("boot 7")),
            Some(BTreeSet::new())
        );
        for at in 0..text.len() {
            assert_eq!(parse(&text.as_bytes()[..at], Some("boot 7")), None);
            let mut flipped = text.clone().into_bytes();
            flipped[at] ^= 1;
            assert_eq!(parse(&flipped, Some("boot 7")), None, "byte {at}");
        }
    }
}
