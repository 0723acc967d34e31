//! The little that the broker reads of a consumer's metadata: which topics it subscribes to.
//!
//! The bytes are the members' own (KIP-62): version, then an array of topic names in the
//! non-flexible form, then what this does not look at.

use bytes::Bytes;

/// The protocol type of Kafka's consumers.
pub(crate) const CONSUMER: &str = "consumer";

/// What a consumer says when it joins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Subscription<'a> {
    pub(crate) version: i16,
    pub(crate) topics: Vec<&'a str>,
    /// What it has and does not give up; nothing before version 1 (KIP-429).
    pub(crate) owned: Vec<(&'a str, Vec<i32>)>,
    pub(crate) rack: Option<&'a str>,
}

/// Newest version of the form; members of a newer one are read as of this one.
const VERSION_MAX: i16 = 3;

/// Topics of one member; `None` when the bytes are of another form.
pub(crate) fn topics_of(metadata: &[u8]) -> Option<Vec<&str>> {
    let (_, mut rest) = versioned(metadata)?;
    take_names(&mut rest)
}

/// All that one member says; `None` when the bytes are of another form.
pub(crate) fn parse(metadata: &[u8]) -> Option<Subscription<'_>> {
    let (version, mut rest) = versioned(metadata)?;
    let topics = take_names(&mut rest)?;
    take_bytes(&mut rest)?;
    let owned = match version {
        0 => Vec::new(),
        _ => take_partitions(&mut rest)?,
    };
    if version >= 2 {
        // In which generation it got that (KIP-792), which leaders of groups look at.
        take_i32(&mut rest)?;
    }
    let rack = match version {
        ..3 => None,
        _ => take_text(&mut rest)?,
    };
    Some(Subscription {
        version,
        topics,
        owned,
        rack,
    })
}

/// The partitions of a share; none when the bytes are of another form, or empty.
pub(crate) fn parse_share(share: &[u8]) -> Vec<(&str, Vec<i32>)> {
    let read = || {
        let (_, mut rest) = versioned(share)?;
        take_partitions(&mut rest)
    };
    read().unwrap_or_default()
}

/// A share in the form of that version.
pub(crate) fn share(version: i16, topics: &[(String, Vec<i32>)]) -> Bytes {
    let count = |len: usize| i32::try_from(len).unwrap_or(i32::MAX).to_be_bytes();
    let mut out = Vec::new();
    out.extend(version.clamp(0, VERSION_MAX).to_be_bytes());
    out.extend(count(topics.len()));
    for (name, partitions) in topics {
        // Names of topics are shorter than their length can say.
        out.extend(i16::try_from(name.len()).unwrap_or(i16::MAX).to_be_bytes());
        out.extend(name.as_bytes());
        out.extend(count(partitions.len()));
        out.extend(
            partitions
                .iter()
                .flat_map(|partition| partition.to_be_bytes()),
        );
    }
    // No data of the user's own.
    out.extend((-1i32).to_be_bytes());
    out.into()
}

fn versioned(bytes: &[u8]) -> Option<(i16, &[u8])> {
    let (version, rest) = bytes.split_first_chunk::<2>()?;
    let version = i16::from_be_bytes(*version);
    (version >= 0).then_some((version, rest))
}

fn take_names<'a>(rest: &mut &'a [u8]) -> Option<Vec<&'a str>> {
    let count = take_i32(rest)?;
    let mut names = Vec::new();
    for _ in 0..count {
        names.push(take_text(rest)??);
    }
    Some(names)
}

fn take_partitions<'a>(rest: &mut &'a [u8]) -> Option<Vec<(&'a str, Vec<i32>)>> {
    let count = take_i32(rest)?;
    let mut topics = Vec::new();
    for _ in 0..count {
        let name = take_text(rest)??;
        let len = take_i32(rest)?;
        let mut partitions = Vec::new();
        for _ in 0..len {
            partitions.push(take_i32(rest)?);
        }
        topics.push((name, partitions));
    }
    Some(topics)
}

/// A text, `Some(None)` when it is null.
fn take_text<'a>(rest: &mut &'a [u8]) -> Option<Option<&'a str>> {
    let (len, after) = rest.split_first_chunk::<2>()?;
    let len = i16::from_be_bytes(*len);
    if len == -1 {
        *rest = after;
        return Some(None);
    }
    let (text, after) = after.split_at_checked(usize::try_from(len).ok()?)?;
    *rest = after;
    Some(Some(std::str::from_utf8(text).ok()?))
}

fn take_bytes<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let len = take_i32(rest)?;
    let (bytes, after) = rest.split_at_checked(usize::try_from(len.max(0)).ok()?)?;
    *rest = after;
    Some(bytes)
}

fn take_i32(rest: &mut &[u8]) -> Option<i32> {
    let (bytes, after) = rest.split_first_chunk::<4>()?;
    *rest = after;
    Some(i32::from_be_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::{parse, parse_share, share, topics_of};

    #[test]
    fn reads_topics_and_refuses_what_is_cut() {
        let bytes = b"\0\x01\0\0\0\x02\0\x01a\0\x02bc\xff\xff\xff\xff";
        assert_eq!(topics_of(bytes), Some(vec!["a", "bc"]));
        assert_eq!(topics_of(&bytes[..8]), None);
        assert_eq!(topics_of(b""), None);
        assert_eq!(topics_of(b"\0\x01\x7f\xff\xff\xff"), None);
        assert_eq!(topics_of(b"\0\x01\xff\xff\xff\xff"), Some(vec![]));
    }
    #[test]
    fn versions_of_subscriptions_are_read() {
        let first = parse(b"\0\0\0\0\0\x01\0\x01a\xff\xff\xff\xff").expect("version 0");
        assert_eq!((first.topics, first.owned), (vec!["a"], vec![]));
        let newest = b"\0\x03\0\0\0\x01\0\x01a\0\0\0\x01u\0\0\0\x01\0\x01a\0\0\0\x01\0\0\0\x05\0\0\0\x07\0\x01r";
        let read = parse(newest).expect("version 3");
        assert_eq!(read.owned, [("a", vec![5])]);
        assert_eq!(read.rack, Some("r"));
        for len in 0..newest.len() {
            assert_eq!(parse(&newest[..len]), None, "cut at {len}");
        }
        assert_eq!(parse(b"\0\x01\0\0\0\0\0\0\0\0\x7f\xff\xff\xff"), None);
    }

    #[test]
    fn shares_are_read_as_they_are_written() {
        let topics = [("a".to_owned(), vec![0, 2]), ("bc".to_owned(), vec![1])];
        let bytes = share(1, &topics);
        assert_eq!(parse_share(&bytes), [("a", vec![0, 2]), ("bc", vec![1])]);
        assert!(parse_share(b"").is_empty() && parse_share(b"one").is_empty());
    }
}
