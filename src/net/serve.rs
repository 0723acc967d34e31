//! Serving one connection: a reading half and a writing half, polled by one task.
//!
//! The task polls the reading half, then the writing half, and again only when the writing half has freed
//! room that the reading half waits for. So an answer that is ready leaves in the turn in which its
//! request came in, and a wake for an answer polls each half once.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::BytesMut;
use thalweg_metrics::{Cause, CloseReason, Stage};
use thalweg_reactor::net::Stream;
use thalweg_reactor::time;
use thalweg_types::ListenerIndex;
use thalweg_types::limits::LOCAL_SOCKET_BUFFER_BYTES;

use crate::account::Arrival;
use crate::budget::Kind;
use crate::conn::{ConnState, Reading};
use crate::frame::{FrameBuffer, FrameError, PREFIX_BYTES};
use crate::read_buffers::Memory;
use crate::shard_net::ShardNet;
use crate::writer::write_answers;
use crate::{Closing, Dispatch, Limits, MemoryPermit, Service, Unread, Verdict};

/// Turns of both halves before other tasks of the shard may run.
const TURNS_MAX: usize = 32;

/// What both halves of one connection work with.
pub(crate) struct Link {
    pub(crate) stream: Stream,
    pub(crate) conn: Rc<ConnState>,
    pub(crate) net: Rc<ShardNet>,
    /// Why an answer could not be sent to its end.
    pub(crate) unread: RefCell<Option<Unread>>,
}

/// Serves one connection, made to `listener`, until it ends; returns why it ended. The socket is closed when the future
/// ends or is dropped, and answers that nobody waits for any more are dropped with it.
///
/// # Errors
/// None: whatever a client or its network does ends the connection and nothing else.
pub async fn serve<S: Service>(
    stream: Stream,
    listener: ListenerIndex,
    service: Rc<S>,
    net: Rc<ShardNet>,
) -> CloseReason {
    if let Err(error) = SocketBuffers::of(&stream, net.limits()).apply(&stream) {
        tracing::debug!(%error, "the kernel chooses the size of a socket's buffers");
    }
    let membership = net.enter(listener, stream.peer_addr());
    let link = Link {
        stream,
        conn: Rc::clone(&membership.conn),
        net,
        unread: RefCell::default(),
    };
    let closing = run(&link, &service).await;
    if let Some(unread) = link.unread.take() {
        service.on_unread(unread);
    }
    link.net.report_end(&link.conn, &closing);
    closing.reason
}

/// Bytes of SO_SNDBUF and of SO_RCVBUF; `None` leaves one to the kernel.
#[derive(Debug, PartialEq, Eq)]
struct SocketBuffers {
    send: Option<u32>,
    receive: Option<u32>,
}

impl SocketBuffers {
    fn of(stream: &Stream, limits: &Limits) -> SocketBuffers {
        let local = stream
            .peer_is_on_this_host()
            .then_some(LOCAL_SOCKET_BUFFER_BYTES);
        SocketBuffers {
            send: limits.send_buffer_bytes.or(local),
            receive: limits.receive_buffer_bytes.or(local),
        }
    }

    fn apply(&self, stream: &Stream) -> io::Result<()> {
        if let Some(bytes) = self.send {
            stream.set_send_buffer(bytes)?;
        }
        if let Some(bytes) = self.receive {
            stream.set_receive_buffer(bytes)?;
        }
        Ok(())
    }
}

async fn run<S: Service>(link: &Link, service: &Rc<S>) -> Closing {
    let mut halves = Halves {
        link,
        reader: pin!(read_requests(link, service)),
        reading: true,
        gone: None,
        writer: pin!(write_answers(link)),
    };
    poll_fn(move |cx| halves.poll(cx)).await
}

struct Halves<'a, R, W> {
    link: &'a Link,
    reader: Pin<&'a mut R>,
    reading: bool,
    gone: Option<Closing>,
    writer: Pin<&'a mut W>,
}

impl<R, W> Halves<'_, R, W>
where
    R: Future<Output = Closing>,
    W: Future<Output = Closing>,
{
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Closing> {
        let conn = &self.link.conn;
        conn.life.remember(cx.waker());
        for _ in 0..TURNS_MAX {
            if let Some(reason) = conn.life.ended() {
                return Poll::Ready(reason.into());
            }
            if self.reading
                && let Poll::Ready(closing) = self.poll_reader(cx)
            {
                self.reading = false;
                self.stop_reading(closing);
            }
            let in_flight = conn.queue.borrow().in_flight();
            if let Poll::Ready(closing) = self.writer.as_mut().poll(cx) {
                return Poll::Ready(closing);
            }
            if let Some(closing) = self.gone.take() {
                return Poll::Ready(closing);
            }
            let freed = conn.queue.borrow().in_flight() < in_flight;
            if !(freed && conn.life.awaits_room.get()) {
                return Poll::Pending;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn poll_reader(&mut self, cx: &mut Context<'_>) -> Poll<Closing> {
        // Half a request is not waited for: it was not taken on, and its rest may never come.
        let waits_for_client = match self.link.conn.life.reading.get() {
            Reading::Idle | Reading::Frame => true,
            Reading::Busy => false,
        };
        if waits_for_client && self.link.net.is_stopping() {
            return Poll::Ready(CloseReason::Stopping.into());
        }
        self.reader.as_mut().poll(cx)
    }

    /// A client that is gone gets what is ready and nothing more; otherwise all that was asked
    /// before is answered first.
    fn stop_reading(&mut self, closing: Closing) {
        let (conn, net) = (&self.link.conn, &self.link.net);
        let due = net.due_in(net.limits().write_window);
        conn.life.flush_by(due, closing.reason);
        match closing.reason {
            CloseReason::ClientClosed | CloseReason::SocketError => self.gone = Some(closing),
            CloseReason::Idle
            | CloseReason::SlowFrame
            | CloseReason::SlowReader
            | CloseReason::BadFrame
            | CloseReason::BadRequest
            | CloseReason::IllegalState
            | CloseReason::StorageError
            | CloseReason::Internal
            | CloseReason::Stopping => conn.queue.borrow_mut().push_close(closing),
        }
    }
}

async fn read_requests<S: Service>(link: &Link, service: &Rc<S>) -> Closing {
    let mut frames = FrameBuffer::default();
    loop {
        match read_request(link, &mut frames, service).await {
            Ok(()) => {}
            Err(closing) => return closing,
        }
    }
}

/// Reads one request, hands it over, and puts its answer in line.
async fn read_request<S: Service>(
    link: &Link,
    frames: &mut FrameBuffer,
    service: &Rc<S>,
) -> Result<(), Closing> {
    if !link.conn.has_room(link.net.limits()) {
        let ((), held_up) = time::waited(wait_for_room(link)).await;
        if !frames.is_empty() {
            link.conn.life.charge(Cause::Throttle, held_up);
        }
    }
    let (frame, permit) = read_frame(link, frames).await?;
    let received = time::now();
    link.conn.count_request(received);
    let bytes = u32::try_from(frame.len()).unwrap_or(u32::MAX);
    let verdict = match service.dispatch(&link.conn, frame, permit) {
        Dispatch::Done(verdict) => verdict,
        Dispatch::Waits(verdict) => verdict.await,
    };
    let dispatched = time::now();
    let took = dispatched.saturating_duration_since(received);
    link.net
        .metrics()
        .borrow_mut()
        .record(Stage::RequestQueue, took);
    match verdict {
        Verdict::Answer(answer) => {
            let arrival = Arrival {
                received,
                dispatched,
                bytes,
                spent: link.conn.life.take_waited(),
            };
            link.conn.queue.borrow_mut().push(answer, arrival);
        }
        Verdict::Silent => {
            link.conn.life.take_waited();
        }
        Verdict::Close(closing) => return Err(closing),
    }
    Ok(())
}

/// Nobody wakes this: whoever makes room is the writing half, after which the task polls again.
async fn wait_for_room(link: &Link) {
    poll_fn(|_| {
        let has_room = link.conn.has_room(link.net.limits());
        link.conn.life.awaits_room.set(!has_room);
        match has_room {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    })
    .await;
}

async fn read_frame(
    link: &Link,
    frames: &mut FrameBuffer,
) -> Result<(BytesMut, MemoryPermit), Closing> {
    let Link { conn, net, .. } = link;
    let limits = net.limits();
    let size = loop {
        match frames.take_prefix(limits.request_bytes_max) {
            Ok(Some(size)) => break size,
            Ok(None) => {}
            Err(error) => return Err(bad_frame(link, error)),
        }
        if frames.is_empty() {
            conn.life.await_request(net.coarse_now());
        } else if conn.life.reading.get() != Reading::Frame {
            let owed = PREFIX_BYTES - frames.buf.len();
            conn.life
                .await_frame(owed as u64, net.due_in(limits.frame_window));
            frames.fit();
        }
        fill_prefix(link, frames).await?;
    };
    // The client is not at fault while its request waits for memory.
    conn.life.reading.set(Reading::Busy);
    let permit = match frames.is_whole(size) {
        true => admit(link, size).await,
        false => read_rest(link, frames, size).await?,
    };
    conn.life.reading.set(Reading::Busy);
    match frames.take_frame(size) {
        Some(frame) => Ok((frame, permit)),
        None => Err(CloseReason::Internal.into()),
    }
}

/// The memory of a request of `size` bytes that has arrived whole.
async fn admit(link: &Link, size: u32) -> MemoryPermit {
    let budget = link.net.budget();
    if let Some(permit) = budget.try_acquire(size) {
        return permit;
    }
    let (permit, waited) = time::waited(budget.acquire(size)).await;
    link.conn.life.charge(Cause::Throttle, waited);
    permit
}

/// Reads the rest of a frame of `size` bytes; its memory grows with what arrives.
async fn read_rest(
    link: &Link,
    frames: &mut FrameBuffer,
    size: u32,
) -> Result<MemoryPermit, Closing> {
    let Link { conn, net, .. } = link;
    let limits = net.limits();
    let owed = limits.progress_owed(size);
    frames.fit();
    let arrived = frames.buf.len() as u64;
    let received_from = time::now();
    let begun = net.budget().begin(size).cover(arrived);
    let (mut permit, waited) = time::waited(begun).await;
    conn.life.charge(Cause::Throttle, waited);
    conn.life.arrives(size, arrived, net.coarse_now());
    while !frames.is_whole(size) {
        if conn.life.reading.get() != Reading::Frame {
            conn.life.await_frame(owed, net.due_in(limits.frame_window));
        }
        permit = fill_rest(link, frames, size, permit).await?;
    }
    conn.life.arrived(time::now() - received_from);
    match Kind::of_arriving(size) {
        // What has arrived waits no longer behind those who have not.
        Kind::Arriving | Kind::Small => {
            conn.life.reading.set(Reading::Busy);
            Ok(admit(link, size).await)
        }
        Kind::General => Ok(permit),
    }
}

/// Reads once, the rest of a frame of `size` bytes or a part of it. The memory is taken when the socket
/// has bytes.
async fn fill_rest(
    link: &Link,
    frames: &mut FrameBuffer,
    size: u32,
    mut permit: MemoryPermit,
) -> Result<MemoryPermit, Closing> {
    let Link {
        stream, conn, net, ..
    } = link;
    let limits = net.limits();
    let owed = limits.progress_owed(size);
    let at_most = frames.read_at_most(Some(size));
    let room = (frames.buf.len() + at_most) as u64;
    loop {
        let readable = stream.readable().await;
        readable.map_err(|error| Closing::from_socket(&error))?;
        if !permit.try_cover(room) {
            conn.life.reading.set(Reading::Busy);
            let (covered, waited) = time::waited(permit.cover(room)).await;
            conn.life.charge(Cause::Throttle, waited);
            permit = covered;
            conn.life.await_frame(owed, net.due_in(limits.frame_window));
        }
        frames.make_room(at_most);
        let read = stream.try_read_into(&mut frames.buf, at_most);
        if let Some(bytes) = count_read(link, read)? {
            if conn.life.frame_progress(bytes) {
                conn.life.await_frame(owed, net.due_in(limits.frame_window));
            }
            return Ok(permit);
        }
    }
}

/// Reads the beginning of a frame, or more of its prefix. Where nothing of it is there yet, the memory is
/// taken when the socket has bytes: a connection that waits holds none.
async fn fill_prefix(link: &Link, frames: &mut FrameBuffer) -> Result<(), Closing> {
    let Link { stream, conn, .. } = link;
    let at_most = frames.read_at_most(None);
    let begins = frames.is_empty();
    if begins {
        frames.buf = BytesMut::new();
        conn.life.holds_buffer.set(false);
    }
    loop {
        let readable = stream.readable().await;
        readable.map_err(|error| Closing::from_socket(&error))?;
        let read = match begins {
            true => begin(link, frames, at_most),
            false => {
                frames.make_room(at_most);
                stream.try_read_into(&mut frames.buf, at_most)
            }
        };
        if count_read(link, read)?.is_some() {
            return Ok(());
        }
    }
}

/// Takes note of what a read brought; `None` when the socket had nothing after all.
fn count_read(link: &Link, read: io::Result<Option<usize>>) -> Result<Option<usize>, Closing> {
    let Link { conn, net, .. } = link;
    match read {
        Ok(None) => Ok(None),
        Ok(Some(0)) => Err(CloseReason::ClientClosed.into()),
        Ok(Some(bytes)) => {
            conn.life.holds_buffer.set(true);
            conn.count_in(bytes);
            net.metrics().borrow_mut().counters.bytes_in += bytes as u64;
            Ok(Some(bytes))
        }
        Err(error) => Err(Closing::from_socket(&error)),
    }
}

/// Reads the beginning of a frame, and whatever came with it.
fn begin(link: &Link, frames: &mut FrameBuffer, at_most: usize) -> io::Result<Option<usize>> {
    let buffers = link.net.read_buffers();
    let (mut buffer, memory) = buffers.take(at_most);
    let read = link.stream.try_read_into(&mut buffer, at_most);
    frames.memory = memory;
    match memory {
        Memory::Shared => {
            frames.buf = buffer.split();
            buffers.give_back(buffer);
        }
        Memory::Own => frames.buf = buffer,
    }
    read
}

fn bad_frame(link: &Link, error: FrameError) -> Closing {
    link.net.metrics().borrow_mut().counters.frames_refused += 1;
    Closing {
        reason: CloseReason::BadFrame,
        detail: Some(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use thalweg_reactor::net::Listener;
    use thalweg_reactor::{Runtime, RuntimeOptions};

    use super::*;

    #[test]
    fn a_client_on_this_host_has_our_buffers_where_none_were_asked_for() {
        let runtime = Runtime::new(RuntimeOptions::default()).unwrap();
        runtime.block_on(async {
            let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
            let client = Stream::connect(listener.local_addr().unwrap())
                .await
                .unwrap();
            let mut limits = Limits {
                send_buffer_bytes: Some(5),
                ..Limits::default()
            };
            let buffers = SocketBuffers::of(&client, &limits);
            let ours = Some(LOCAL_SOCKET_BUFFER_BYTES);
            assert_eq!(
                buffers,
                SocketBuffers {
                    send: Some(5),
                    receive: ours
                }
            );
            limits.send_buffer_bytes = None;
            limits.receive_buffer_bytes = Some(6);
            let buffers = SocketBuffers::of(&client, &limits);
            assert_eq!(
                buffers,
                SocketBuffers {
                    send: ours,
                    receive: Some(6)
                }
            );
            buffers.apply(&client).unwrap();
        });
    }
}
