//! Control records: what a record of a control batch means, and the markers that end transactions.
//!
//! The key is a version and a type, both i16. The values are messages of the protocol; only that of a
//! marker is made here.

use bytes::Bytes;
use thalweg_types::TimestampMs;

use super::{BatchBuilder, BatchOptions, BuildError, Codec};

/// The type of a control record (KIP-98, KIP-595, KIP-630, KIP-853).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ControlRecordType {
    /// A transaction was aborted.
    Abort,
    /// A transaction was committed.
    Commit,
    /// A KRaft leader was elected.
    LeaderChange,
    /// Begins a KRaft snapshot.
    SnapshotHeader,
    /// Ends a KRaft snapshot.
    SnapshotFooter,
    /// The `kraft.version` feature from here on.
    KRaftVersion,
    /// The voters from here on.
    KRaftVoters,
}

/// Version of the key's own layout.
const KEY_VERSION: i16 = 0;
/// Version of a marker's value (`EndTxnMarker`).
const END_MARKER_VERSION: i16 = 0;

/// The batch that ends a transaction (KIP-98): one control record without a sequence. `kind` is abort or
/// commit; `options` says whose it is, and where.
///
/// # Errors
/// As [`BatchBuilder::build`].
pub fn end_marker(
    kind: ControlRecordType,
    coordinator_epoch: i32,
    at: TimestampMs,
    mut options: BatchOptions,
) -> Result<Bytes, BuildError> {
    if let Some(producer) = &mut options.producer {
        producer.base_sequence = -1;
    }
    options.is_transactional = true;
    options.is_control = true;
    let mut value = END_MARKER_VERSION.to_be_bytes().to_vec();
    value.extend_from_slice(&coordinator_epoch.to_be_bytes());
    let mut builder = BatchBuilder::new(options);
    builder.push(at, Some(&kind.key()), Some(&value), &[])?;
    builder.build(Codec::None)
}

impl ControlRecordType {
    /// All of them, for tables and tests.
    pub const ALL: [ControlRecordType; 7] = [
        ControlRecordType::Abort,
        ControlRecordType::Commit,
        ControlRecordType::LeaderChange,
        ControlRecordType::SnapshotHeader,
        ControlRecordType::SnapshotFooter,
        ControlRecordType::KRaftVersion,
        ControlRecordType::KRaftVoters,
    ];

    /// The number in the key.
    #[must_use]
    pub fn id(self) -> i16 {
        match self {
            ControlRecordType::Abort => 0,
            ControlRecordType::Commit => 1,
            ControlRecordType::LeaderChange => 2,
            ControlRecordType::SnapshotHeader => 3,
            ControlRecordType::SnapshotFooter => 4,
            ControlRecordType::KRaftVersion => 5,
            ControlRecordType::KRaftVoters => 6,
        }
    }

    /// The record's key.
    #[must_use]
    pub fn key(self) -> [u8; 4] {
        let [v0, v1] = KEY_VERSION.to_be_bytes();
        let [t0, t1] = self.id().to_be_bytes();
        [v0, v1, t0, t1]
    }

    /// Reads a key. `None` for a type of the future, a negative version or too few bytes; longer keys
    /// of later versions are read as far as known.
    #[must_use]
    pub fn of_key(key: &[u8]) -> Option<ControlRecordType> {
        let [v0, v1, t0, t1, ..] = *key else {
            return None;
        };
        if i16::from_be_bytes([v0, v1]) < KEY_VERSION {
            return None;
        }
        let id = i16::from_be_bytes([t0, t1]);
        ControlRecordType::ALL
            .into_iter()
            .find(|kind| kind.id() == id)
    }
}

#[cfg(test)]
mod tests {
    use super::ControlRecordType;

    #[test]
    fn keys_round_trip() {
        for kind in ControlRecordType::ALL {
            assert_eq!(ControlRecordType::of_key(&kind.key()), Some(kind));
        }
        assert_eq!(ControlRecordType::LeaderChange.key(), [0, 0, 0, 2]);
        for key in [&[][..], &[0, 0, 0], &[0, 0, 0, 7], &[0xff, 0xff, 0, 0]] {
            assert_eq!(ControlRecordType::of_key(key), None);
        }
    }
}
