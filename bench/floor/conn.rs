//! One connection of the floor: its input buffer and its ordered output.

use std::collections::VecDeque;
use std::io::{self, Read};
use std::net::TcpStream;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd};

use nix::sys::sendfile::sendfile64;
use nix::sys::socket::{MsgFlags, send};

use super::log::Slice;
use super::wire::ProduceAnswer;

/// Input buffer. Several of the largest frames fit, so that one read can take what waits.
const INPUT_BYTES: usize = 320 * 1024;

/// More output follows: do not send a small packet yet. (`nix` has no name for it.)
const MSG_MORE: MsgFlags = MsgFlags::from_bits_retain(libc::MSG_MORE);

#[derive(Debug)]
enum Out {
    Bytes { bytes: Vec<u8>, sent: usize },
    File { slice: Slice },
}

/// A produce request whose batch is written, ready to be answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Done {
    pub(super) partition: usize,
    pub(super) correlation: i32,
    pub(super) base_offset: i64,
}

/// One client.
#[derive(Debug)]
pub(super) struct Conn {
    socket: TcpStream,
    input: Vec<u8>,
    start: usize,
    end: usize,
    /// Pieces of `input` that a log still has to write.
    pub(super) in_flight: usize,
    pub(super) readable: bool,
    pub(super) queued: bool,
    pub(super) closed: bool,
    out: VecDeque<Out>,
    /// Answers in request order; those at the front are waited for.
    slots: VecDeque<Option<Done>>,
    /// Number of the slot at the front.
    first_slot: u64,
}

impl Conn {
    pub(super) fn new(socket: TcpStream) -> Conn {
        Conn {
            socket,
            input: vec![0; INPUT_BYTES],
            start: 0,
            end: 0,
            in_flight: 0,
            readable: false,
            queued: false,
            closed: false,
            out: VecDeque::new(),
            slots: VecDeque::new(),
            first_slot: 0,
        }
    }

    /// One read of what fits. Only while nothing refers to the buffer.
    pub(super) fn read(&mut self) -> io::Result<()> {
        if self.start > 0 {
            self.input.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        let room = self.input.len() - self.end;
        if room == 0 {
            return Err(io::Error::other("a frame does not fit the input buffer"));
        }
        match self.socket.read(&mut self.input[self.end..]) {
            Ok(0) => self.closed = true,
            Ok(n) => {
                self.end += n;
                self.readable = n == room;
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => self.readable = false,
            Err(e) => return Err(e),
        }
        Ok(())
    }

    /// Range of the next complete frame in the buffer, consumed.
    pub(super) fn next_frame(&mut self) -> Option<Range<usize>> {
        let head = self.input[self.start..self.end].first_chunk::<4>()?;
        let size = u32::from_be_bytes(*head) as usize;
        let from = self.start + 4;
        if self.end - from < size {
            return None;
        }
        self.start = from + size;
        Some(from..from + size)
    }

    pub(super) fn bytes(&self, range: &Range<usize>) -> &[u8] {
        &self.input[range.clone()]
    }

    /// Writes base offset and leader epoch into a batch; both lie outside its CRC.
    pub(super) fn patch(&mut self, batch: &Range<usize>, base_offset: i64) {
        let batch = &mut self.input[batch.clone()];
        batch[..8].copy_from_slice(&base_offset.to_be_bytes());
        batch[12..16].copy_from_slice(&0i32.to_be_bytes());
    }

    /// A place in the order of answers.
    pub(super) fn take_slot(&mut self) -> u64 {
        self.slots.push_back(None);
        self.first_slot + self.slots.len() as u64 - 1
    }

    /// True while an earlier request waits for its write.
    pub(super) fn owes_answers(&self) -> bool {
        !self.slots.is_empty()
    }

    /// One write is done: moves every answer whose turn it is to the output.
    pub(super) fn answer(&mut self, slot: u64, done: Done, templates: &[ProduceAnswer]) {
        if let Some(place) = self.slots.get_mut((slot - self.first_slot) as usize) {
            *place = Some(done);
        }
        while let Some(Some(done)) = self.slots.front().copied() {
            self.slots.pop_front();
            self.first_slot += 1;
            templates[done.partition].put(self.answers(), done.correlation, done.base_offset);
        }
    }

    /// The buffer at the end of the output, to append an answer to.
    pub(super) fn answers(&mut self) -> &mut Vec<u8> {
        if !matches!(self.out.back(), Some(Out::Bytes { .. })) {
            self.out.push_back(Out::Bytes {
                bytes: Vec::with_capacity(256),
                sent: 0,
            });
        }
        match self.out.back_mut() {
            Some(Out::Bytes { bytes, .. }) => bytes,
            Some(Out::File { .. }) | None => unreachable!("bytes were just pushed"),
        }
    }

    pub(super) fn send_slice(&mut self, slice: Slice) {
        self.out.push_back(Out::File { slice });
    }

    /// Sends until the socket is full or nothing is left.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        while let Some(mut part) = self.out.pop_front() {
            let more = !self.out.is_empty();
            let outcome = send_part(&mut self.socket, &mut part, more);
            match outcome {
                Ok(true) => {}
                Ok(false) => self.out.push_front(part),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    self.out.push_front(part);
                    return Ok(());
                }
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    pub(super) fn has_output(&self) -> bool {
        !self.out.is_empty()
    }
}

/// One system call for one part; true when the part is sent whole.
fn send_part(socket: &mut TcpStream, part: &mut Out, more: bool) -> io::Result<bool> {
    match part {
        Out::Bytes { bytes, sent } => {
            let flags = if more { MSG_MORE } else { MsgFlags::empty() };
            *sent += send(socket.as_raw_fd(), &bytes[*sent..], flags)?;
            Ok(*sent == bytes.len())
        }
        Out::File { slice } => {
            let mut at = slice.position as i64;
            let len = slice.len as usize;
            let n = sendfile64(socket.as_fd(), slice.file.as_fd(), Some(&mut at), len)?;
            if n == 0 {
                return Err(io::Error::other("a segment is shorter than planned"));
            }
            slice.position += n as u64;
            slice.len -= n as u64;
            Ok(slice.len == 0)
        }
    }
}
