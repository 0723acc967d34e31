//! What members of a group say to each other, in the bytes of Kafka's clients (`ConsumerProtocol`).
//!
//! Subscriptions and assignments begin with a version; later versions only append fields, so any is read as
//! far as it is known here. What an assignor adds (user data) has a form of its own for each.

use std::collections::BTreeMap;

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::{Assignor, TopicPartition};
use crate::error::{ClientError, Result};

/// Versions of what is written: a subscription with owned partitions, generation and rack (KIP-881), an
/// assignment as it always was.
const SUBSCRIPTION_VERSION: i16 = 3;
const ASSIGNMENT_VERSION: i16 = 0;
/// First versions with these fields of a subscription.
const VERSION_OWNED: i16 = 1;
const VERSION_GENERATION: i16 = 2;

/// What a member says when it joins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Subscription {
    pub(crate) topics: Vec<String>,
    pub(crate) user_data: Option<Bytes>,
    /// What it has and does not give up by joining (KIP-429).
    pub(crate) owned: Vec<TopicPartition>,
    /// In which generation it had that (KIP-792).
    pub(crate) generation: Option<i32>,
}

/// A subscription to `topics` for one assignor. `share` is what the member had in `generation`.
///
/// # Errors
/// [`ClientError::Invalid`] for a name that is longer than the form allows.
pub(crate) fn encode_subscription(
    assignor: Assignor,
    topics: &[String],
    share: &[TopicPartition],
    generation: i32,
) -> Result<Bytes> {
    let mut out = BytesMut::new();
    out.put_i16(SUBSCRIPTION_VERSION);
    put_count(&mut out, topics.len())?;
    for topic in topics {
        put_string(&mut out, topic)?;
    }
    let user_data = match assignor {
        Assignor::Range | Assignor::RoundRobin => None,
        Assignor::Sticky => Some(encode_sticky(share, generation)?),
        Assignor::CooperativeSticky => Some(Bytes::copy_from_slice(&generation.to_be_bytes())),
    };
    match user_data {
        Some(bytes) => {
            put_count(&mut out, bytes.len())?;
            out.put_slice(&bytes);
        }
        None => out.put_i32(-1),
    }
    // Others have given up everything by the time they join.
    let owned = match assignor.is_cooperative() {
        true => share,
        false => &[],
    };
    put_partitions(&mut out, owned)?;
    out.put_i32(generation);
    out.put_i16(-1); // no rack
    Ok(out.freeze())
}

/// `None` when the bytes are no subscription.
pub(crate) fn decode_subscription(mut bytes: &[u8]) -> Option<Subscription> {
    let version = bytes.try_get_i16().ok().filter(|version| *version >= 0)?;
    let mut subscription = Subscription::default();
    for _ in 0..bytes.try_get_i32().ok()? {
        subscription.topics.push(take_string(&mut bytes)?);
    }
    let len = bytes.try_get_i32().ok()?;
    if let Ok(len) = usize::try_from(len) {
        let (user_data, rest) = bytes.split_at_checked(len)?;
        subscription.user_data = Some(Bytes::copy_from_slice(user_data));
        bytes = rest;
    }
    if version >= VERSION_OWNED {
        subscription.owned = take_partitions(&mut bytes)?;
    }
    if version >= VERSION_GENERATION {
        let generation = bytes.try_get_i32().ok()?;
        subscription.generation = Some(generation).filter(|generation| *generation >= 0);
    }
    Some(subscription)
}

/// An assignment of `partitions`.
///
/// # Errors
/// As [`encode_subscription`].
pub(crate) fn encode_assignment(partitions: &[TopicPartition]) -> Result<Bytes> {
    let mut out = BytesMut::new();
    out.put_i16(ASSIGNMENT_VERSION);
    put_partitions(&mut out, partitions)?;
    out.put_i32(-1); // no user data
    Ok(out.freeze())
}

/// The partitions of an assignment; no bytes are no partitions, and `None` what is no assignment.
pub(crate) fn decode_assignment(mut bytes: &[u8]) -> Option<Vec<TopicPartition>> {
    if bytes.is_empty() {
        return Some(Vec::new());
    }
    bytes.try_get_i16().ok().filter(|version| *version >= 0)?;
    take_partitions(&mut bytes)
}

/// User data of `sticky`: what the member had, and in which generation (KIP-341).
fn encode_sticky(share: &[TopicPartition], generation: i32) -> Result<Bytes> {
    let mut out = BytesMut::new();
    put_partitions(&mut out, share)?;
    out.put_i32(generation);
    Ok(out.freeze())
}

/// The generation may be missing: then it is -1.
pub(super) fn decode_sticky(mut bytes: &[u8]) -> Option<(Vec<TopicPartition>, i32)> {
    let partitions = take_partitions(&mut bytes)?;
    Some((partitions, bytes.try_get_i32().unwrap_or(-1)))
}

/// User data of `cooperative-sticky`: the generation, for readers that do not know the field.
pub(super) fn decode_cooperative(mut bytes: &[u8]) -> Option<i32> {
    bytes.try_get_i32().ok()
}

fn take_partitions(bytes: &mut &[u8]) -> Option<Vec<TopicPartition>> {
    let mut partitions = Vec::new();
    for _ in 0..bytes.try_get_i32().ok()? {
        let topic = take_string(bytes)?;
        for _ in 0..bytes.try_get_i32().ok()? {
            partitions.push((topic.clone(), bytes.try_get_i32().ok()?));
        }
    }
    Some(partitions)
}

fn take_string(bytes: &mut &[u8]) -> Option<String> {
    let len = usize::try_from(bytes.try_get_i16().ok()?).ok()?;
    let (text, rest) = bytes.split_at_checked(len)?;
    *bytes = rest;
    std::str::from_utf8(text).ok().map(str::to_owned)
}

/// Grouped by topic.
fn put_partitions(out: &mut BytesMut, partitions: &[TopicPartition]) -> Result<()> {
    let mut by_topic: BTreeMap<&str, Vec<i32>> = BTreeMap::new();
    for (topic, partition) in partitions {
        by_topic.entry(topic).or_default().push(*partition);
    }
    put_count(out, by_topic.len())?;
    for (topic, partitions) in by_topic {
        put_string(out, topic)?;
        put_count(out, partitions.len())?;
        partitions.into_iter().for_each(|p| out.put_i32(p));
    }
    Ok(())
}

fn put_count(out: &mut BytesMut, count: usize) -> Result<()> {
    out.put_i32(i32::try_from(count).map_err(|_| too_long("a list", count))?);
    Ok(())
}

fn put_string(out: &mut BytesMut, text: &str) -> Result<()> {
    let len = i16::try_from(text.len()).map_err(|_| too_long("the name of a topic", text.len()))?;
    out.put_i16(len);
    out.put_slice(text.as_bytes());
    Ok(())
}

fn too_long(what: &str, len: usize) -> ClientError {
    ClientError::Invalid(format!(
        "{what} of length {len} is longer than the group protocol allows"
    ))
}
