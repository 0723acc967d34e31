//! The floor: the least work that one CPU can do to serve the same requests.
//!
//! It reads the same frames from the same number of connections, checks each batch's CRC, patches
//! base offset and leader epoch, appends to one file per partition (fresh segments, rolled by size,
//! the oldest unlinked), answers by acks, and serves Fetch with `sendfile` between header and
//! trailer. It does **not** walk records, keep indexes, fence epochs, authorise, route between cores
//! or bound memory. What the broker costs above it is what those things cost.
//!
//! This module is audited on its own: it shares no code with the broker, and its `unsafe` is in
//! [`ring`] only. Two engines write the files: [`EngineChoice::Inline`] (`pwritev` on the spot) and
//! [`EngineChoice::Ring`] (one vectored `io_uring` write in flight per log). Reports use whichever was
//! faster.
//!
//! Order of a turn: read what is readable, parse, queue pieces per log; write every dirty log; turn
//! completed writes into answers; send. A connection's buffer does not move while a write refers
//! to it, because the connection is not read again until `in_flight` is 0.

mod conn;
mod log;
mod ring;
mod server;
pub mod wire;

use std::path::PathBuf;

pub use server::serve;

/// How files are written.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum EngineChoice {
    /// `pwritev` in the turn.
    Inline,
    /// A bare `io_uring`, one write in flight per log.
    Ring,
}

impl EngineChoice {
    /// Name in reports and on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            EngineChoice::Inline => "inline",
            EngineChoice::Ring => "ring",
        }
    }
}

/// What the floor serves.
#[derive(clap::Args, Clone, Debug)]
pub struct FloorOptions {
    /// Address to listen on; port 0 picks one, which is printed
    #[arg(long, default_value = "127.0.0.1:0")]
    pub listen: std::net::SocketAddr,
    /// Directory of the segment files; created, and emptied at the end
    #[arg(long)]
    pub dir: PathBuf,
    /// Topic name echoed in answers
    #[arg(long, default_value = "bench")]
    pub topic: String,
    /// Number of partitions, one log each
    #[arg(long, default_value_t = 16)]
    pub partitions: usize,
    /// Size at which a log rolls to a fresh file
    #[arg(long, default_value_t = 1 << 30)]
    pub segment_bytes: u64,
    /// Segments kept per log; older ones are unlinked at the roll
    #[arg(long, default_value_t = 64)]
    pub segments_kept: usize,
    /// How files are written
    #[arg(long, value_enum, default_value_t = EngineChoice::Inline)]
    pub engine: EngineChoice,
}
