//! A server on the loopback whose service does what each frame says, and clients for it.
#![allow(dead_code, reason = "each test binary uses a part of it")]

pub mod answers;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use thalweg_metrics::{CloseReason, CoreMetrics};
use thalweg_net::{
    Closing, ConnState, Dispatch, Limits, MemoryPermit, Reply, Response, Service, ShardNet, Unread,
    Verdict, serve,
};
use thalweg_reactor::event::Event;
use thalweg_reactor::net::{Listener, More, Stream};
use thalweg_reactor::{EngineChoice, Runtime, RuntimeOptions, task, time};
use thalweg_types::ListenerIndex;

/// Longer than anything here takes on a busy machine, where the lane's threads of the lowest priority get
/// little of it.
const PATIENCE: Duration = Duration::from_secs(60);

/// A frame with its size prefix.
pub fn frame(body: &[u8]) -> Vec<u8> {
    let mut bytes = u32::try_from(body.len())
        .expect("small")
        .to_be_bytes()
        .to_vec();
    bytes.extend_from_slice(body);
    bytes
}

/// What a frame says, by its first byte: `e` echo, `w` echo once released, `s` nothing, `c` close,
/// `bN` N bytes, `r` the response that was put into `prepared`.
#[derive(Default)]
pub struct Script {
    pub dispatched: Cell<usize>,
    /// Notified for every `w` request.
    pub parked: Event,
    /// Notified for every `w` answer that was dropped.
    pub dropped: Event,
    pub prepared: RefCell<Option<Response>>,
    /// What could not be read of responses.
    pub unread: RefCell<Vec<Unread>>,
    gates: RefCell<HashMap<Vec<u8>, Rc<Gate>>>,
}

#[derive(Default)]
struct Gate {
    open: Cell<bool>,
    waker: RefCell<Option<std::task::Waker>>,
}

impl Script {
    pub fn release(&self, name: &[u8]) {
        let gate = Rc::clone(&self.gates.borrow()[name]);
        gate.open.set(true);
        if let Some(waker) = gate.waker.take() {
            waker.wake();
        }
    }
}

struct NotifyOnDrop(Event);

impl Drop for NotifyOnDrop {
    fn drop(&mut self) {
        self.0.notify();
    }
}

fn echo(body: &[u8]) -> Reply {
    Reply::Send(Response::from(Bytes::from(frame(body))))
}

impl Service for Script {
    fn dispatch(
        self: &Rc<Self>,
        conn: &Rc<ConnState>,
        body: BytesMut,
        permit: MemoryPermit,
    ) -> Dispatch {
        self.dispatched.set(self.dispatched.get() + 1);
        if body[0] == b'd' {
            let answer = self.verdict(conn, [b"w", &body[..]].concat()[..].into(), permit);
            return Dispatch::Waits(Box::pin(async move {
                match answer {
                    Verdict::Answer(answer) => {
                        let reply = answer.await;
                        Verdict::Answer(Box::pin(async move { reply }))
                    }
                    Verdict::Silent | Verdict::Close(_) => answer,
                }
            }));
        }
        self.verdict(conn, body, permit).into()
    }

    fn on_unread(self: &Rc<Self>, unread: Unread) {
        self.unread.borrow_mut().push(unread);
    }
}

impl Script {
    fn verdict(&self, conn: &Rc<ConnState>, body: BytesMut, permit: MemoryPermit) -> Verdict {
        match body[0] {
            b'e' => Verdict::Answer(Box::pin(async move {
                let _permit = permit;
                echo(&body)
            })),
            b'w' => {
                let gate = Rc::new(Gate::default());
                self.gates
                    .borrow_mut()
                    .insert(body.to_vec(), Rc::clone(&gate));
                self.parked.notify();
                let guard = NotifyOnDrop(self.dropped.clone());
                // As handlers do that ask who the client is.
                let conn = Rc::clone(conn);
                Verdict::Answer(Box::pin(async move {
                    let _hold = (guard, permit, conn);
                    poll_fn(|cx| {
                        *gate.waker.borrow_mut() = Some(cx.waker().clone());
                        if gate.open.get() {
                            Poll::Ready(())
                        } else {
                            Poll::Pending
                        }
                    })
                    .await;
                    echo(&body)
                }))
            }
            b'b' => {
                let size = std::str::from_utf8(&body[1..])
                    .expect("digits")
                    .parse()
                    .expect("digits");
                let bytes = Bytes::from(vec![0u8; size]);
                Verdict::Answer(Box::pin(async move { Reply::Send(Response::from(bytes)) }))
            }
            b'r' => {
                let response = self.prepared.take().expect("prepared");
                Verdict::Answer(Box::pin(async move { Reply::Send(response) }))
            }
            b's' => Verdict::Silent,
            _ => Verdict::Close(Closing::because(
                CloseReason::BadRequest,
                "the frame said so",
            )),
        }
    }
}

/// A running server.
pub struct Rig {
    pub net: Rc<ShardNet>,
    pub service: Rc<Script>,
    pub address: SocketAddr,
    metrics: Rc<RefCell<CoreMetrics>>,
}

/// Runs `test` against a server with `limits`, on one thread.
pub fn run<F: AsyncFnOnce(Rig)>(limits: Limits, test: F) {
    let options = RuntimeOptions {
        engine: EngineChoice::Plain,
        ..RuntimeOptions::default()
    };
    let runtime = Runtime::new(options).expect("a runtime");
    runtime.block_on(async {
        let metrics = Rc::new(RefCell::new(CoreMetrics::new(0, 1)));
        let net = ShardNet::new(limits, Rc::clone(&metrics));
        let service = Rc::new(Script::default());
        let listener = Listener::bind(([127, 0, 0, 1], 0).into()).expect("a free port");
        let address = listener.local_addr().expect("bound");
        let (serve_net, serve_service) = (Rc::clone(&net), Rc::clone(&service));
        let accepting = task::spawn(async move {
            while let Ok((accepted, _)) = listener.accept().await {
                let stream = Stream::adopt(accepted).expect("adopted");
                task::spawn(serve(
                    stream,
                    ListenerIndex(0),
                    Rc::clone(&serve_service),
                    Rc::clone(&serve_net),
                ));
            }
        });
        let rig = Rig {
            net,
            service,
            address,
            metrics,
        };
        time::timeout(PATIENCE, test(rig))
            .await
            .expect("the test ends in time");
        accepting.abort();
    });
}

impl Rig {
    pub async fn connect(&self) -> Client {
        let stream = Stream::connect(self.address).await.expect("connected");
        Client {
            stream: Rc::new(stream),
            got: BytesMut::new(),
        }
    }

    pub fn metrics<T>(&self, read: impl FnOnce(&CoreMetrics) -> T) -> T {
        read(&self.metrics.borrow())
    }

    /// Waits until something holds; between looks every other task and the lane's threads run.
    pub async fn until(&self, holds: impl Fn(&Rig) -> bool) {
        while !holds(self) {
            time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Waits until the server has stopped sending for lack of a reader.
    pub async fn until_stuck(&self) {
        let sent = |rig: &Rig| rig.metrics(|m| m.counters.bytes_out);
        self.until(|rig| sent(rig) > 0).await;
        let (mut last, mut looks) = (0, 0);
        while looks < 200 {
            looks = if sent(self) == last { looks + 1 } else { 0 };
            last = sent(self);
            task::yield_now().await;
        }
    }

    pub async fn until_closed(&self, reason: CloseReason, count: u64) {
        self.until(|rig| rig.metrics(|m| m.closed(reason)) >= count)
            .await;
        assert_eq!(self.metrics(|m| m.closed(reason)), count);
    }
}

/// One client connection.
pub struct Client {
    stream: Rc<Stream>,
    got: BytesMut,
}

impl Client {
    pub async fn send(&self, bytes: &[u8]) {
        // A server that has closed already is a fine outcome of sending garbage.
        let _ = self.stream.write_all(bytes, More::No).await;
    }

    /// The body of the next answer; `None` when the server closed.
    pub async fn answer(&mut self) -> Option<Vec<u8>> {
        loop {
            if let Some(prefix) = self.got.first_chunk::<4>() {
                let size = u32::from_be_bytes(*prefix) as usize;
                if self.got.len() >= 4 + size {
                    self.got.advance(4);
                    return Some(self.got.split_to(size).to_vec());
                }
            }
            match self.stream.read_into(&mut self.got, 1 << 20).await {
                Ok(0) | Err(_) => return None,
                Ok(_) => {}
            }
        }
    }

    /// Reads so many bytes and forgets them.
    pub async fn discard(&mut self, bytes: usize) {
        let mut left = bytes;
        while left > 0 {
            let read = self.stream.read_into(&mut self.got, 1 << 20).await;
            left -= read.expect("the stream goes on");
            self.got.clear();
        }
    }

    /// Sends while it reads, so that neither side fills up.
    pub async fn exchange(&mut self, ask: &[u8], want: &[u8]) {
        let ask = ask.to_vec();
        let stream = Rc::clone(&self.stream);
        let sending = task::spawn(async move { stream.write_all(&ask, More::No).await.is_ok() });
        let got = self.answer().await.expect("an answer");
        assert!(got == want, "{} bytes of {}", got.len(), want.len());
        assert_eq!(sending.await, Some(true));
    }
}
