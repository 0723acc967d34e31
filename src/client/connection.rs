//! One socket: frames, correlation, pipelining, negotiation.

use std::collections::VecDeque;
use std::io::{self, IoSlice, Read, Write};
use std::marker::PhantomData;
use std::net::{Shutdown, SocketAddr, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use bytes::BytesMut;
use thalweg_protocol::messages::{ApiVersionsRequest, ApiVersionsResponse};
use thalweg_protocol::wire::Encoded;
use thalweg_protocol::{ErrorCode, Message, Request, frame};

use crate::error::{ClientError, Result};
use crate::versions::ApiTable;

/// Bytes asked of the socket at once, at least and (at the beginning of a frame) at most.
const READ_BYTES_MIN: usize = 16 * 1024;
const READ_BYTES: usize = 256 * 1024;
/// Largest answer that is taken. A broker bounds fetches by what we ask for; anything near this is garbage.
const ANSWER_BYTES_MAX: usize = 512 * 1024 * 1024;

/// How a TLS server's answer to anything else begins: as a size it would be 336 MiB, which no broker sends.
const TLS_ALERT: [u8; 2] = [0x15, 3];
const SIZE_BYTES: usize = 4;

/// How to connect, and as whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectOptions {
    /// Sent in every request header.
    pub client_id: String,
    /// Sent in ApiVersions (KIP-511).
    pub software_name: String,
    /// Sent in ApiVersions (KIP-511).
    pub software_version: String,
    /// Limit for the TCP handshake.
    pub connect_timeout: Duration,
    /// Limit for one answer.
    pub request_timeout: Duration,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        ConnectOptions {
            client_id: "thalweg".to_owned(),
            software_name: "thalweg".to_owned(),
            software_version: env!("CARGO_PKG_VERSION").to_owned(),
            connect_timeout: Duration::from_secs(5),
            request_timeout: Duration::from_secs(30),
        }
    }
}

impl ConnectOptions {
    /// The same with no limit longer than `left`.
    pub(crate) fn within(&self, left: Duration) -> ConnectOptions {
        ConnectOptions {
            connect_timeout: self.connect_timeout.min(left),
            request_timeout: self.request_timeout.min(left),
            ..self.clone()
        }
    }
}

/// The right to receive the answer to one request. Answers come in the order of the requests.
#[derive(Debug)]
#[must_use = "the answer stays in the connection until it is received"]
pub struct Ticket<R> {
    correlation_id: i32,
    version: i16,
    request: PhantomData<fn() -> R>,
}

impl<R> Ticket<R> {
    /// The id in the request's header.
    #[must_use]
    pub fn correlation_id(&self) -> i32 {
        self.correlation_id
    }

    /// The version it was sent in.
    #[must_use]
    pub fn version(&self) -> i16 {
        self.version
    }
}

/// Whether the broker answers a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Comes,
    None,
}

/// A connection to one broker.
#[derive(Debug)]
pub struct Connection {
    address: String,
    socket: TcpStream,
    options: ConnectOptions,
    input: BytesMut,
    table: ApiTable,
    next_correlation_id: i32,
    /// Requests whose answers have not come yet, oldest first.
    waiting: VecDeque<i32>,
    /// Answers that came while an earlier ticket was not yet redeemed.
    arrived: VecDeque<(i32, BytesMut)>,
}

impl Connection {
    /// Connects and negotiates versions.
    ///
    /// # Errors
    /// [`ClientError::Unreachable`] when nobody listens; others when the peer is no Kafka broker.
    pub fn connect(address: &str, options: &ConnectOptions) -> Result<Connection> {
        let mut connection = Connection::open(address, options)?;
        connection.negotiate()?;
        Ok(connection)
    }

    /// Connects and sends nothing: for raw frames, or for requests in versions that the caller picks.
    ///
    /// # Errors
    /// [`ClientError::Unreachable`].
    pub fn open(address: &str, options: &ConnectOptions) -> Result<Connection> {
        let unreachable = |source| ClientError::Unreachable {
            address: address.to_owned(),
            source,
        };
        let socket = connect_any(address, options.connect_timeout).map_err(unreachable)?;
        socket.set_nodelay(true).map_err(unreachable)?;
        socket
            .set_read_timeout(Some(options.request_timeout))
            .map_err(unreachable)?;
        socket
            .set_write_timeout(Some(options.request_timeout))
            .map_err(unreachable)?;
        Ok(Connection {
            address: address.to_owned(),
            socket,
            options: options.clone(),
            input: BytesMut::new(),
            table: ApiTable::default(),
            next_correlation_id: 1,
            waiting: VecDeque::new(),
            arrived: VecDeque::new(),
        })
    }

    /// Asks for the broker's versions. An old broker refuses our version and tells its own (KIP-511).
    fn negotiate(&mut self) -> Result<()> {
        let request = ApiVersionsRequest {
            client_software_name: self.options.software_name.clone(),
            client_software_version: self.options.software_version.clone(),
        };
        let newest = *ApiVersionsRequest::VERSIONS.end();
        let mut response = self.ask_versions(&request, newest)?;
        if response.error_code == ErrorCode::UnsupportedVersion as i16 {
            let known = ApiTable::of(&response)
                .newest::<ApiVersionsRequest>()
                .unwrap_or(0);
            response = self.ask_versions(&request, known)?;
        }
        ClientError::check(
            response.error_code,
            || "negotiate versions".to_owned(),
            None,
        )?;
        self.table = ApiTable::of(&response);
        Ok(())
    }

    fn ask_versions(
        &mut self,
        request: &ApiVersionsRequest,
        version: i16,
    ) -> Result<ApiVersionsResponse> {
        let ticket = self.send_at(request, version)?;
        let frame = self.receive_frame(ticket.correlation_id)?;
        // A refusal is encoded as version 0 whatever was asked.
        let refused =
            frame.get(4..6) == Some(&(ErrorCode::UnsupportedVersion as i16).to_be_bytes());
        let version = if refused { 0 } else { version };
        self.decode::<ApiVersionsRequest>(frame, version, ticket.correlation_id)
    }

    /// Address it was opened with.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Our end of the socket.
    ///
    /// # Errors
    /// When the socket is no longer usable.
    pub fn local_addr(&self) -> Result<SocketAddr> {
        self.socket.local_addr().map_err(|e| self.io(e))
    }

    /// The broker's versions; empty after [`Connection::open`].
    #[must_use]
    pub fn api_table(&self) -> &ApiTable {
        &self.table
    }

    /// Changes the limit for one answer.
    ///
    /// # Errors
    /// When the socket is no longer usable, or `limit` is zero.
    pub fn set_request_timeout(&mut self, limit: Duration) -> Result<()> {
        if self.options.request_timeout == limit {
            return Ok(());
        }
        self.options.request_timeout = limit;
        self.socket
            .set_read_timeout(Some(limit))
            .map_err(|e| self.io(e))?;
        self.socket
            .set_write_timeout(Some(limit))
            .map_err(|e| self.io(e))
    }

    /// Version that [`Connection::call`] uses for `R`.
    ///
    /// # Errors
    /// [`ClientError::Unsupported`].
    pub fn version_of<R: Request>(&self) -> Result<i16> {
        self.table
            .newest::<R>()
            .ok_or_else(|| ClientError::Unsupported {
                address: self.address.clone(),
                api: R::KEY.name(),
            })
    }

    /// Sends `request` in the negotiated version and waits for its answer.
    ///
    /// # Errors
    /// See [`ClientError`]. Error codes inside the answer are the caller's.
    pub fn call<R: Request>(&mut self, request: &R) -> Result<R::Response> {
        let version = self.version_of::<R>()?;
        self.call_at(request, version)
    }

    /// Like [`Connection::call`] in a version of the caller's choice.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn call_at<R: Request>(&mut self, request: &R, version: i16) -> Result<R::Response> {
        let ticket = self.send_at(request, version)?;
        self.receive(ticket)
    }

    /// Sends in the negotiated version without waiting.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn send<R: Request>(&mut self, request: &R) -> Result<Ticket<R>> {
        let version = self.version_of::<R>()?;
        self.send_at(request, version)
    }

    /// Sends in a version of the caller's choice without waiting.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn send_at<R: Request>(&mut self, request: &R, version: i16) -> Result<Ticket<R>> {
        let correlation_id = self.write(request, version)?;
        self.waiting.push_back(correlation_id);
        Ok(Ticket {
            correlation_id,
            version,
            request: PhantomData,
        })
    }

    /// Sends a request that gets no answer (Produce with acks 0).
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn send_silent<R: Request>(&mut self, request: &R) -> Result<()> {
        let version = self.version_of::<R>()?;
        self.write(request, version).map(|_| ())
    }

    fn write<R: Request>(&mut self, request: &R, version: i16) -> Result<i32> {
        let (encoded, correlation_id) = self.encode(request, version)?;
        self.send_bytes(&encoded.bytes)?;
        Ok(correlation_id)
    }

    fn encode<R: Request>(&mut self, request: &R, version: i16) -> Result<(Encoded, i32)> {
        let correlation_id = self.next_correlation_id;
        self.next_correlation_id = correlation_id.wrapping_add(1);
        let client_id = Some(self.options.client_id.as_str());
        let encoded = frame::encode_request(request, version, correlation_id, client_id)?;
        Ok((encoded, correlation_id))
    }

    /// Sends a request whose `records` fields are `Records::Extern`, with the batches that belong there
    /// in order, without copying them. `None` for the ticket when no answer will come (acks 0).
    pub(crate) fn send_batches<R: Request>(
        &mut self,
        request: &R,
        version: i16,
        batches: &[&[u8]],
        answer: Answer,
    ) -> Result<Option<Ticket<R>>> {
        let (encoded, correlation_id) = self.encode(request, version)?;
        let mut parts: Vec<&[u8]> = Vec::with_capacity(2 * batches.len() + 1);
        let mut at = 0;
        for (gap, batch) in encoded.gaps.iter().zip(batches) {
            parts.push(&encoded.bytes[at..gap.at]);
            parts.push(batch);
            at = gap.at;
        }
        parts.push(&encoded.bytes[at..]);
        write_all_parts(&mut self.socket, &parts).map_err(|e| self.io(e))?;
        match answer {
            Answer::None => Ok(None),
            Answer::Comes => {
                self.waiting.push_back(correlation_id);
                Ok(Some(Ticket {
                    correlation_id,
                    version,
                    request: PhantomData,
                }))
            }
        }
    }

    /// Waits for the answer to `ticket`. Answers to earlier tickets that come first are kept.
    ///
    /// # Errors
    /// See [`ClientError`]; [`ClientError::BadAnswer`] when answers come out of order.
    pub fn receive<R: Request>(&mut self, ticket: Ticket<R>) -> Result<R::Response> {
        let frame = self.receive_frame(ticket.correlation_id)?;
        self.decode::<R>(frame, ticket.version, ticket.correlation_id)
    }

    fn receive_frame(&mut self, correlation_id: i32) -> Result<BytesMut> {
        if let Some(at) = self
            .arrived
            .iter()
            .position(|(id, _)| *id == correlation_id)
            && let Some((_, frame)) = self.arrived.remove(at)
        {
            return Ok(frame);
        }
        loop {
            let frame = self.read_frame()?;
            let id = frame.first_chunk::<4>().map(|b| i32::from_be_bytes(*b));
            let expected = self.waiting.pop_front();
            if id.is_none() || id != expected {
                return Err(ClientError::BadAnswer {
                    address: self.address.clone(),
                    api: "a request",
                    detail: format!("correlation id {id:?} where {expected:?} is next"),
                });
            }
            if id == Some(correlation_id) {
                return Ok(frame);
            }
            self.arrived.extend(id.map(|id| (id, frame)));
        }
    }

    fn decode<R: Request>(&self, frame: BytesMut, version: i16, id: i32) -> Result<R::Response> {
        let bad = |e| ClientError::undecodable(&self.address, R::KEY.name(), &e);
        let (got, response) = frame::decode_response::<R>(frame, version).map_err(bad)?;
        debug_assert_eq!(got, id, "the id was checked when the frame came");
        Ok(response)
    }

    /// Sends bytes as they are, for example half a frame.
    ///
    /// # Errors
    /// [`ClientError::Timeout`], [`ClientError::Closed`], [`ClientError::Io`].
    pub fn send_bytes(&mut self, bytes: &[u8]) -> Result<()> {
        self.socket.write_all(bytes).map_err(|e| self.io(e))
    }

    /// Reads one frame, without its size prefix.
    ///
    /// # Errors
    /// [`ClientError::Timeout`], [`ClientError::Closed`], [`ClientError::Io`]; [`ClientError::BadAnswer`]
    /// for an impossible size.
    pub fn read_frame(&mut self) -> Result<BytesMut> {
        let deadline = Instant::now() + self.options.request_timeout;
        self.fill(SIZE_BYTES, deadline)?;
        let size = self
            .input
            .first_chunk::<SIZE_BYTES>()
            .map_or(0, |b| u32::from_be_bytes(*b));
        let size = size as usize;
        if size > ANSWER_BYTES_MAX || self.input.starts_with(&TLS_ALERT) {
            return Err(ClientError::BadAnswer {
                address: self.address.clone(),
                api: "a request",
                detail: strange(&self.input, size),
            });
        }
        self.fill(SIZE_BYTES + size, deadline)?;
        let mut frame = self.input.split_to(SIZE_BYTES + size);
        Ok(frame.split_off(SIZE_BYTES))
    }

    /// Waits until the peer closes the connection; bytes that it still sends are dropped.
    ///
    /// # Errors
    /// [`ClientError::Timeout`] when it stays open for the request timeout.
    pub fn wait_for_close(&mut self) -> Result<()> {
        let deadline = Instant::now() + self.options.request_timeout;
        loop {
            self.input.clear();
            match self.fill(1, deadline) {
                Ok(()) => {}
                Err(ClientError::Closed { .. } | ClientError::Io { .. }) => return Ok(()),
                Err(other) => return Err(other),
            }
        }
    }

    /// Tells the peer that nothing more will be sent; answers can still be read.
    ///
    /// # Errors
    /// When the socket is no longer usable.
    pub fn finish_sending(&mut self) -> Result<()> {
        self.socket
            .shutdown(Shutdown::Write)
            .map_err(|e| self.io(e))
    }

    /// Reads until at least `wanted` bytes are buffered. Room grows with what arrives, not with
    /// what is promised.
    fn fill(&mut self, wanted: usize, deadline: Instant) -> Result<()> {
        while self.input.len() < wanted {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(self.timeout());
            }
            let have = self.input.len();
            // A large answer is read in large steps so that the buffer is not regrown at each.
            let step = (wanted - have).clamp(READ_BYTES_MIN, READ_BYTES.max(have));
            self.input.resize(have + step, 0);
            let outcome = self.socket.read(&mut self.input[have..]);
            let n = *outcome.as_ref().unwrap_or(&0);
            self.input.truncate(have + n);
            match outcome {
                Ok(0) => {
                    return Err(ClientError::Closed {
                        address: self.address.clone(),
                    });
                }
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(self.io(e)),
            }
        }
        Ok(())
    }

    fn timeout(&self) -> ClientError {
        let millis = self.options.request_timeout.as_millis();
        ClientError::Timeout {
            address: self.address.clone(),
            millis,
        }
    }

    fn io(&self, source: io::Error) -> ClientError {
        let address = self.address.clone();
        match source.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => self.timeout(),
            io::ErrorKind::ConnectionReset
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::UnexpectedEof => ClientError::Closed { address },
            _ => ClientError::Io { address, source },
        }
    }
}

/// Writes all parts with as few system calls as the socket allows.
fn write_all_parts(socket: &mut TcpStream, parts: &[&[u8]]) -> io::Result<()> {
    let mut slices: Vec<IoSlice<'_>> = parts.iter().map(|p| IoSlice::new(p)).collect();
    let mut left = slices.as_mut_slice();
    IoSlice::advance_slices(&mut left, 0);
    while !left.is_empty() {
        match socket.write_vectored(left) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => IoSlice::advance_slices(&mut left, n),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Tries every address that the name resolves to, all together for at most `limit`.
fn connect_any(address: &str, limit: Duration) -> io::Result<TcpStream> {
    let deadline = Instant::now() + limit;
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for candidate in address.to_socket_addrs()? {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        match TcpStream::connect_timeout(&candidate, left) {
            Ok(socket) => return Ok(socket),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// What bytes are that begin no answer: another protocol shows itself in its first ones.
fn strange(bytes: &[u8], size: usize) -> String {
    match bytes {
        [b'H', b'T', b'T', b'P', ..] => {
            "HTTP; name a port of the broker's listeners, not one for metrics".to_owned()
        }
        [kind, version, ..] if [*kind, *version] == TLS_ALERT => {
            "TLS, which this client does not speak; name a PLAINTEXT listener".to_owned()
        }
        _ => format!("a frame of {size} bytes"),
    }
}
