//! What members of a group say to each other: subscriptions, assignments, and the `range` assignor.
//!
//! The coordinator passes these bytes on without looking (KIP-62): a version, an array of topics in the
//! non-flexible form, user data. Versions above 0 only append fields, so version 0 is read from any.

use std::collections::BTreeMap;

use bytes::{Buf, BufMut, Bytes, BytesMut};

/// Name of the assignor, the same in every client.
pub(crate) const RANGE: &str = "range";
/// Version of what is written here.
const VERSION: i16 = 0;

/// A topic and one of its partitions.
pub(crate) type TopicPartition = (String, i32);

/// A member and the topics it subscribes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Subscriber {
    pub(crate) member_id: String,
    pub(crate) topics: Vec<String>,
}

/// Gives each topic's partitions, in order, to its subscribers in the order of their ids; when they do
/// not divide evenly, the first ones get one more. All members of a group must compute the same.
pub(crate) fn range(
    subscribers: &[Subscriber],
    partitions: &BTreeMap<String, i32>,
) -> BTreeMap<String, Vec<TopicPartition>> {
    let mut shares: BTreeMap<String, Vec<TopicPartition>> = BTreeMap::new();
    for subscriber in subscribers {
        shares.entry(subscriber.member_id.clone()).or_default();
    }
    for (topic, count) in partitions {
        let mut members: Vec<&String> = subscribers
            .iter()
            .filter(|s| s.topics.contains(topic))
            .map(|s| &s.member_id)
            .collect();
        members.sort();
        members.dedup();
        let Ok(each) = i32::try_from(members.len()) else {
            continue;
        };
        if each == 0 {
            continue;
        }
        let (share, more) = (count / each, count % each);
        let mut next = 0;
        for (at, member) in (0..).zip(members) {
            let end = next + share + i32::from(at < more);
            let given = (next..end).map(|p| (topic.clone(), p));
            shares.entry(member.clone()).or_default().extend(given);
            next = end;
        }
    }
    shares
}

/// A subscription to `topics`.
pub(crate) fn encode_subscription(topics: &[String]) -> Bytes {
    let mut out = BytesMut::new();
    out.put_i16(VERSION);
    put_count(&mut out, topics.len());
    for topic in topics {
        put_string(&mut out, topic);
    }
    out.put_i32(-1); // no user data
    out.freeze()
}

/// The topics of a subscription; `None` when the bytes are none.
pub(crate) fn decode_subscription(mut bytes: &[u8]) -> Option<Vec<String>> {
    let count = take_head(&mut bytes)?;
    let mut topics = Vec::new();
    for _ in 0..count {
        topics.push(take_string(&mut bytes)?);
    }
    Some(topics)
}

/// An assignment of `partitions`, which are grouped by topic.
pub(crate) fn encode_assignment(partitions: &[TopicPartition]) -> Bytes {
    let mut by_topic: BTreeMap<&str, Vec<i32>> = BTreeMap::new();
    for (topic, partition) in partitions {
        by_topic.entry(topic).or_default().push(*partition);
    }
    let mut out = BytesMut::new();
    out.put_i16(VERSION);
    put_count(&mut out, by_topic.len());
    for (topic, partitions) in by_topic {
        put_string(&mut out, topic);
        put_count(&mut out, partitions.len());
        for partition in partitions {
            out.put_i32(partition);
        }
    }
    out.put_i32(-1); // no user data
    out.freeze()
}

/// The partitions of an assignment; no bytes are no partitions, and `None` what is no assignment.
pub(crate) fn decode_assignment(mut bytes: &[u8]) -> Option<Vec<TopicPartition>> {
    if bytes.is_empty() {
        return Some(Vec::new());
    }
    let topics = take_head(&mut bytes)?;
    let mut partitions = Vec::new();
    for _ in 0..topics {
        let topic = take_string(&mut bytes)?;
        for _ in 0..bytes.try_get_i32().ok()? {
            partitions.push((topic.clone(), bytes.try_get_i32().ok()?));
        }
    }
    Some(partitions)
}

/// The version, which is not looked at but for its sign, and the number of topics.
fn take_head(bytes: &mut &[u8]) -> Option<i32> {
    let version = bytes.try_get_i16().ok()?;
    let count = bytes.try_get_i32().ok()?;
    (version >= 0).then_some(count)
}

fn take_string(bytes: &mut &[u8]) -> Option<String> {
    let len = usize::try_from(bytes.try_get_i16().ok()?).ok()?;
    let (text, rest) = bytes.split_at_checked(len)?;
    *bytes = rest;
    std::str::from_utf8(text).ok().map(str::to_owned)
}

/// Counts and topic names here come from metadata of the same protocol, whose lengths are no longer.
fn put_count(out: &mut BytesMut, count: usize) {
    out.put_i32(i32::try_from(count).unwrap_or(i32::MAX));
}

fn put_string(out: &mut BytesMut, text: &str) {
    out.put_i16(i16::try_from(text.len()).unwrap_or(i16::MAX));
    out.put_slice(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{
        Subscriber, TopicPartition, decode_assignment, decode_subscription, encode_assignment,
        encode_subscription, range,
    };

    fn subscriber(member_id: &str, topics: &[&str]) -> Subscriber {
        Subscriber {
            member_id: member_id.to_owned(),
            topics: topics.iter().map(|t| (*t).to_owned()).collect(),
        }
    }

    fn of(topic: &str, partitions: &[i32]) -> Vec<TopicPartition> {
        let with_topic = |p: &i32| (topic.to_owned(), *p);
        partitions.iter().map(with_topic).collect()
    }

    /// The example of the documentation of Kafka's `RangeAssignor`, and an odd one.
    #[test]
    fn ranges_are_contiguous_and_the_first_get_more() {
        let members = [
            subscriber("C1", &["t0", "t1"]),
            subscriber("C0", &["t0", "t1"]),
        ];
        let counts = BTreeMap::from([("t0".to_owned(), 3), ("t1".to_owned(), 3)]);
        let shares = range(&members, &counts);
        assert_eq!(
            shares["C0"],
            [of("t0", &[0, 1]), of("t1", &[0, 1])].concat()
        );
        assert_eq!(shares["C1"], [of("t0", &[2]), of("t1", &[2])].concat());
    }

    #[test]
    fn more_members_than_partitions_and_other_topics() {
        let members = [
            subscriber("a", &["t"]),
            subscriber("b", &["u"]),
            subscriber("c", &["t"]),
        ];
        let shares = range(&members, &BTreeMap::from([("t".to_owned(), 1)]));
        assert_eq!(shares["a"], of("t", &[0]));
        assert_eq!((shares["b"].len(), shares["c"].len()), (0, 0));
    }

    #[test]
    fn bytes_there_and_back() {
        let topics = vec!["a".to_owned(), "bc".to_owned()];
        let subscription = encode_subscription(&topics);
        assert_eq!(
            &subscription[..],
            b"\0\0\0\0\0\x02\0\x01a\0\x02bc\xff\xff\xff\xff"
        );
        assert_eq!(decode_subscription(&subscription), Some(topics));
        let partitions = [of("a", &[0, 2]), of("b", &[1])].concat();
        let assignment = encode_assignment(&partitions);
        assert_eq!(decode_assignment(&assignment), Some(partitions));
        assert_eq!(decode_assignment(b""), Some(Vec::new()));
        for cut in 1..assignment.len() - 4 {
            assert_eq!(decode_assignment(&assignment[..cut]), None, "{cut}");
        }
        assert_eq!(decode_subscription(&subscription[..9]), None);
        // A newer version with more behind.
        assert_eq!(
            decode_subscription(b"\0\x03\0\0\0\x01\0\x01a\xff\xff\xff\xff\0\0\0\0\0\0\0\x01"),
            Some(vec!["a".to_owned()])
        );
        assert_eq!(decode_subscription(b"\xff\xff\0\0\0\0"), None);
    }
}
