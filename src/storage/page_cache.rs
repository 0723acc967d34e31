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
//! a line `topic-id topic-partition` per log that is left out: another topic of that name may have been made since, and
//! all of its logs are whole. The id is all zeros where it is not known, and then counts for any.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use thalweg_reactor::fs;
use thalweg_types::{TopicId, Uuid};

use crate::checked_text::{seal, unseal};
use crate::error::may_pass;
use crate::name::PartitionName;

/// Name of the file in the root of a log directory.
pub(crate) const FILE: &str = "thalweg-page-cache";
/// A larger one is not read.
const FILE_BYTES_MAX: usize = 256 * 1024 * 1024;

/// Logs that may have lost something, and of which topic each is; zeros where that is not known.
type Doubted = BTreeMap<PartitionName, TopicId>;

/// What is known of the logs of a log directory.
#[derive(Clone, Debug, Default)]
pub(crate) struct PageCache {
    path: PathBuf,
    /// As [`fs::cache_lifetime`] tells it for this life; without it nothing is ever known.
    lifetime: Option<String>,
    /// `None`: any may have lost something.
    doubted: Option<Doubted>,
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

    /// True when the log of that topic has all that was written to it; of any topic, where none is given.
    pub(crate) fn is_whole(&self, name: &PartitionName, topic: Option<TopicId>) -> bool {
        let is_another = |of: &TopicId| !of.is_zero() && topic.is_some_and(|topic| topic != *of);
        self.doubted
            .as_ref()
            .is_some_and(|doubted| doubted.get(name).is_none_or(is_another))
    }

    /// A life begins. After a stop in order all logs are whole but those that were `not_open` in it, of whatever topic.
    pub(crate) async fn begin(
        &self,
        not_open: Option<impl Iterator<Item = PartitionName>>,
    ) -> io::Result<()> {
        let not_open: Option<Doubted> =
            not_open.map(|names| names.map(|name| (name, Uuid::ZERO)).collect());
        match self.doubted.as_ref().or(not_open.as_ref()) {
            Some(doubted) => self.write(doubted).await,
            None => self.take_away().await,
        }
    }

    /// All logs of this life are open but `not_open`.
    pub(crate) async fn record(&self, not_open: &Doubted) -> io::Result<()> {
        let mut left = not_open.clone();
        left.retain(|name, topic| !self.is_whole(name, Some(*topic)));
        self.write(&left).await
    }

    async fn write(&self, doubted: &Doubted) -> io::Result<()> {
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

fn format(lifetime: &str, doubted: &Doubted) -> String {
    let mut text = format!("{lifetime}\n");
    for (name, topic) in doubted {
        let _ = writeln!(text, "{topic} {name}");
    }
    seal(&text)
}

/// `None` when it is of another boot or mount, or damaged.
fn parse(bytes: &[u8], lifetime: Option<&str>) -> Option<Doubted> {
    let (found, doubted) = decode(bytes)?;
    (Some(found) == lifetime).then_some(doubted)
}

/// Boot and mount, and the logs that may not be whole there; `None` when the file is damaged.
pub(crate) fn decode(bytes: &[u8]) -> Option<(&str, Doubted)> {
    let (lifetime, lines) = unseal(bytes)?.split_once('\n')?;
    let doubted = lines.lines().map(|line| match line.split_once(' ') {
        Some((topic, name)) => Some((name.parse().ok()?, topic.parse().ok()?)),
        // As it was written before topics were in it.
        None => Some((line.parse().ok()?, Uuid::ZERO)),
    });
    Some((lifetime, doubted.collect::<Option<Doubted>>()?))
}

#[cfg(test)]
mod tests {
    use thalweg_types::Uuid;

    use super::{Doubted, PageCache, format, parse};
    use crate::checked_text::seal;
    use crate::name::PartitionName;

    const ONE: Uuid = Uuid([1; 16]);
    const TWO: Uuid = Uuid([2; 16]);

    fn doubted() -> Doubted {
        let known = (PartitionName::new("t", 3), ONE);
        Doubted::from([known, (PartitionName::new("u-v", 0), Uuid::ZERO)])
    }

    #[test]
    fn st_13_what_is_doubted_of_a_topic_is_not_of_another_of_its_name() {
        let known = PageCache {
            doubted: Some(doubted()),
            ..PageCache::default()
        };
        let is_whole = |topic: &str, partition| {
            let name = PartitionName::new(topic, partition);
            [None, Some(ONE), Some(TWO)].map(|topic| known.is_whole(&name, topic))
        };
        assert_eq!(is_whole("t", 3), [false, false, true]);
        assert_eq!(is_whole("u-v", 0), [false; 3]);
        assert_eq!(is_whole("t", 4), [true; 3]);
        let before = seal("boot 7\nu-v-0\n");
        let parsed = parse(before.as_bytes(), Some("boot 7")).expect("as it was");
        assert_eq!(parsed[&PartitionName::new("u-v", 0)], Uuid::ZERO);
    }

    #[test]
    fn it_holds_for_one_boot_and_mount_and_only_undamaged() {
        let doubted = doubted();
        let text = format("boot 7", &doubted);
        assert_eq!(parse(text.as_bytes(), Some("boot 7")), Some(doubted));
        assert_eq!(parse(text.as_bytes(), Some("boot 8")), None);
        assert_eq!(parse(text.as_bytes(), None), None);
        let none = format("boot 7", &Doubted::new());
        let parsed = parse(none.as_bytes(), Some("boot 7"));
        assert_eq!(parsed, Some(Doubted::new()));
        for at in 0..text.len() {
            assert_eq!(parse(&text.as_bytes()[..at], Some("boot 7")), None);
            let mut flipped = text.clone().into_bytes();
            flipped[at] ^= 1;
            assert_eq!(parse(&flipped, Some("boot 7")), None, "byte {at}");
        }
    }
}
