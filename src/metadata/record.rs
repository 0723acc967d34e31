//! The records of the metadata log and their frame.

use bytes::{Bytes, BytesMut};
use thalweg_protocol::messages::{
    AbortTransactionRecord, BeginTransactionRecord, BrokerRegistrationChangeRecord, ClearElrRecord,
    ConfigRecord, EndTransactionRecord, FeatureLevelRecord, FenceBrokerRecord, NoOpRecord,
    PartitionChangeRecord, PartitionRecord, ProducerIdsRecord, RegisterBrokerRecord,
    RegisterControllerRecord, RemoveTopicRecord, TopicRecord, UnfenceBrokerRecord,
    UnregisterBrokerRecord,
};
use thalweg_protocol::wire::{DecodeError, Decoder, EncodeError, Encoder};
use thalweg_protocol::{Message, MetadataRecord};

/// Version of the frame around each record (KIP-631).
const FRAME_VERSION: u32 = 1;

/// The bytes are not a metadata record that this broker understands. It must not go on without it.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The frame is of another kind.
    #[error("metadata record frame version {0}, this broker knows {FRAME_VERSION}")]
    FrameVersion(u32),
    /// A record type that belongs to a feature this broker does not have.
    #[error("metadata record type {} is not known to this broker{}", .0, feature_of(*.0))]
    UnknownType(u32),
    /// The record's version is newer than what this broker knows.
    #[error("metadata record type {record_type} version {version} is not known to this broker")]
    UnknownVersion {
        /// Kafka's number of the record type.
        record_type: u32,
        /// Version found.
        version: u32,
    },
    /// The bytes do not fit the type.
    #[error("malformed metadata record")]
    Malformed(#[from] DecodeError),
}

/// What Kafka has the record type for, of those that are not read here.
fn feature_of(record_type: u32) -> &'static str {
    match record_type {
        10 | 26 => ": it is of delegation tokens, which it does not have",
        11 | 22 => ": it is of SCRAM credentials, which it does not have",
        14 => ": it is of quotas, which it does not have",
        18 | 19 => ": it is of access control, which it does not have",
        21 => ": a Kafka before 4.0 wrote it, whose directories can not be taken over",
        _of_later_releases => "",
    }
}

macro_rules! records {
    ($($(#[$doc:meta])* $variant:ident($body:ident) writes $version:literal,)*) => {
        /// One record of the metadata log.
        ///
        /// Versions written are those of metadata.version 4.1-IV1; all known ones are read.
        #[derive(Clone, PartialEq, Debug)]
        pub enum Record {
            $($(#[$doc])* $variant($body),)*
        }

        $(impl From<$body> for Record {
            fn from(body: $body) -> Record {
                Record::$variant(body)
            }
        })*

        impl Record {
            /// Kafka's name of the record type.
            #[must_use]
            pub fn name(&self) -> &'static str {
                match self {
                    $(Record::$variant(_) => $body::NAME,)*
                }
            }

            /// The framed bytes, as they are the value of a record in a batch.
            ///
            /// # Errors
            /// When a field has no place in the version that is written, or a length does not fit.
            pub fn encode(&self) -> Result<Bytes, EncodeError> {
                let mut e = Encoder::new();
                e.uvarint(FRAME_VERSION);
                match self {
                    $(Record::$variant(body) => {
                        e.uvarint($body::TYPE);
                        e.uvarint($version);
                        body.encode(&mut e, $version)?;
                    })*
                }
                Ok(e.finish().bytes)
            }

            /// Reads framed bytes: all of them belong to the record.
            ///
            /// # Errors
            /// [`RecordError`]; nothing is skipped.
            pub fn decode(framed: &[u8]) -> Result<Record, RecordError> {
                let mut d = Decoder::new(BytesMut::from(framed));
                let frame = d.uvarint();
                d.check()?;
                if frame != FRAME_VERSION {
                    return Err(RecordError::FrameVersion(frame));
                }
                let record_type = d.uvarint();
                let version = d.uvarint();
                d.check()?;
                let record = match record_type {
                    $($body::TYPE => {
                        let known = known_version::<$body>(version)?;
                        Record::$variant($body::decode(&mut d, known)?)
                    })*
                    other => return Err(RecordError::UnknownType(other)),
                };
                d.finish()?;
                Ok(record)
            }
        }
    };
}

records! {
    /// A broker process registers.
    RegisterBroker(RegisterBrokerRecord) writes 3,
    /// A broker leaves for good.
    UnregisterBroker(UnregisterBrokerRecord) writes 0,
    /// A topic is created.
    Topic(TopicRecord) writes 0,
    /// A partition is created, or stated whole.
    Partition(PartitionRecord) writes 2,
    /// A property of a topic or broker is set or removed.
    Config(ConfigRecord) writes 0,
    /// A partition changes.
    PartitionChange(PartitionChangeRecord) writes 2,
    /// A broker may not lead.
    FenceBroker(FenceBrokerRecord) writes 0,
    /// A broker may lead.
    UnfenceBroker(UnfenceBrokerRecord) writes 0,
    /// A topic is deleted, with its partitions and properties.
    RemoveTopic(RemoveTopicRecord) writes 0,
    /// A feature gets its level in the whole cluster.
    FeatureLevel(FeatureLevelRecord) writes 0,
    /// A block of producer ids is given out.
    ProducerIds(ProducerIdsRecord) writes 0,
    /// A registration changes.
    BrokerRegistrationChange(BrokerRegistrationChangeRecord) writes 2,
    /// Nothing.
    NoOp(NoOpRecord) writes 0,
    /// The records up to the end count all or not at all (KIP-868).
    BeginTransaction(BeginTransactionRecord) writes 0,
    /// They count.
    EndTransaction(EndTransactionRecord) writes 0,
    /// They do not.
    AbortTransaction(AbortTransactionRecord) writes 0,
    /// A controller process registers.
    RegisterController(RegisterControllerRecord) writes 0,
    /// Eligible leader replicas are forgotten.
    ClearElr(ClearElrRecord) writes 0,
}

fn known_version<M: MetadataRecord>(version: u32) -> Result<i16, RecordError> {
    i16::try_from(version)
        .ok()
        .filter(|version| M::VERSIONS.contains(version))
        .ok_or(RecordError::UnknownVersion {
            record_type: M::TYPE,
            version,
        })
}
