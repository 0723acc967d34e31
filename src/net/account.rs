//! What each request waited for: the reading half notes its arrival, the service what it did, the writing half the
//! rest, and writes it down when the last byte of the answer is with the socket.
//!
//! Cost: an account travels inside the answer, by value. Times are taken where they were taken before; waits that did
//! not happen read no clock. Only a request that is among the slowest is described in full.

use std::time::{Duration, Instant};

use thalweg_metrics::{Cause, CoreMetrics, SlowRequest, Spent, micros};
use thalweg_reactor::time;
use thalweg_types::TopicPartition;

use crate::{ConnState, Response};

/// What a service says of a request whose answer is ready.
#[derive(Clone, Copy, Debug, Default)]
pub struct Account {
    /// Kafka's name of the API.
    pub api: &'static str,
    /// The only partition that the request is about, if there is but one.
    pub partition: Option<TopicPartition>,
    /// When the work on it began at the owner of its partition; `None` when that is when its dispatch ended.
    pub begun: Option<Instant>,
    /// How long it was meant to wait, which nothing is to blame for.
    pub parked: Parked,
    /// What the service waited for.
    pub spent: Spent,
}

/// A wait that the client asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parked {
    /// So long, for example a fetch for records.
    For(Duration),
    /// From the end of its dispatch until its answer was ready, as a join waits for other members.
    UntilReady,
}

impl Default for Parked {
    fn default() -> Parked {
        Parked::For(Duration::ZERO)
    }
}

/// How a request came in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    /// Its last byte was read.
    pub(crate) received: Instant,
    /// Its dispatch ended.
    pub(crate) dispatched: Instant,
    /// Size of its frame.
    pub(crate) bytes: u32,
    /// What it waited for before it was received.
    pub(crate) spent: Spent,
}

/// An answer that is ready.
pub(crate) struct Answered {
    pub(crate) response: Response,
    pub(crate) arrival: Arrival,
    /// Since when.
    pub(crate) ready: Instant,
}

/// How answers were sent that left together.
pub(crate) struct Sending {
    pub(crate) began: Instant,
    pub(crate) ended: Instant,
    /// What sending waited for.
    pub(crate) spent: Spent,
}

/// The stages of a request, and how long it took and was meant to wait in all.
#[derive(Debug, PartialEq, Eq)]
struct Bill {
    spent: Spent,
    total: Duration,
    parked: Duration,
}

impl Answered {
    fn bill(&self, sending: &Sending) -> Bill {
        let Arrival {
            received,
            dispatched,
            spent: arriving,
            ..
        } = self.arrival;
        let account = self.response.account();
        let parked = match account.parked {
            Parked::For(parked) => parked,
            Parked::UntilReady => self.ready.saturating_duration_since(dispatched),
        };
        let mut spent = arriving;
        let begun = account.begun.unwrap_or(dispatched);
        spent.add(Cause::Queue, begun.saturating_duration_since(received));
        spent.merge(&account.spent);
        if sending.began > self.ready {
            spent.add(Cause::Order, sending.began - self.ready);
        }
        spent.merge(&sending.spent);
        let before = arriving.total_us();
        let since = sending.ended.saturating_duration_since(received);
        Bill {
            spent,
            total: (since + Duration::from_micros(before)).saturating_sub(parked),
            parked,
        }
    }
}

/// Writes down what the answers of one connection that were sent together had waited for.
pub(crate) fn settle(
    conn: &ConnState,
    metrics: &mut CoreMetrics,
    answered: &[Answered],
    sending: &Sending,
) {
    for one in answered {
        let bill = one.bill(sending);
        let total_us = micros(bill.total);
        metrics.blame.count(&bill.spent, total_us);
        if metrics.blame.slow.admits(total_us) {
            metrics.blame.slow.push(describe(conn, one, &bill));
        }
    }
}

#[cold]
fn describe(conn: &ConnState, answered: &Answered, bill: &Bill) -> SlowRequest {
    let account = answered.response.account();
    SlowRequest {
        ended_ms: time::unix_ms(),
        total_us: micros(bill.total),
        parked_us: micros(bill.parked),
        spent: bill.spent,
        api: account.api,
        partition: account.partition,
        request_bytes: answered.arrival.bytes,
        response_bytes: answered.response.bytes(),
        client_id: conn.client_label(),
        peer: conn.peer().to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use bytes::Bytes;
    use thalweg_metrics::{Cause, Spent};

    use super::{Account, Answered, Arrival, Parked, Sending};
    use crate::Response;

    const MS: Duration = Duration::from_millis(1);

    fn spent(cause: Cause, took: Duration) -> Spent {
        let mut spent = Spent::default();
        spent.add(cause, took);
        spent
    }

    fn answered(at: Instant, account: Account) -> Answered {
        Answered {
            response: Response::from(Bytes::from_static(b"x")).with_account(account),
            arrival: Arrival {
                received: at,
                dispatched: at + 2 * MS,
                bytes: 10,
                spent: spent(Cause::Receive, 5 * MS),
            },
            ready: at + 50 * MS,
        }
    }

    fn sending(at: Instant) -> Sending {
        Sending {
            began: at + 60 * MS,
            ended: at + 100 * MS,
            spent: spent(Cause::SocketStall, 30 * MS),
        }
    }

    #[test]
    fn every_stage_is_charged_with_its_own_time() {
        let at = Instant::now();
        let account = Account {
            begun: Some(at + 4 * MS),
            spent: spent(Cause::Append, 40 * MS),
            ..Account::default()
        };
        let bill = answered(at, account).bill(&sending(at));
        let stages: Vec<_> = bill.spent.stages().collect();
        let expected = [
            (Cause::Receive, 5_000),
            (Cause::Queue, 4_000),
            (Cause::Append, 40_000),
            (Cause::Order, 10_000),
            (Cause::SocketStall, 30_000),
        ];
        assert_eq!(stages, expected);
        assert_eq!((bill.total, bill.parked), (105 * MS, Duration::ZERO));
    }

    #[test]
    fn a_wait_that_was_asked_for_blames_nobody() {
        let at = Instant::now();
        let parked = |parked| {
            let account = Account {
                parked,
                ..Account::default()
            };
            answered(at, account).bill(&sending(at))
        };
        let fetch = parked(Parked::For(20 * MS));
        assert_eq!((fetch.total, fetch.parked), (85 * MS, 20 * MS));
        let join = parked(Parked::UntilReady);
        assert_eq!((join.total, join.parked), (57 * MS, 48 * MS));
        assert_eq!(join.spent.us(Cause::Queue), 2_000);
    }
}
