//! Answers about groups, producers and settings, which may become far larger than their requests.

use std::rc::Rc;

use thalweg_types::limits::SMALL_ANSWER_BYTES_MAX;

use crate::pace::{LargeTurnGuard, Pace};
use crate::service::Call;
use crate::shard::Shard;

/// Bytes of an answer that are one element to its pace.
const BYTES_PER_ELEMENT: usize = 512;

/// Counts what an answer has come to, and lets others run in between. As long as it is small, any number of
/// such answers may be half built at once; one that is not goes on when its turn among large requests has come,
/// and has that until it is encoded.
pub(crate) struct Growing {
    shard: Rc<Shard>,
    bytes: usize,
    pace: Pace,
    turn: Turn,
}

enum Turn {
    /// None is needed yet.
    None,
    /// The request is large itself, and has it.
    OfRequest,
    Own(LargeTurnGuard),
}

/// An answer, and the turn that it needed.
pub(crate) struct Grown<M> {
    pub(crate) message: M,
    pub(crate) turn: Option<LargeTurnGuard>,
}

impl Growing {
    /// Of the answer to `call`.
    pub(crate) fn of(shard: &Rc<Shard>, call: &Call) -> Growing {
        Growing {
            shard: Rc::clone(shard),
            bytes: 0,
            pace: Pace::default(),
            turn: match call.is_large() {
                true => Turn::OfRequest,
                false => Turn::None,
            },
        }
    }

    /// So many bytes, roughly, were added.
    pub(crate) async fn grow(&mut self, bytes: usize) {
        self.bytes += bytes;
        self.pace.steps(1 + bytes / BYTES_PER_ELEMENT).await;
        if self.bytes > SMALL_ANSWER_BYTES_MAX && matches!(self.turn, Turn::None) {
            self.turn = Turn::Own(self.shard.large_turn.take().await);
        }
    }

    /// It is built.
    pub(crate) fn into_answer<M>(self, message: M) -> Grown<M> {
        let turn = match self.turn {
            Turn::None | Turn::OfRequest => None,
            Turn::Own(turn) => Some(turn),
        };
        Grown { message, turn }
    }
}
