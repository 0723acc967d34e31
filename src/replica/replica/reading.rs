//! What readers ask of a partition: how far they may read, where epochs end; and fetches that wait.

use thalweg_types::{LeaderEpoch, Offset};

use super::{Replica, Role};
use crate::epoch_cache::EpochEnd;
use crate::events::{FetchAsk, FetchBound, Isolation, Parking, Token};
use crate::list_offsets::OffsetBounds;
use crate::refused::Refused;

impl Replica {
    /// What a consumer's fetch may read, or why it may not. Checks in Kafka's order: epoch before
    /// leadership (RP-35), divergence before range, except that below the log start the range wins
    /// (RP-24, RP-25).
    ///
    /// # Errors
    /// A refusal for this partition's part of the answer.
    pub fn on_fetch(&self, ask: &FetchAsk) -> Result<FetchBound, Refused> {
        self.check_epoch(ask.current_leader_epoch)?;
        self.leading()?;
        let diverging = match ask.last_fetched_epoch {
            LeaderEpoch::NONE => None,
            epoch => self.divergence(epoch, ask.offset)?,
        };
        let inside = ask.offset >= self.log_start && ask.offset <= self.written_end;
        if !inside && diverging.is_none() {
            return Err(self.out_of_range(ask.offset));
        }
        Ok(FetchBound {
            high_watermark: self.high_watermark,
            last_stable: self.last_stable(),
            log_start: self.log_start,
            up_to: self.visible_end(ask.isolation),
            diverging,
        })
    }

    /// KIP-595's check of a fetcher that says which epoch its last record has.
    fn divergence(&self, epoch: LeaderEpoch, offset: Offset) -> Result<Option<EpochEnd>, Refused> {
        let known = self.epochs.end_offset_for(epoch, self.written_end);
        if known == EpochEnd::UNDEFINED {
            return Err(Refused::EpochEndUnknown(epoch));
        }
        if offset < self.log_start {
            return Err(self.out_of_range(offset));
        }
        Ok((known.epoch < epoch || known.end < offset).then_some(known))
    }

    /// Registers a fetch that found too little. `seen` is the `up_to` that it was read with,
    /// `from` its offset, `missing_bytes` what it still needs (at least 1 counts). Check and
    /// registration are one step: growth since `seen` answers [`Parking::LookAgain`].
    ///
    /// A fetch over n partitions registers with each for its missing bytes divided by n, rounded
    /// up: when the sum is reached, at least one of them has been.
    pub fn park_fetch(
        &mut self,
        token: Token,
        from: Offset,
        seen: Offset,
        isolation: Isolation,
        missing_bytes: u64,
    ) -> Parking {
        let served = matches!(self.role, Role::Leader(_));
        if !served || self.visible_end(isolation) > seen {
            return Parking::LookAgain;
        }
        let wake_at = self
            .byte_counts
            .at(from)
            .saturating_add(missing_bytes.max(1));
        // What an open transaction hides is there already: the next growth may end it.
        let wake_at = match isolation {
            Isolation::ReadUncommitted => wake_at,
            Isolation::ReadCommitted => wake_at.max(self.byte_counts.visible() + 1),
        };
        if self.fetches.insert(token, wake_at) {
            Parking::Parked
        } else {
            Parking::Full
        }
    }

    /// Forgets a parked fetch: answered by its deadline, or its client is gone (BI-35).
    pub fn unpark_fetch(&mut self, token: Token) {
        self.fetches.remove(token);
    }

    /// Where the offsets begin and end that this leader may tell.
    ///
    /// # Errors
    /// See [`Replica::on_list_offsets`].
    pub(crate) fn offset_bounds(
        &self,
        current_leader_epoch: LeaderEpoch,
        isolation: Isolation,
    ) -> Result<OffsetBounds, Refused> {
        self.check_epoch(current_leader_epoch)?;
        let leading = self.leading()?;
        if self.high_watermark < leading.epoch_start {
            return Err(Refused::OffsetNotAvailable);
        }
        Ok(OffsetBounds {
            log_start: self.log_start,
            latest: self.visible_end(isolation),
            epoch: self.epoch,
        })
    }

    /// Where an epoch ends (OffsetForLeaderEpoch, RP-23, RP-34).
    ///
    /// # Errors
    /// A refusal of the current epoch or for want of leadership.
    pub fn on_epoch_end(
        &self,
        current_leader_epoch: LeaderEpoch,
        asked: LeaderEpoch,
    ) -> Result<EpochEnd, Refused> {
        self.check_epoch(current_leader_epoch)?;
        self.leading()?;
        Ok(self.epochs.end_offset_for(asked, self.written_end))
    }
}
