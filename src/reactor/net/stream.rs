//! A connection.

use std::cell::Cell;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::AsRawFd;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use nix::sys::socket::{MsgFlags, send, sendmsg, setsockopt, shutdown, sockopt};
use tokio::io::Interest;
use tokio::net::TcpStream;

use super::listener::Accepted;
use super::{READ_STEP_BYTES, SEND_QUANTUM_BYTES};
use crate::lane::Stride;
use crate::{stats, task, time};

/// Slices of one vectored send (`IOV_MAX`).
const IOVECS_MAX: usize = 1_024;

/// Slices of one that needs no list on the heap.
const IOVECS_FEW: usize = 8;

/// How long a client may take nothing of a stride while others wait for its buffer.
const STRIDE_HELD: Duration = Duration::from_millis(50);

/// Least room in a buffer that is worth a read.
const READ_ROOM_BYTES_MIN: usize = 4 * 1024;

/// Whether more bytes of the same answer follow at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum More {
    /// The kernel may hold back the last, partly filled packet (MSG_MORE).
    Yes,
    /// Everything leaves now.
    No,
}

impl More {
    fn flags(self) -> MsgFlags {
        match self {
            // nix does not name MSG_MORE.
            More::Yes => MsgFlags::from_bits_retain(libc::MSG_MORE) | MsgFlags::MSG_NOSIGNAL,
            More::No => MsgFlags::MSG_NOSIGNAL,
        }
    }
}

/// A connection of the runtime that adopted it. One task may read while another one writes (share it
/// by `Rc`); two tasks on one side would mix their bytes.
#[derive(Debug)]
pub struct Stream {
    pub(super) tcp: TcpStream,
    peer: SocketAddr,
    waits: Cell<SendWaits>,
}

/// What sending on a stream waited for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SendWaits {
    /// The socket took no more: the other end or the network is slow.
    pub socket: Duration,
    /// The bytes to send were not in memory; only what is counted as a stall.
    pub file: Duration,
}

impl Stream {
    /// Makes a connection this thread's. Small packets leave at once (TCP_NODELAY).
    ///
    /// # Errors
    /// The kernel's.
    pub fn adopt(accepted: Accepted) -> io::Result<Stream> {
        let peer = accepted.peer_addr();
        Stream::with_peer(TcpStream::from_std(accepted.stream)?, peer)
    }

    /// Connects to a listener.
    ///
    /// # Errors
    /// The kernel's.
    pub async fn connect(address: SocketAddr) -> io::Result<Stream> {
        Stream::with_peer(TcpStream::connect(address).await?, address)
    }

    fn with_peer(tcp: TcpStream, peer: SocketAddr) -> io::Result<Stream> {
        match tcp.set_nodelay(true) {
            Ok(()) => {}
            // The peer has reset the connection already: the first read will say so.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {}
            Err(error) => return Err(error),
        }
        Ok(Stream {
            tcp,
            peer,
            waits: Cell::default(),
        })
    }

    /// Bounds what the kernel holds of what was sent and not acknowledged (SO_SNDBUF: it takes twice as many bytes, for
    /// its own, and none above `net.core.wmem_max`), which it else tunes by itself.
    ///
    /// # Errors
    /// The kernel's.
    pub fn set_send_buffer(&self, bytes: u32) -> io::Result<()> {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        Ok(setsockopt(&self.tcp, sockopt::SndBuf, &bytes)?)
    }

    /// Bounds what the kernel holds of what has come and was not read yet (SO_RCVBUF), as [`Stream::set_send_buffer`].
    ///
    /// # Errors
    /// The kernel's.
    pub fn set_receive_buffer(&self, bytes: u32) -> io::Result<()> {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        Ok(setsockopt(&self.tcp, sockopt::RcvBuf, &bytes)?)
    }

    /// Whether the other end is on this machine: on a loopback address, or on the one that this end has.
    pub fn peer_is_on_this_host(&self) -> bool {
        let peer = self.peer.ip().to_canonical();
        let this = || self.local_addr().map(|own| own.ip().to_canonical());
        peer.is_loopback() || this().is_ok_and(|own| own == peer)
    }

    /// The other end.
    pub fn peer_addr(&self) -> SocketAddr {
        self.peer
    }

    /// This end.
    ///
    /// # Errors
    /// The kernel's.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.tcp.local_addr()
    }

    /// Waits for bytes and appends at most `at_most` of them to `buf`. Room is made only once there
    /// are bytes, at most [`READ_STEP_BYTES`] at a time: the buffer grows as bytes arrive. Gives
    /// their count, 0 at the end of the stream. Cancel-safe.
    ///
    /// # Errors
    /// The kernel's.
    pub async fn read_into(&self, buf: &mut BytesMut, at_most: usize) -> io::Result<usize> {
        if at_most == 0 {
            return Ok(0);
        }
        loop {
            self.readable().await?;
            if let Some(read) = self.try_read_into(buf, at_most)? {
                return Ok(read);
            }
        }
    }

    /// Waits until there may be bytes to read, or the end of the stream. Cancel-safe. Only the task that
    /// waited last is woken.
    ///
    /// # Errors
    /// The kernel's.
    pub async fn readable(&self) -> io::Result<()> {
        // By the one place for a reader: `TcpStream::readable` enters a list of waiters at each wait.
        poll_fn(|cx| self.tcp.poll_read_ready(cx)).await
    }

    /// As [`Stream::read_into`], once, without waiting; `None` when there is nothing yet.
    ///
    /// # Errors
    /// The kernel's.
    pub fn try_read_into(&self, buf: &mut BytesMut, at_most: usize) -> io::Result<Option<usize>> {
        if buf.capacity() - buf.len() < at_most.min(READ_ROOM_BYTES_MIN) {
            buf.reserve(at_most.min(READ_STEP_BYTES));
        }
        let room = at_most.min(buf.capacity() - buf.len());
        match self.tcp.try_read_buf(&mut (&mut *buf).limit(at_most)) {
            Ok(read) => {
                stats::count(|stats| stats.socket_bytes_received += read as u64);
                if (1..room).contains(&read) {
                    self.note_drained();
                }
                Ok(Some(read))
            }
            Err(error) if is_retry(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// A read that leaves room has taken all there was, and epoll tells of what comes later as a new
    /// edge: the next read waits for that instead of asking the kernel only to hear "nothing".
    fn note_drained(&self) {
        let nothing = || Err::<(), _>(io::ErrorKind::WouldBlock.into());
        let _ = self.tcp.try_io(Interest::READABLE, nothing);
    }

    /// Sends all of `bytes`. Dropping the future before its end leaves the stream in the middle of
    /// them: close it then.
    ///
    /// # Errors
    /// The kernel's.
    pub async fn write_all(&self, mut bytes: &[u8], more: More) -> io::Result<()> {
        let mut quantum = SEND_QUANTUM_BYTES;
        while !bytes.is_empty() {
            let chunk = &bytes[..bytes.len().min(SEND_QUANTUM_BYTES)];
            let flags = more_within(more, chunk.len() < bytes.len()).flags();
            let fd = self.tcp.as_raw_fd();
            let sent = self.when_writable(|| Ok(send(fd, chunk, flags)?)).await?;
            bytes = &bytes[sent..];
            self.after_copy(sent, &mut quantum).await;
        }
        Ok(())
    }

    /// Sends all of `parts`, one after the other, with few system calls. As [`Stream::write_all`]
    /// for the rest.
    ///
    /// # Errors
    /// The kernel's.
    pub async fn write_all_vectored(&self, parts: &[Bytes], more: More) -> io::Result<()> {
        let mut quantum = SEND_QUANTUM_BYTES;
        // First part not wholly sent, and how much of it is.
        let (mut first, mut skip) = (0, 0);
        loop {
            while parts.get(first).is_some_and(|part| part.len() == skip) {
                (first, skip) = (first + 1, 0);
            }
            if first == parts.len() {
                return Ok(());
            }
            let rest = &parts[first..];
            let now = &rest[..rest.len().min(IOVECS_MAX)];
            let more = more_within(more, now.len() < rest.len());
            let sent = self
                .when_writable(|| self.send_pieces(now, skip, more))
                .await?;
            let mut left = sent;
            while left > 0 {
                let step = left.min(parts[first].len() - skip);
                left -= step;
                skip += step;
                if skip == parts[first].len() {
                    (first, skip) = (first + 1, 0);
                }
            }
            self.after_copy(sent, &mut quantum).await;
        }
    }

    /// Sends a stride of the lane and gives it back; gives the count of bytes. They are fewer than there are
    /// when the client takes nothing for a moment while others wait for the buffer: read the rest
    /// again when the stream is [writable](Stream::writable).
    ///
    /// # Errors
    /// The kernel's.
    pub async fn write_stride(&self, stride: Stride, more: More) -> io::Result<usize> {
        let mut quantum = SEND_QUANTUM_BYTES;
        let (fd, flags) = (self.tcp.as_raw_fd(), more.flags());
        let mut done = 0;
        while done < stride.len() {
            let send_rest = || Ok(send(fd, &stride[done..], flags)?);
            match time::timeout(STRIDE_HELD, self.when_writable(send_rest)).await {
                Ok(sent) => {
                    let sent = sent?;
                    done += sent;
                    self.after_copy(sent, &mut quantum).await;
                }
                Err(_) => {
                    self.note_waits(|waits| waits.socket += STRIDE_HELD);
                    if stride.lane().is_short() {
                        break;
                    }
                }
            }
        }
        Ok(done)
    }

    /// Waits until the socket takes bytes. Cancel-safe.
    ///
    /// # Errors
    /// The kernel's.
    pub async fn writable(&self) -> io::Result<()> {
        let (writable, waited) = time::waited(self.tcp.writable()).await;
        self.note_waits(|waits| waits.socket += waited);
        writable
    }

    /// What sending has waited for since this was asked last. Costs nothing where nothing waits.
    pub fn take_send_waits(&self) -> SendWaits {
        self.waits.take()
    }

    pub(super) fn note_waits(&self, change: impl FnOnce(&mut SendWaits)) {
        let mut waits = self.waits.get();
        change(&mut waits);
        self.waits.set(waits);
    }

    /// Sends as much of `bytes` as the socket takes now, at most [`SEND_QUANTUM_BYTES`], with one system call; gives
    /// the number of bytes, 0 when it takes none.
    ///
    /// # Errors
    /// The kernel's.
    pub fn try_write(&self, bytes: &[u8], more: More) -> io::Result<usize> {
        let chunk = &bytes[..bytes.len().min(SEND_QUANTUM_BYTES)];
        let flags = more_within(more, chunk.len() < bytes.len()).flags();
        let fd = self.tcp.as_raw_fd();
        self.send_now(|| Ok(send(fd, chunk, flags)?))
    }

    /// Sends as much of `parts`, one after the other, as the socket takes now, with one system call; gives
    /// the number of bytes, 0 when it takes none.
    ///
    /// # Errors
    /// The kernel's.
    pub fn try_write_vectored(&self, parts: &[Bytes], more: More) -> io::Result<usize> {
        let now = &parts[..parts.len().min(IOVECS_MAX)];
        let more = more_within(more, now.len() < parts.len());
        self.send_now(|| self.send_pieces(now, 0, more))
    }

    fn send_now(&self, send: impl FnOnce() -> io::Result<usize>) -> io::Result<usize> {
        match self.tcp.try_io(Interest::WRITABLE, send) {
            Ok(sent) => {
                stats::count(|stats| stats.socket_bytes_copied += sent as u64);
                Ok(sent)
            }
            Err(error) if is_retry(&error) => Ok(0),
            Err(error) => Err(error),
        }
    }

    /// One call for all of `parts`, at most [`IOVECS_MAX`], without the first `skip` bytes of the first.
    fn send_pieces(&self, parts: &[Bytes], skip: usize, more: More) -> io::Result<usize> {
        let all = parts.iter().enumerate();
        let (mut few, many);
        let slices = match parts.len() {
            ..=IOVECS_FEW => {
                few = [IoSlice::new(&[]); IOVECS_FEW];
                for (to, of) in few.iter_mut().zip(all) {
                    *to = slice_of(of, skip);
                }
                &few[..parts.len()]
            }
            _more => {
                many = all.map(|of| slice_of(of, skip)).collect::<Vec<_>>();
                &many[..]
            }
        };
        let fd = self.tcp.as_raw_fd();
        Ok(sendmsg::<()>(fd, slices, &[], more.flags(), None)?)
    }

    /// Runs a non-blocking call as soon as the socket can take bytes, again until it does.
    pub(super) async fn when_writable(
        &self,
        mut call: impl FnMut() -> io::Result<usize>,
    ) -> io::Result<usize> {
        loop {
            match self.tcp.try_io(Interest::WRITABLE, &mut call) {
                Ok(sent) => return Ok(sent),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let ready = poll_fn(|cx| self.tcp.poll_write_ready(cx));
                    let (writable, waited) = time::waited(ready).await;
                    self.note_waits(|waits| waits.socket += waited);
                    writable?;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    async fn after_copy(&self, sent: usize, quantum: &mut usize) {
        stats::count(|stats| stats.socket_bytes_copied += sent as u64);
        spend(quantum, sent).await;
    }

    /// Ends both directions; tasks that wait on the stream wake up with an end or an error. The
    /// descriptor goes when the last owner does.
    pub fn close(&self) {
        // ENOTCONN: the other end was faster.
        let _ = shutdown(self.tcp.as_raw_fd(), Shutdown::Both.into_nix());
    }

    /// Ends our sending; the peer reads an end of stream after what was sent.
    pub fn close_write(&self) {
        let _ = shutdown(self.tcp.as_raw_fd(), Shutdown::Write.into_nix());
    }
}

/// Takes `sent` off the quantum; when it is spent, the other tasks run before this one goes on.
pub(super) async fn spend(quantum: &mut usize, sent: usize) {
    *quantum = quantum.saturating_sub(sent);
    if *quantum == 0 {
        *quantum = SEND_QUANTUM_BYTES;
        task::yield_now().await;
    }
}

/// A part; the first without what is to be skipped of it.
fn slice_of((n, part): (usize, &Bytes), skip: usize) -> IoSlice<'_> {
    match n {
        0 => IoSlice::new(&part[skip..]),
        _later => IoSlice::new(part),
    }
}

fn more_within(more: More, rest_follows: bool) -> More {
    if rest_follows { More::Yes } else { more }
}

fn is_retry(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}

trait IntoNix {
    fn into_nix(self) -> nix::sys::socket::Shutdown;
}

impl IntoNix for Shutdown {
    fn into_nix(self) -> nix::sys::socket::Shutdown {
        match self {
            Shutdown::Read => nix::sys::socket::Shutdown::Read,
            Shutdown::Write => nix::sys::socket::Shutdown::Write,
            Shutdown::Both => nix::sys::socket::Shutdown::Both,
        }
    }
}
