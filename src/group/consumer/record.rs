//! Records of the newer protocol: types 3, 5 to 8 and 16, in Kafka's formats. Type 4, which Kafka
//! wrote before 4.1, is left alone.

use std::rc::Rc;

use bytes::Bytes;
use thalweg_protocol::Message;
use thalweg_protocol::messages::{
    ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue, ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue, ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue, ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue, ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
};
use thalweg_protocol::wire::EncodeError;

use crate::record::{KEY_VERSION, RecordError, decode, decode_value, prefixed};

const TYPE_GROUP: i16 = 3;
const TYPE_MEMBER: i16 = 5;
const TYPE_TARGET_EPOCH: i16 = 6;
const TYPE_TARGET: i16 = 7;
const TYPE_CURRENT: i16 = 8;
const TYPE_REGEX: i16 = 16;

/// Only version of every value.
const VALUE_VERSION: i16 = 0;

/// One record of a group; `None` ends what it says.
#[derive(Clone, Debug, PartialEq)]
pub enum ConsumerRecord {
    /// The group's epoch.
    Group(Option<ConsumerGroupMetadataValue>),
    /// A member and its subscription.
    Member(Rc<str>, Option<ConsumerGroupMemberMetadataValue>),
    /// The epoch of the shares.
    TargetEpoch(Option<ConsumerGroupTargetAssignmentMetadataValue>),
    /// What a member is to have.
    Target(Rc<str>, Option<ConsumerGroupTargetAssignmentMemberValue>),
    /// What a member has.
    Current(Rc<str>, Option<ConsumerGroupCurrentMemberAssignmentValue>),
    /// What a pattern matches.
    Regex(Rc<str>, Option<ConsumerGroupRegularExpressionValue>),
}

impl ConsumerRecord {
    pub(crate) fn key(&self, group: &str) -> Result<Bytes, EncodeError> {
        let group_id = group.to_owned();
        let member_id = |member: &Rc<str>| member.to_string();
        match self {
            ConsumerRecord::Group(_) => {
                let key = ConsumerGroupMetadataKey { group_id };
                prefixed(TYPE_GROUP, &key, KEY_VERSION)
            }
            ConsumerRecord::Member(member, _) => {
                let key = ConsumerGroupMemberMetadataKey {
                    group_id,
                    member_id: member_id(member),
                };
                prefixed(TYPE_MEMBER, &key, KEY_VERSION)
            }
            ConsumerRecord::TargetEpoch(_) => {
                let key = ConsumerGroupTargetAssignmentMetadataKey { group_id };
                prefixed(TYPE_TARGET_EPOCH, &key, KEY_VERSION)
            }
            ConsumerRecord::Target(member, _) => {
                let key = ConsumerGroupTargetAssignmentMemberKey {
                    group_id,
                    member_id: member_id(member),
                };
                prefixed(TYPE_TARGET, &key, KEY_VERSION)
            }
            ConsumerRecord::Current(member, _) => {
                let key = ConsumerGroupCurrentMemberAssignmentKey {
                    group_id,
                    member_id: member_id(member),
                };
                prefixed(TYPE_CURRENT, &key, KEY_VERSION)
            }
            ConsumerRecord::Regex(regex, _) => {
                let key = ConsumerGroupRegularExpressionKey {
                    group_id,
                    regular_expression: regex.to_string(),
                };
                prefixed(TYPE_REGEX, &key, KEY_VERSION)
            }
        }
    }

    pub(crate) fn value(&self) -> Result<Option<Bytes>, EncodeError> {
        match self {
            ConsumerRecord::Group(value) => encoded(value.as_ref()),
            ConsumerRecord::Member(_, value) => encoded(value.as_ref()),
            ConsumerRecord::TargetEpoch(value) => encoded(value.as_ref()),
            ConsumerRecord::Target(_, value) => encoded(value.as_ref()),
            ConsumerRecord::Current(_, value) => encoded(value.as_ref()),
            ConsumerRecord::Regex(_, value) => encoded(value.as_ref()),
        }
    }

    /// The group and the record; `None` for a type that is not one of these.
    pub(crate) fn decode(
        kind: i16,
        key: &[u8],
        value: Option<&[u8]>,
    ) -> Result<Option<(Rc<str>, ConsumerRecord)>, RecordError> {
        let (group, record) = match kind {
            TYPE_GROUP => {
                let key: ConsumerGroupMetadataKey = decode(key, KEY_VERSION)?;
                (key.group_id, ConsumerRecord::Group(decode_value(value)?))
            }
            TYPE_MEMBER => {
                let key: ConsumerGroupMemberMetadataKey = decode(key, KEY_VERSION)?;
                let value = decode_value(value)?;
                (
                    key.group_id,
                    ConsumerRecord::Member(key.member_id.into(), value),
                )
            }
            TYPE_TARGET_EPOCH => {
                let key: ConsumerGroupTargetAssignmentMetadataKey = decode(key, KEY_VERSION)?;
                (
                    key.group_id,
                    ConsumerRecord::TargetEpoch(decode_value(value)?),
                )
            }
            TYPE_TARGET => {
                let key: ConsumerGroupTargetAssignmentMemberKey = decode(key, KEY_VERSION)?;
                let value = decode_value(value)?;
                (
                    key.group_id,
                    ConsumerRecord::Target(key.member_id.into(), value),
                )
            }
            TYPE_CURRENT => {
                let key: ConsumerGroupCurrentMemberAssignmentKey = decode(key, KEY_VERSION)?;
                let value = decode_value(value)?;
                (
                    key.group_id,
                    ConsumerRecord::Current(key.member_id.into(), value),
                )
            }
            TYPE_REGEX => {
                let key: ConsumerGroupRegularExpressionKey = decode(key, KEY_VERSION)?;
                let value = decode_value(value)?;
                let regex = key.regular_expression.into();
                (key.group_id, ConsumerRecord::Regex(regex, value))
            }
            _other_coordinators => return Ok(None),
        };
        Ok(Some((group.into(), record)))
    }
}

fn encoded<M: Message>(value: Option<&M>) -> Result<Option<Bytes>, EncodeError> {
    value
        .map(|value| prefixed(VALUE_VERSION, value, VALUE_VERSION))
        .transpose()
}
