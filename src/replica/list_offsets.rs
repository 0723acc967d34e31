//! What ListOffsets asks of a partition, and as much of the answer as its machine knows.

use thalweg_types::{LeaderEpoch, Offset, TimestampMs};

use crate::events::Isolation;
use crate::refused::Refused;
use crate::replica::Replica;

/// Which offset is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sought {
    /// The first one with this timestamp or a later one.
    At(TimestampMs),
    /// How far the client may read.
    Latest,
    /// Where the log begins.
    Earliest,
    /// That of the record with the largest timestamp (KIP-734).
    MaxTimestamp,
    /// Where the part of the log begins that is on the broker's own disks (KIP-405).
    EarliestLocal,
    /// The last one in tiered storage (KIP-1005).
    LatestTiered,
    /// The first one that waits for its upload to tiered storage (KIP-1023).
    EarliestPendingUpload,
}

impl Sought {
    /// Reads the `timestamp` field of a ListOffsets request; `None` when its version has no such value.
    #[must_use]
    pub fn from_wire(timestamp: i64, version: i16) -> Option<Sought> {
        let (sought, since) = match timestamp {
            0.. => (Sought::At(TimestampMs(timestamp)), 1),
            -1 => (Sought::Latest, 1),
            -2 => (Sought::Earliest, 1),
            -3 => (Sought::MaxTimestamp, 7),
            -4 => (Sought::EarliestLocal, 8),
            -5 => (Sought::LatestTiered, 9),
            -6 => (Sought::EarliestPendingUpload, 11),
            _ => return None,
        };
        (version >= since).then_some(sought)
    }
}

/// What the machine says to that.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Listed {
    /// This one.
    Known {
        /// The offset.
        offset: Offset,
        /// The leader epoch that it has, or of the leader where it ends the log; `NONE` where none is known.
        epoch: LeaderEpoch,
    },
    /// There is none.
    Nowhere,
    /// The log knows it. A record at `end` or above does not count.
    InLog {
        /// What to look for.
        lookup: Lookup,
        /// How far the client may read.
        end: Offset,
    },
}

/// A record to look for in a log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lookup {
    /// The first one with this timestamp or a later one.
    At(TimestampMs),
    /// The one with the largest timestamp.
    MaxTimestamp,
}

/// Where the offsets begin and end that a client may be told.
pub(crate) struct OffsetBounds {
    pub(crate) log_start: Offset,
    pub(crate) latest: Offset,
    /// Of the leader.
    pub(crate) epoch: LeaderEpoch,
}

impl Replica {
    /// Answers one partition of ListOffsets.
    ///
    /// # Errors
    /// A refusal; among them [`Refused::OffsetNotAvailable`] while a new leader's high watermark
    /// may still be below what clients have seen (RP-9).
    pub fn on_list_offsets(
        &self,
        current_leader_epoch: LeaderEpoch,
        isolation: Isolation,
        sought: Sought,
    ) -> Result<Listed, Refused> {
        let bounds = self.offset_bounds(current_leader_epoch, isolation)?;
        let in_log = |lookup| Listed::InLog {
            lookup,
            end: bounds.latest,
        };
        Ok(match sought {
            Sought::Latest => Listed::Known {
                offset: bounds.latest,
                epoch: bounds.epoch,
            },
            // Nothing is tiered: the local log begins where the log does.
            Sought::Earliest | Sought::EarliestLocal => Listed::Known {
                offset: bounds.log_start,
                epoch: self
                    .epochs()
                    .epoch_at(bounds.log_start)
                    .unwrap_or(LeaderEpoch::NONE),
            },
            // And nothing waits to be.
            Sought::LatestTiered | Sought::EarliestPendingUpload => Listed::Nowhere,
            Sought::MaxTimestamp => in_log(Lookup::MaxTimestamp),
            Sought::At(timestamp) => in_log(Lookup::At(timestamp)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Sought;
    use thalweg_types::TimestampMs;

    #[test]
    fn each_special_value_is_known_from_its_version_on() {
        for (timestamp, since, sought) in [
            (0, 1, Sought::At(TimestampMs(0))),
            (i64::MAX, 1, Sought::At(TimestampMs(i64::MAX))),
            (-1, 1, Sought::Latest),
            (-2, 1, Sought::Earliest),
            (-3, 7, Sought::MaxTimestamp),
            (-4, 8, Sought::EarliestLocal),
            (-5, 9, Sought::LatestTiered),
            (-6, 11, Sought::EarliestPendingUpload),
        ] {
            assert_eq!(Sought::from_wire(timestamp, since), Some(sought));
            assert_eq!(Sought::from_wire(timestamp, since - 1), None);
        }
        assert_eq!(Sought::from_wire(-7, i16::MAX), None);
        assert_eq!(Sought::from_wire(i64::MIN, i16::MAX), None);
    }
}
