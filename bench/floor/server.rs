//! The loop of the floor: `epoll`, read, parse, write, answer, send.

use std::io::{self, Write};
use std::net::TcpListener;
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail, ensure};
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::socket::{setsockopt, sockopt};
use nix::sys::uio::pwritev;
use thalweg_types::limits::LOCAL_SOCKET_BUFFER_BYTES;

use super::conn::{Conn, Done};
use super::log::{Log, Piece};
use super::ring::Ring;
use super::wire::{self, Ask, ProduceAnswer};
use super::{EngineChoice, FloorOptions};

const LISTENER: u64 = u64::MAX;
const RING: u64 = u64::MAX - 1;

/// A log with this much pending is written at once, while its bytes are warm in the cache.
const EAGER_BYTES: u64 = 48 * 1024;

/// Events taken per turn.
const EVENTS: usize = 256;

enum Engine {
    Inline,
    Ring(Box<Ring>),
}

struct Server {
    options: FloorOptions,
    epoll: Epoll,
    listener: TcpListener,
    conns: Vec<Option<Conn>>,
    logs: Vec<Log>,
    /// Prepared Produce answers, by partition.
    answers: Vec<ProduceAnswer>,
    engine: Engine,
    /// Connections with input to look at.
    ready: Vec<usize>,
    /// Connections with output to send.
    to_send: Vec<usize>,
    /// Logs with pending pieces.
    dirty: Vec<usize>,
    done: Vec<(usize, i32)>,
}

/// Serves until the process is told to stop (SIGTERM ends it at once; whoever started it removes `dir`).
///
/// Prints `listening ADDRESS` on stdout when ready.
///
/// # Errors
/// When the address or the directory can not be used, or a client sends what the load generator does not.
pub fn serve(options: FloorOptions) -> Result<()> {
    std::fs::create_dir_all(&options.dir)
        .with_context(|| format!("cannot create {}", options.dir.display()))?;
    remove_segments(&options.dir)?;
    let listener = TcpListener::bind(options.listen)
        .with_context(|| format!("cannot listen on {}", options.listen))?;
    listener.set_nonblocking(true)?;
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
    epoll.add(&listener, EpollEvent::new(EpollFlags::EPOLLIN, LISTENER))?;
    let logs = (0..options.partitions)
        .map(|p| Log::create(&options.dir, p))
        .collect::<Result<Vec<_>>>()?;
    let answer = |p| ProduceAnswer::new(&options.topic, p);
    let answers = (0..options.partitions).map(answer).collect();
    let engine = match options.engine {
        EngineChoice::Inline => Engine::Inline,
        EngineChoice::Ring => {
            let ring = Ring::new(logs.len()).context("no io_uring here")?;
            epoll.add(ring.borrow(), EpollEvent::new(EpollFlags::EPOLLIN, RING))?;
            Engine::Ring(Box::new(ring))
        }
    };
    println!("listening {}", listener.local_addr()?);
    io::stdout().flush()?;
    let mut server = Server {
        options,
        epoll,
        listener,
        conns: Vec::new(),
        logs,
        answers,
        engine,
        ready: Vec::new(),
        to_send: Vec::new(),
        dirty: Vec::new(),
        done: Vec::new(),
    };
    let outcome = server.run();
    // Writes may still be in flight over the buffers; the process is about to end.
    std::mem::forget(server);
    outcome
}

fn remove_segments(dir: &Path) -> Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        ensure!(
            path.extension().is_some_and(|e| e == "log"),
            "{} holds files that are not the floor's",
            dir.display()
        );
        std::fs::remove_file(path)?;
    }
    Ok(())
}

impl Server {
    fn run(&mut self) -> Result<()> {
        let mut events = [EpollEvent::empty(); EVENTS];
        loop {
            let idle = self.ready.is_empty();
            let timeout = if idle {
                EpollTimeout::NONE
            } else {
                EpollTimeout::ZERO
            };
            let n = match self.epoll.wait(&mut events, timeout) {
                Ok(n) => n,
                Err(Errno::EINTR) => 0,
                Err(e) => return Err(e.into()),
            };
            for event in &events[..n] {
                self.on_event(event.data(), event.events())?;
            }
            self.read_ready()?;
            self.write_dirty()?;
            self.reap()?;
            self.send_all();
        }
    }

    fn on_event(&mut self, token: u64, flags: EpollFlags) -> Result<()> {
        match token {
            LISTENER => self.accept(),
            RING => Ok(()),
            conn => {
                let index = conn as usize;
                if let Some(Some(c)) = self.conns.get_mut(index) {
                    if flags.intersects(EpollFlags::EPOLLIN | EpollFlags::EPOLLHUP) {
                        c.readable = true;
                        if !c.queued {
                            c.queued = true;
                            self.ready.push(index);
                        }
                    }
                    if flags.contains(EpollFlags::EPOLLOUT) && c.has_output() {
                        self.to_send.push(index);
                    }
                }
                Ok(())
            }
        }
    }

    fn accept(&mut self) -> Result<()> {
        loop {
            match self.listener.accept() {
                Ok((socket, _)) => {
                    socket.set_nonblocking(true)?;
                    socket.set_nodelay(true)?;
                    let buffer = LOCAL_SOCKET_BUFFER_BYTES as usize;
                    setsockopt(&socket, sockopt::SndBuf, &buffer)?;
                    setsockopt(&socket, sockopt::RcvBuf, &buffer)?;
                    let index = self.conns.iter().position(Option::is_none);
                    let index = index.unwrap_or(self.conns.len());
                    let flags = EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT | EpollFlags::EPOLLET;
                    self.epoll
                        .add(&socket, EpollEvent::new(flags, index as u64))?;
                    if index == self.conns.len() {
                        self.conns.push(None);
                    }
                    self.conns[index] = Some(Conn::new(socket));
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(e) => return Err(e.into()),
            }
        }
    }

    /// One read of each connection that has input and no write over its buffer.
    fn read_ready(&mut self) -> Result<()> {
        let mut ready = std::mem::take(&mut self.ready);
        ready.retain(|&index| {
            let Some(conn) = self.conns[index].as_mut() else {
                return false;
            };
            if conn.in_flight > 0 {
                return self.keep_waiting(index);
            }
            let outcome = conn.read().map_err(anyhow::Error::from);
            let outcome = outcome.and_then(|()| self.parse_all(index));
            self.after_read(index, outcome)
        });
        // `keep_waiting` and `after_read` say which ones still have something to read.
        ready.append(&mut self.ready);
        self.ready = ready;
        Ok(())
    }

    /// A connection with a write in flight leaves the list; the completion puts it back.
    fn keep_waiting(&mut self, index: usize) -> bool {
        if let Some(conn) = self.conns[index].as_mut() {
            conn.queued = false;
        }
        false
    }

    fn after_read(&mut self, index: usize, outcome: Result<()>) -> bool {
        if let Err(error) = &outcome
            && !is_reset(error)
        {
            eprintln!("floor: connection {index}: {error:#}");
        }
        let Some(conn) = self.conns[index].as_mut() else {
            return false;
        };
        if outcome.is_err() {
            conn.closed = true;
        }
        if conn.closed {
            conn.queued = false;
            if conn.in_flight == 0 {
                self.conns[index] = None;
            }
            return false;
        }
        conn.queued = conn.readable;
        conn.readable
    }

    fn parse_all(&mut self, index: usize) -> Result<()> {
        loop {
            let Some(conn) = self.conns[index].as_mut() else {
                return Ok(());
            };
            let Some(frame) = conn.next_frame() else {
                return Ok(());
            };
            let ask = wire::parse(conn.bytes(&frame))?;
            match ask {
                Ask::Produce {
                    correlation,
                    acks,
                    partition,
                    batch,
                    records,
                } => {
                    let range = frame.start + batch.start..frame.start + batch.end;
                    let slot = (acks != 0).then(|| conn.take_slot());
                    let piece = Piece {
                        conn: index,
                        range,
                        correlation,
                        base_offset: 0,
                        slot,
                    };
                    self.on_produce(partition, records, piece)?;
                }
                Ask::Fetch {
                    correlation,
                    partition,
                    offset,
                    bytes_max,
                } => {
                    self.on_fetch(index, correlation, partition, offset, bytes_max)?;
                }
            }
        }
    }

    fn on_produce(&mut self, partition: usize, records: i64, piece: Piece) -> Result<()> {
        let log = self
            .logs
            .get_mut(partition)
            .ok_or_else(|| anyhow!("no such partition"))?;
        let (index, range) = (piece.conn, piece.range.clone());
        if log.pending.is_empty() {
            self.dirty.push(partition);
        }
        let base = log.queue(records, piece)?;
        let eager = log.pending_bytes >= EAGER_BYTES;
        if let Some(conn) = self.conns[index].as_mut() {
            conn.patch(&range, base);
            conn.in_flight += 1;
        }
        if eager && matches!(self.engine, Engine::Inline) {
            self.write_inline(partition)?;
        }
        Ok(())
    }

    fn on_fetch(
        &mut self,
        index: usize,
        correlation: i32,
        partition: usize,
        offset: i64,
        bytes_max: u64,
    ) -> Result<()> {
        let log = self
            .logs
            .get(partition)
            .ok_or_else(|| anyhow!("no such partition"))?;
        let slice = log.slice(offset, bytes_max);
        let end = log.end();
        let Some(conn) = self.conns[index].as_mut() else {
            return Ok(());
        };
        ensure!(
            !conn.owes_answers(),
            "the floor does not mix Produce and Fetch on a connection"
        );
        let len = slice.as_ref().map_or(0, |s| s.len);
        let topic = &self.options.topic;
        wire::put_fetch_head(conn.answers(), topic, correlation, partition, end, len);
        if let Some(slice) = slice {
            conn.send_slice(slice);
        }
        conn.answers().extend_from_slice(&wire::FETCH_TRAILER);
        self.to_send.push(index);
        Ok(())
    }

    fn write_dirty(&mut self) -> Result<()> {
        let mut dirty = std::mem::take(&mut self.dirty);
        match &mut self.engine {
            Engine::Inline => {
                for partition in dirty.drain(..) {
                    self.write_inline(partition)?;
                }
            }
            Engine::Ring(ring) => {
                let mut queued = false;
                for &partition in &dirty {
                    let log = &mut self.logs[partition];
                    if !log.in_flight.is_empty() || log.pending.is_empty() {
                        continue;
                    }
                    log.take_for_write();
                    ring.write(partition, log, &self.conns)?;
                    queued = true;
                }
                if queued {
                    ring.submit()?;
                }
                dirty.retain(|&p| !self.logs[p].pending.is_empty());
            }
        }
        // Inline: empty. Ring: logs whose write in flight has to end first.
        dirty.append(&mut self.dirty);
        self.dirty = dirty;
        Ok(())
    }

    fn write_inline(&mut self, partition: usize) -> Result<()> {
        while !self.logs[partition].pending.is_empty() {
            let log = &mut self.logs[partition];
            log.take_for_write();
            let slices = log.slices(&self.conns)?;
            let (file, position) = log.target();
            let written = pwritev(file, &slices, position as i64)?;
            ensure!(
                written as u64 == log.in_flight_bytes(),
                "a short write: is the disk full?"
            );
            self.complete(partition)?;
        }
        Ok(())
    }

    fn reap(&mut self) -> Result<()> {
        let Engine::Ring(ring) = &mut self.engine else {
            return Ok(());
        };
        let mut done = std::mem::take(&mut self.done);
        ring.reap(&mut done);
        for (partition, result) in done.drain(..) {
            let wanted = self.logs[partition].in_flight_bytes();
            if result < 0 {
                bail!(
                    "a ring write failed: {}",
                    io::Error::from_raw_os_error(-result)
                );
            }
            ensure!(
                result as u64 == wanted,
                "a short ring write: is the disk full?"
            );
            self.complete(partition)?;
        }
        self.done = done;
        // What waited behind a completed write goes out now, not at the next event.
        if self.dirty.is_empty() {
            Ok(())
        } else {
            self.write_dirty()
        }
    }

    /// Answers every piece of the write that just ended.
    fn complete(&mut self, partition: usize) -> Result<()> {
        let log = &mut self.logs[partition];
        log.written(self.options.segment_bytes, self.options.segments_kept)?;
        for piece in log.in_flight.drain(..) {
            let Some(conn) = self.conns[piece.conn].as_mut() else {
                continue;
            };
            conn.in_flight -= 1;
            if let Some(slot) = piece.slot
                && !conn.closed
            {
                let quiet = !conn.has_output();
                let (correlation, base_offset) = (piece.correlation, piece.base_offset);
                conn.answer(
                    slot,
                    Done {
                        partition,
                        correlation,
                        base_offset,
                    },
                    &self.answers,
                );
                if quiet && conn.has_output() {
                    self.to_send.push(piece.conn);
                }
            }
            if conn.in_flight == 0 {
                if conn.closed {
                    self.conns[piece.conn] = None;
                } else if conn.readable && !conn.queued {
                    conn.queued = true;
                    self.ready.push(piece.conn);
                }
            }
        }
        Ok(())
    }

    fn send_all(&mut self) {
        for index in std::mem::take(&mut self.to_send) {
            let Some(conn) = self.conns[index].as_mut() else {
                continue;
            };
            if conn.has_output() && conn.flush().is_err() {
                conn.closed = true;
                if conn.in_flight == 0 {
                    self.conns[index] = None;
                }
            }
        }
    }
}

/// The load generator closes its sockets with answers unread when its time is over.
fn is_reset(error: &anyhow::Error) -> bool {
    let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
    kind == Some(io::ErrorKind::ConnectionReset)
}
