//! TCP sockets, by readiness: an idle connection holds no buffer and no system call.

mod listener;
mod send_file;
mod stream;

pub use listener::{Accepted, Bound, Listener, Listeners};
pub use send_file::SendFileError;
pub use stream::{More, SendWaits, Stream};

/// Bytes that one task sends before it lets the other tasks of its thread run.
pub const SEND_QUANTUM_BYTES: usize = 512 * 1024;

/// Room that a read from a socket makes for itself when there is none; also how fast a buffer grows
/// as bytes arrive.
pub const READ_STEP_BYTES: usize = 64 * 1024;
