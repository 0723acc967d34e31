//! The writing half of a connection.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::time::{Duration, Instant};

use bytes::Bytes;
use thalweg_metrics::{Cause, CloseReason, Spent, Stage};
use thalweg_reactor::lane::Reader;
use thalweg_reactor::net::{More, SendFileError};
use thalweg_reactor::time;
use thalweg_types::limits::{RESPONSE_WRITE_BYTES_MAX, SENDFILE_QUANTUM_BYTES};

use crate::account::{self, Answered, Sending};
use crate::copies::Copied;
use crate::serve::Link;
use crate::{Closing, Part, Response};

/// Answers whose list a connection keeps for the next; a longer one is freed when it is sent.
const LIST_KEPT_MAX: usize = 4;

/// Sends answers in order until the connection ends.
pub(crate) async fn write_answers(link: &Link) -> Closing {
    let mut answered = Vec::new();
    let mut cold = Reader::new();
    loop {
        let (began, then) = poll_fn(|cx| {
            let mut queue = link.conn.queue.borrow_mut();
            queue.poll_batch(cx, RESPONSE_WRITE_BYTES_MAX, &mut answered)
        })
        .await;
        if !answered.is_empty() {
            let sending = pin!(send(link, &mut cold, &mut answered, began));
            if let Err(closing) = beside_those_behind(link, sending).await {
                return closing;
            }
        }
        if let Some(closing) = then {
            return closing;
        }
        if answered.capacity() > LIST_KEPT_MAX {
            answered = Vec::new();
        }
    }
}

/// Sends, and whenever that has to wait lets the answers behind go on, however long the client takes: they may hold what
/// others wait for.
async fn beside_those_behind<T>(link: &Link, mut sending: Pin<&mut impl Future<Output = T>>) -> T {
    // Those that were there when the batch was taken have been polled then.
    let mut waited = false;
    poll_fn(|cx| {
        let sent = sending.as_mut().poll(cx);
        if sent.is_pending() && std::mem::replace(&mut waited, true) {
            link.conn.queue.borrow_mut().poll_waiting(cx);
        }
        sent
    })
    .await
}

/// Sends what `answered` holds and leaves it empty.
async fn send(
    link: &Link,
    cold: &mut Reader,
    answered: &mut Vec<Answered>,
    began: Instant,
) -> Result<(), Closing> {
    let mut outgoing = Outgoing {
        link,
        cold,
        pending: Vec::new(),
        pending_bytes: 0,
        copies: Vec::new(),
        cold_wait: Duration::ZERO,
    };
    match &answered[..] {
        // The common one, a single answer without records, needs no list of pieces.
        [one] if let Some(bytes) = one.response.only_bytes() => {
            let taken = match bytes.len() <= SENDFILE_QUANTUM_BYTES {
                true => outgoing.write_now(bytes)?,
                false => 0,
            };
            if taken < bytes.len() {
                outgoing.write(&bytes[taken..], More::No).await?;
            }
        }
        // On the heap: a connection that is idle holds no room for it (BI-30).
        _ => Box::pin(outgoing.send_all(answered)).await?,
    }
    let cold_wait = outgoing.cold_wait;
    link.conn.life.await_taken(None);
    let count = answered.len();
    let responses = answered.iter().map(|one| &one.response);
    let memory: usize = responses.map(Response::memory_bytes).sum();
    link.conn.queue.borrow_mut().sent(count, memory);
    let mut metrics = link.net.metrics().borrow_mut();
    metrics.counters.responses_sent += count as u64;
    let ended = time::now();
    metrics.record(Stage::ResponseWrite, ended.saturating_duration_since(began));
    let sending = Sending {
        began,
        ended,
        spent: waits_of_sending(link, cold_wait),
    };
    account::settle(&link.conn, &mut metrics, answered, &sending);
    answered.clear();
    Ok(())
}

/// What sending has waited for since this was asked last, beside so long for the lane.
fn waits_of_sending(link: &Link, cold_wait: Duration) -> Spent {
    let waits = link.stream.take_send_waits();
    let mut spent = Spent::default();
    for (cause, waited) in [
        (Cause::SocketStall, waits.socket),
        (Cause::ColdRead, waits.file + cold_wait),
    ] {
        if !waited.is_zero() {
            spent.add(cause, waited);
        }
    }
    spent
}

/// By which way record bytes go.
#[derive(Clone, Copy)]
pub(crate) enum Way {
    /// With the rest of an answer, out of its memory.
    Memory,
    /// By `sendfile`.
    Sendfile,
    /// By the lane.
    Lane,
}

/// Bytes that leave with the next write.
pub(crate) struct Outgoing<'a> {
    pub(crate) link: &'a Link,
    /// Reads what is not in the page cache.
    pub(crate) cold: &'a mut Reader,
    pending: Vec<Bytes>,
    pending_bytes: usize,
    /// Which of them are records out of a file.
    pub(crate) copies: Vec<Copied>,
    /// How long it has waited for the lane.
    pub(crate) cold_wait: Duration,
}

impl Outgoing<'_> {
    async fn send_all(&mut self, answered: &mut [Answered]) -> Result<(), Closing> {
        let mut left: usize = answered.iter().map(|one| one.response.len()).sum();
        for one in answered {
            if let Some(head) = one.response.take_head() {
                left -= 1;
                self.add(head).await?;
            }
            for part in one.response.take_rest() {
                left -= 1;
                match part {
                    Part::Bytes(bytes) => self.add(bytes).await?,
                    Part::File(range) if self.add_copy(&range).await? => {}
                    Part::File(range) => {
                        self.flush(More::Yes).await?;
                        let more = if left == 0 { More::No } else { More::Yes };
                        self.send_range(&range, more).await?;
                    }
                }
            }
        }
        self.flush(More::No).await
    }

    async fn add(&mut self, bytes: Bytes) -> Result<(), Closing> {
        self.make_room(bytes.len()).await?;
        self.push(bytes);
        Ok(())
    }

    /// Sends what waits if so many bytes more would be too many for one write.
    pub(crate) async fn make_room(&mut self, bytes: usize) -> Result<(), Closing> {
        match self.pending_bytes + bytes > RESPONSE_WRITE_BYTES_MAX {
            true => self.flush(More::Yes).await,
            false => Ok(()),
        }
    }

    pub(crate) fn push(&mut self, bytes: Bytes) {
        self.pending_bytes += bytes.len();
        self.pending.push(bytes);
    }

    /// Pieces that leave with the next write.
    pub(crate) fn pending(&self) -> usize {
        self.pending.len()
    }

    async fn flush(&mut self, more: More) -> Result<(), Closing> {
        let pending = std::mem::take(&mut self.pending);
        let bytes = std::mem::take(&mut self.pending_bytes);
        if !self.copies.is_empty() {
            return self.flush_with_copies(pending, more).await;
        }
        match &pending[..] {
            [] => Ok(()),
            [one] => self.write(one, more).await,
            several => {
                self.expect_taken();
                let written = self.link.stream.write_all_vectored(several, more).await;
                written.map_err(|error| Closing::from_socket(&error))?;
                self.count(bytes as u64, Way::Memory);
                Ok(())
            }
        }
    }

    /// Writes one piece, as far as the socket takes it at once; gives the number of bytes, nearly always all.
    fn write_now(&self, bytes: &[u8]) -> Result<usize, Closing> {
        let taken = self.link.stream.try_write(bytes, More::No);
        let taken = taken.map_err(|error| Closing::from_socket(&error))?;
        if taken > 0 {
            self.count(taken as u64, Way::Memory);
        }
        Ok(taken)
    }

    /// Writes in pieces, each of which the client must take in time.
    pub(crate) async fn write(&self, bytes: &[u8], more: More) -> Result<(), Closing> {
        let mut pieces = bytes.chunks(SENDFILE_QUANTUM_BYTES).peekable();
        while let Some(piece) = pieces.next() {
            self.expect_taken();
            let more = if pieces.peek().is_some() {
                More::Yes
            } else {
                more
            };
            let written = self.link.stream.write_all(piece, more).await;
            written.map_err(|error| Closing::from_socket(&error))?;
            self.count(piece.len() as u64, Way::Memory);
        }
        Ok(())
    }

    /// The client must take the next piece in time.
    pub(crate) fn expect_taken(&self) {
        let net = &self.link.net;
        self.link
            .conn
            .life
            .await_taken(Some(net.due_in(net.limits().write_window)));
    }

    pub(crate) fn count(&self, bytes: u64, way: Way) {
        self.link.conn.count_out(bytes);
        let mut metrics = self.link.net.metrics().borrow_mut();
        metrics.counters.bytes_out += bytes;
        metrics.counters.response_writes += 1;
        match way {
            Way::Memory => {}
            Way::Sendfile => metrics.counters.fetch_bytes_sendfile += bytes,
            Way::Lane => metrics.counters.fetch_bytes_cold += bytes,
        }
    }
}

impl Closing {
    pub(crate) fn from_socket(error: &std::io::Error) -> Closing {
        use std::io::ErrorKind;
        match error.kind() {
            ErrorKind::BrokenPipe | ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted => {
                CloseReason::ClientClosed.into()
            }
            _ => Closing {
                reason: CloseReason::SocketError,
                detail: Some(error.to_string()),
            },
        }
    }

    pub(crate) fn from_send_file(error: &SendFileError) -> Closing {
        match error {
            SendFileError::Socket(socket) => Closing::from_socket(socket),
            SendFileError::File { .. } | SendFileError::Short { .. } => {
                Closing::because(CloseReason::StorageError, error.to_string())
            }
        }
    }
}
