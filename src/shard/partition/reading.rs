//! What consumers ask of a partition: records to send, and offsets by time. Fetches for which there is
//! nothing to send yet wait here.

use std::time::Duration;

use thalweg_protocol::ErrorCode;
use thalweg_reactor::time;
use thalweg_replica::{FetchBound, Isolation, Listed, Lookup, Parking, Refused, Token};
use thalweg_storage::ReadError;
use thalweg_types::{LeaderEpoch, Offset, TimestampMs};

use super::Partition;
use crate::peer::{FetchAsk, FetchFound, OffsetAsk, OffsetFound, Park, ParkId};

impl Partition {
    /// Finds what to send; registers the fetch in the same step when `park` is given and it is not enough.
    pub(crate) async fn fetch(&self, ask: &FetchAsk, park: Option<&Park>) -> FetchFound {
        self.follow_log();
        let query = thalweg_replica::FetchAsk {
            offset: ask.offset,
            current_leader_epoch: ask.current_leader_epoch,
            last_fetched_epoch: ask.last_fetched_epoch,
            isolation: ask.isolation,
        };
        let bound = match self.replica.borrow().on_fetch(&query) {
            Ok(bound) => bound,
            Err(refused) => return FetchFound::refused(ask.slot, refused.code()),
        };
        let mut found = FetchFound {
            slot: ask.slot,
            error: ErrorCode::None,
            high_watermark: bound.high_watermark,
            last_stable: bound.last_stable,
            log_start: bound.log_start,
            diverging: bound.diverging.map(|end| (end.epoch, end.end)),
            crowded: false,
            disk_wait: Duration::ZERO,
            plan: None,
            available: 0,
            aborted: None,
        };
        if bound.diverging.is_none() && bound.up_to > ask.offset {
            let (from, up_to, most) = (ask.offset, bound.up_to, ask.bytes_max);
            let planning = self.reading(async |log| log.read_plan(from, up_to, most).await);
            let (planned, waited) = time::waited(planning).await;
            found.disk_wait += waited;
            match planned {
                Ok(plan) => {
                    // What compaction has left of the way to there may be nothing: then it is not worth an answer.
                    let is_cut = !plan.is_empty() && plan.next_offset < up_to;
                    found.available = match is_cut {
                        true => u64::from(plan.len.max(most)),
                        false => u64::from(plan.len),
                    };
                    found.plan = (!plan.is_empty()).then_some(plan);
                }
                Err(error) => return self.refuse_read(ask.slot, &error),
            }
        }
        if ask.isolation == Isolation::ReadCommitted {
            let up_to = found
                .plan
                .as_ref()
                .map_or(ask.offset, |plan| plan.next_offset);
            let looking = self.reading(async |log| log.aborted_in(ask.offset, up_to).await);
            let (aborted, waited) = time::waited(looking).await;
            found.disk_wait += waited;
            match aborted {
                Ok(aborted) => found.aborted = Some(aborted),
                Err(error) => return self.refuse_read(ask.slot, &error),
            }
        }
        if let Some(park) = park.filter(|park| found.bytes() < park.enough_bytes) {
            self.park(ask, &bound, park, &mut found);
        }
        found
    }

    fn park(&self, ask: &FetchAsk, bound: &FetchBound, park: &Park, found: &mut FetchFound) {
        let token = Token(park.id);
        let parking = self.replica.borrow_mut().park_fetch(
            token,
            ask.offset,
            bound.up_to,
            ask.isolation,
            park.missing_bytes,
        );
        match parking {
            Parking::Parked => {
                self.fetches.borrow_mut().insert(token, park.wake.clone());
            }
            Parking::LookAgain => park.wake.open(),
            Parking::Full => found.crowded = true,
        }
    }

    /// Forgets a parked fetch.
    pub(crate) fn unpark(&self, id: ParkId) {
        self.replica.borrow_mut().unpark_fetch(Token(id));
        self.fetches.borrow_mut().remove(&Token(id));
    }

    /// Wakes every parked fetch.
    pub(crate) fn wake_parked(&self) {
        for (token, wake) in self.fetches.borrow_mut().drain() {
            self.replica.borrow_mut().unpark_fetch(token);
            wake.open();
        }
    }

    /// Fetches parked here.
    pub(crate) fn parked_fetches(&self) -> usize {
        self.fetches.borrow().len()
    }

    fn refuse_read(&self, slot: usize, error: &ReadError) -> FetchFound {
        FetchFound::refused(slot, self.read_error(error))
    }

    fn read_error(&self, error: &ReadError) -> ErrorCode {
        match error {
            ReadError::OutOfRange { .. } => ErrorCode::OffsetOutOfRange,
            ReadError::Closed => ErrorCode::NotLeaderOrFollower,
            // Reads look again by themselves; whoever sees it has clients do so.
            ReadError::Replaced | ReadError::Offline { .. } => ErrorCode::KafkaStorageError,
            // A retry is of no use, so the error is not one of those that clients retry in silence.
            ReadError::Quarantined { .. } => {
                tracing::debug!(partition = %self.log().name(), %error, "read refused");
                ErrorCode::CorruptMessage
            }
            ReadError::Damaged { .. } => {
                tracing::error!(partition = %self.log().name(), %error, "read failed");
                ErrorCode::CorruptMessage
            }
            ReadError::Io { .. } | ReadError::Records { .. } => {
                tracing::error!(partition = %self.log().name(), %error, "read failed");
                ErrorCode::KafkaStorageError
            }
        }
    }

    /// Answers one partition of ListOffsets.
    pub(crate) async fn list_offset(&self, ask: &OffsetAsk) -> OffsetFound {
        OffsetFound {
            slot: ask.slot,
            result: self.find_offset(ask).await,
        }
    }

    async fn find_offset(
        &self,
        ask: &OffsetAsk,
    ) -> Result<(Offset, TimestampMs, LeaderEpoch), ErrorCode> {
        const NONE: (Offset, TimestampMs, LeaderEpoch) =
            (Offset(-1), TimestampMs::NONE, LeaderEpoch::NONE);
        self.follow_log();
        let listed = self
            .replica
            .borrow()
            .on_list_offsets(ask.current_leader_epoch, ask.isolation, ask.sought)
            .map_err(Refused::code)?;
        let (lookup, end) = match listed {
            Listed::Known { offset, epoch } => return Ok((offset, TimestampMs::NONE, epoch)),
            Listed::Nowhere => return Ok(NONE),
            Listed::InLog { lookup, end } => (lookup, end),
        };
        let looking = self.reading(async |log| match lookup {
            Lookup::MaxTimestamp => log.max_timestamp_offset().await,
            Lookup::At(timestamp) => log.offset_for_timestamp(timestamp).await,
        });
        match looking.await {
            Ok(Some(hit)) if hit.offset < end => Ok((hit.offset, hit.timestamp, hit.leader_epoch)),
            Ok(_) => Ok(NONE),
            Err(error) => Err(self.read_error(&error)),
        }
    }
}
