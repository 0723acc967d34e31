//! What the room asks of whoever knows the meaning of requests.

use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::rc::Rc;

use bytes::BytesMut;
use thalweg_metrics::CloseReason;

use crate::{ConnState, MemoryPermit, Response};

/// Judges requests. Implemented by the shard.
pub trait Service: 'static {
    /// Takes one request frame (without its size prefix). Called in the order of requests and not
    /// again before it ended, what it waits for included, so that what must keep that order (appends) is
    /// begun here; what may overlap belongs into the answer.
    ///
    /// `permit` is the request's memory: keep it for as long as the frame's bytes live. It stays on
    /// this core, also when the bytes move to another.
    fn dispatch(
        self: &Rc<Self>,
        conn: &Rc<ConnState>,
        frame: BytesMut,
        permit: MemoryPermit,
    ) -> Dispatch;

    /// Records that an answer promised could not be read, so that its connection ends. Whoever owns them is to find
    /// out what is lost, before the client asks again.
    fn on_unread(self: &Rc<Self>, unread: Unread);
}

/// A range of a file that could not be sent because it could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unread {
    /// The file.
    pub path: PathBuf,
    /// First byte of the read that failed.
    pub position: u64,
    /// What the system said.
    pub reason: String,
}

/// An answer that may not be ready yet. Dropped when the client is gone.
pub type Answer = dyn Future<Output = Reply>;

/// How far a request got in one call.
pub enum Dispatch {
    /// To its end: nothing of it is kept in the task of its connection.
    Done(Verdict),
    /// It waits, and what its connection has sent after it waits with it.
    Waits(Pin<Box<dyn Future<Output = Verdict>>>),
}

impl From<Verdict> for Dispatch {
    fn from(verdict: Verdict) -> Dispatch {
        Dispatch::Done(verdict)
    }
}

/// What becomes of a request.
pub enum Verdict {
    /// It gets an answer.
    Answer(Pin<Box<Answer>>),
    /// It gets none, and takes no slot (Produce with acks=0).
    Silent,
    /// The connection ends after the answers to earlier requests were sent.
    Close(Closing),
}

/// An answer that is ready.
pub enum Reply {
    /// This is sent.
    Send(Response),
    /// The connection ends after the answers before it.
    Close(Closing),
}

/// Why a connection ends: the reason is counted, the detail goes into the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Closing {
    /// What is counted.
    pub reason: CloseReason,
    /// What a person should read beside it; foreign words in it must be escaped.
    pub detail: Option<String>,
}

impl Closing {
    /// A reason with what a person should read beside it.
    pub fn because(reason: CloseReason, detail: impl Into<String>) -> Closing {
        Closing {
            reason,
            detail: Some(detail.into()),
        }
    }
}

impl From<CloseReason> for Closing {
    fn from(reason: CloseReason) -> Closing {
        Closing {
            reason,
            detail: None,
        }
    }
}
