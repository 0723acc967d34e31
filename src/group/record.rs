//! Records of `__consumer_offsets`: Kafka's types, keys and values.
//!
//! A key begins with its type, a value with its version, both two bytes. A record type that is not
//! known here (share and streams groups, other coordinators) is left alone, in the log and here.

use std::rc::Rc;

use bytes::{Bytes, BytesMut};
use thalweg_protocol::Message;
use thalweg_protocol::messages::{
    GroupMetadataKey, GroupMetadataValue, OffsetCommitKey, OffsetCommitValue,
};
use thalweg_protocol::wire::{DecodeError, Decoder, EncodeError, Encoder};
use thalweg_types::TimestampMs;

use crate::consumer::ConsumerRecord;
use crate::offsets::Committed;

/// Type of an offset commit of Kafka up to 0.8.2; its key has the layout of today's.
const TYPE_OFFSET_LEGACY: i16 = 0;
const TYPE_OFFSET: i16 = 1;
const TYPE_GROUP: i16 = 2;

/// Only version of both keys.
pub(crate) const KEY_VERSION: i16 = 0;
/// Version of an offset that ends at a time its client chose. It has no topic id.
const OFFSET_VERSION_EXPIRING: i16 = 1;
/// Version of every other offset: the first with a topic id, as Kafka 4.3 writes it.
const OFFSET_VERSION: i16 = 4;
/// Version of group metadata.
const GROUP_VERSION: i16 = 3;

/// One record that this coordinator reads and writes.
#[derive(Clone, Debug, PartialEq)]
pub enum Record {
    /// An offset, or with `None` its end.
    Offset {
        /// Group id.
        group: Rc<str>,
        /// Topic name.
        topic: Rc<str>,
        /// Partition index.
        partition: i32,
        /// What was committed.
        value: Option<Committed>,
    },
    /// A group of the classic protocol, or with `None` its end.
    Group {
        /// Group id.
        group: Rc<str>,
        /// Generation, members and shares.
        value: Option<GroupMetadataValue>,
    },
    /// Something of a group of the newer protocol.
    Consumer {
        /// Group id.
        group: Rc<str>,
        /// What.
        record: ConsumerRecord,
    },
}

/// The bytes are not what their type says.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The key is null or shorter than a type.
    #[error("a record without a type")]
    NoType,
    /// The value is shorter than a version.
    #[error("a value without a version")]
    NoVersion,
    /// A field does not fit.
    #[error("malformed record: {0}")]
    Malformed(#[from] DecodeError),
}

impl Record {
    /// The key's bytes.
    ///
    /// # Errors
    /// When a name is longer than its length field can say.
    pub fn key(&self) -> Result<Bytes, EncodeError> {
        match self {
            Record::Offset {
                group,
                topic,
                partition,
                ..
            } => {
                let key = OffsetCommitKey {
                    group: group.to_string(),
                    topic: topic.to_string(),
                    partition: *partition,
                };
                prefixed(TYPE_OFFSET, &key, KEY_VERSION)
            }
            Record::Group { group, .. } => {
                let key = GroupMetadataKey {
                    group: group.to_string(),
                };
                prefixed(TYPE_GROUP, &key, KEY_VERSION)
            }
            Record::Consumer { group, record } => record.key(group),
        }
    }

    /// The value's bytes; `None` for a tombstone.
    ///
    /// # Errors
    /// When a field is longer than its length field can say.
    pub fn value(&self) -> Result<Option<Bytes>, EncodeError> {
        match self {
            Record::Offset { value: None, .. } | Record::Group { value: None, .. } => Ok(None),
            Record::Offset {
                value: Some(committed),
                ..
            } => {
                let version = match committed.expires {
                    TimestampMs::NONE => OFFSET_VERSION,
                    TimestampMs(_) => OFFSET_VERSION_EXPIRING,
                };
                let value = OffsetCommitValue {
                    offset: committed.offset,
                    leader_epoch: committed.leader_epoch,
                    metadata: committed.metadata.to_string(),
                    commit_timestamp: committed.at.0,
                    expire_timestamp: committed.expires.0,
                    topic_id: committed.topic_id,
                };
                prefixed(version, &value, version).map(Some)
            }
            Record::Group {
                value: Some(value), ..
            } => prefixed(GROUP_VERSION, value, GROUP_VERSION).map(Some),
            Record::Consumer { record, .. } => record.value(),
        }
    }

    /// Reads a record. `None` for a type that is not known here.
    ///
    /// # Errors
    /// [`RecordError`]: the bytes are damaged, or of a version of the future.
    pub fn decode(key: Option<&[u8]>, value: Option<&[u8]>) -> Result<Option<Record>, RecordError> {
        let (kind, key) = key
            .and_then(|key| key.split_first_chunk::<2>())
            .ok_or(RecordError::NoType)?;
        match i16::from_be_bytes(*kind) {
            TYPE_OFFSET_LEGACY | TYPE_OFFSET => {
                let key: OffsetCommitKey = decode(key, KEY_VERSION)?;
                Ok(Some(Record::Offset {
                    group: key.group.into(),
                    topic: key.topic.into(),
                    partition: key.partition,
                    value: decode_value::<OffsetCommitValue>(value)?.map(committed),
                }))
            }
            TYPE_GROUP => {
                let key: GroupMetadataKey = decode(key, KEY_VERSION)?;
                Ok(Some(Record::Group {
                    group: key.group.into(),
                    value: decode_value(value)?,
                }))
            }
            newer => {
                let found = ConsumerRecord::decode(newer, key, value)?;
                Ok(found.map(|(group, record)| Record::Consumer { group, record }))
            }
        }
    }
}

fn committed(value: OffsetCommitValue) -> Committed {
    Committed {
        offset: value.offset,
        leader_epoch: value.leader_epoch,
        metadata: value.metadata.into(),
        at: TimestampMs(value.commit_timestamp),
        expires: TimestampMs(value.expire_timestamp),
        topic_id: value.topic_id,
    }
}

pub(crate) fn prefixed<M: Message>(
    prefix: i16,
    message: &M,
    version: i16,
) -> Result<Bytes, EncodeError> {
    let mut e = Encoder::new();
    e.i16(prefix);
    message.encode(&mut e, version)?;
    e.check()?;
    Ok(e.finish().bytes)
}

pub(crate) fn decode<M: Message>(bytes: &[u8], version: i16) -> Result<M, DecodeError> {
    let mut d = Decoder::new(BytesMut::from(bytes));
    let message = M::decode(&mut d, version)?;
    d.finish()?;
    Ok(message)
}

pub(crate) fn decode_value<M: Message>(value: Option<&[u8]>) -> Result<Option<M>, RecordError> {
    let Some(value) = value else {
        return Ok(None);
    };
    let (version, body) = value
        .split_first_chunk::<2>()
        .ok_or(RecordError::NoVersion)?;
    Ok(Some(decode(body, i16::from_be_bytes(*version))?))
}
