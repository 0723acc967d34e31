//! Accepting connections.

use std::cell::Cell;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::task::{Context, Poll};

use tokio::net::{TcpListener, TcpSocket, TcpStream};

use crate::stats;
use crate::time::{Duration, sleep};

/// Connections that may wait to be accepted (the kernel cuts it to `net.core.somaxconn`).
const BACKLOG: u32 = 4_096;
/// First and longest pause after a lack of descriptors or memory.
const PAUSE_MS_MIN: u64 = 10;
const PAUSE_MS_MAX: u64 = 1_000;

/// A listening TCP socket of the runtime it was bound on. One process at a time per address and port:
/// SO_REUSEADDR, so that a restart need not wait, and no SO_REUSEPORT.
#[derive(Debug)]
pub struct Listener(TcpListener);

/// A connection that no runtime has adopted yet; it may go to another thread.
#[derive(Debug)]
pub struct Accepted {
    pub(super) stream: std::net::TcpStream,
    peer: SocketAddr,
}

impl Accepted {
    /// The other end.
    pub fn peer_addr(&self) -> SocketAddr {
        self.peer
    }
}

/// A TCP socket that has its address and does not listen yet: connections are refused.
#[derive(Debug)]
pub struct Bound(TcpSocket);

impl Bound {
    /// Takes the address. Port 0 lets the kernel choose one.
    ///
    /// # Errors
    /// The kernel's; `AddrInUse` if another process, or another socket of this one, listens there.
    pub fn new(address: SocketAddr) -> io::Result<Bound> {
        let socket = match address {
            SocketAddr::V4(_) => TcpSocket::new_v4()?,
            SocketAddr::V6(_) => TcpSocket::new_v6()?,
        };
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        Ok(Bound(socket))
    }

    /// The address that it has.
    ///
    /// # Errors
    /// The kernel's.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }

    /// Listens.
    ///
    /// # Errors
    /// The kernel's; `AddrInUse` if another process has begun to listen there meanwhile.
    pub fn listen(self) -> io::Result<Listener> {
        self.0.listen(BACKLOG).map(Listener)
    }
}

impl Listener {
    /// Listens. Port 0 lets the kernel choose one.
    ///
    /// # Errors
    /// As [`Bound::new`].
    pub fn bind(address: SocketAddr) -> io::Result<Listener> {
        Bound::new(address)?.listen()
    }

    /// The address it listens on.
    ///
    /// # Errors
    /// The kernel's.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }

    /// The next connection. Connections that fail before they are accepted are passed over. A lack
    /// of file descriptors or memory, or an error that nobody foresaw, pauses accepting, longer each
    /// time, until it is over: the connections wait in the kernel.
    ///
    /// # Errors
    /// Only those after which this listener is of no more use.
    pub async fn accept(&self) -> io::Result<(Accepted, SocketAddr)> {
        let accepted = accept_by(|cx| self.0.poll_accept(cx)).await?;
        let peer = accepted.peer;
        Ok((accepted, peer))
    }
}

/// Listening sockets that are accepted from in turn.
#[derive(Debug)]
pub struct Listeners {
    all: Vec<Listener>,
    /// Which one is asked first, so that a busy one does not starve the others.
    first: Cell<usize>,
}

impl Listeners {
    /// Accepts from each of `all`.
    pub fn new(all: Vec<Listener>) -> Listeners {
        Listeners {
            all,
            first: Cell::new(0),
        }
    }

    /// The address of each.
    ///
    /// # Errors
    /// The kernel's.
    pub fn local_addrs(&self) -> io::Result<Vec<SocketAddr>> {
        self.all.iter().map(Listener::local_addr).collect()
    }

    /// The next connection of any of them, with the index of the one it came to. Otherwise as
    /// [`Listener::accept`].
    ///
    /// # Errors
    /// As [`Listener::accept`].
    pub async fn accept(&self) -> io::Result<(usize, Accepted)> {
        let mut from = 0;
        let accepted = accept_by(|cx| {
            let first = self.first.get();
            let turns = (first..self.all.len()).chain(0..first);
            for i in turns {
                if let Poll::Ready(next) = self.all[i].0.poll_accept(cx) {
                    from = i;
                    self.first.set((i + 1) % self.all.len());
                    return Poll::Ready(next);
                }
            }
            Poll::Pending
        })
        .await?;
        Ok((from, accepted))
    }
}

async fn accept_by(
    mut poll: impl FnMut(&mut Context<'_>) -> Poll<io::Result<(TcpStream, SocketAddr)>>,
) -> io::Result<Accepted> {
    let mut pause_ms = PAUSE_MS_MIN;
    loop {
        let error = match poll_fn(&mut poll).await {
            Ok((stream, peer)) => {
                stats::count(|stats| stats.accepts += 1);
                let stream = stream.into_std()?;
                return Ok(Accepted { stream, peer });
            }
            Err(error) => error,
        };
        match verdict(&error) {
            Verdict::Next => {}
            Verdict::Pause => {
                if pause_ms == PAUSE_MS_MIN {
                    tracing::warn!(%error, "accepting connections pauses");
                }
                stats::count(|stats| stats.accept_pauses += 1);
                sleep(Duration::from_millis(pause_ms)).await;
                pause_ms = (pause_ms * 2).min(PAUSE_MS_MAX);
            }
            Verdict::Fail => return Err(error),
        }
    }
}

enum Verdict {
    Next,
    Pause,
    Fail,
}

/// What accept(2) says of its errors.
fn verdict(error: &io::Error) -> Verdict {
    match error.raw_os_error() {
        // The descriptor is no listening socket (any more): waiting would not help.
        Some(libc::EBADF | libc::EINVAL | libc::ENOTSOCK | libc::EFAULT) => Verdict::Fail,
        // Errors of the connection, or of its network, that accept(2) passes on.
        Some(
            libc::ECONNABORTED
            | libc::EINTR
            | libc::EPROTO
            | libc::EPERM
            | libc::ENETDOWN
            | libc::ENOPROTOOPT
            | libc::EHOSTDOWN
            | libc::ENONET
            | libc::EHOSTUNREACH
            | libc::EOPNOTSUPP
            | libc::ENETUNREACH
            | libc::ETIMEDOUT
            | libc::ECONNRESET,
        ) => Verdict::Next,
        // A lack of descriptors or memory, and whatever this table does not know: a listener that
        // is given up ends the process, a pause costs little.
        Some(_) | None => Verdict::Pause,
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::{Verdict, verdict};

    #[test]
    fn bi_29_only_a_broken_listener_ends_accepting() {
        let of = |errno| verdict(&io::Error::from_raw_os_error(errno));
        for errno in [libc::EBADF, libc::EINVAL, libc::ENOTSOCK] {
            assert!(matches!(of(errno), Verdict::Fail), "{errno}");
        }
        for errno in [libc::ECONNABORTED, libc::EPERM, libc::ENETDOWN] {
            assert!(matches!(of(errno), Verdict::Next), "{errno}");
        }
        for errno in [libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::ENOSR, 9_999] {
            assert!(matches!(of(errno), Verdict::Pause), "{errno}");
        }
        assert!(matches!(verdict(&io::Error::other("x")), Verdict::Pause));
    }
}
