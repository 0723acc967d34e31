//! The accept loop when connections or file handles run out. One process, one test: it changes the
//! limit of the whole process.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use bytes::BytesMut;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use thalweg_metrics::{CoreMetrics, RefuseReason};
use thalweg_net::{Acceptor, ConnectionLimits, ConnectionSlots, Incoming};
use thalweg_reactor::net::{Listener, Listeners, Stream};
use thalweg_reactor::{EngineChoice, Runtime, RuntimeOptions, event::Event, stats, task, time};

const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn bi29_st21_limits_refuse_and_a_lack_of_file_handles_only_waits() {
    let options = RuntimeOptions {
        engine: EngineChoice::Plain,
        ..RuntimeOptions::default()
    };
    let runtime = Runtime::new(options).expect("a runtime");
    runtime.block_on(async {
        time::timeout(PATIENCE, refuses_over_the_limit())
            .await
            .expect("in time");
        time::timeout(PATIENCE, waits_at_the_total())
            .await
            .expect("in time");
        time::timeout(PATIENCE, waits_for_file_handles())
            .await
            .expect("in time");
    });
}

struct Accepting {
    address: std::net::SocketAddr,
    metrics: Rc<RefCell<CoreMetrics>>,
    taken: Rc<RefCell<Vec<Incoming>>>,
    came: Event,
    task: task::Task<()>,
}

fn accepting(limits: ConnectionLimits) -> Accepting {
    let listener = Listener::bind(([127, 0, 0, 1], 0).into()).expect("a free port");
    let address = listener.local_addr().expect("bound");
    let acceptor = Acceptor::new(Listeners::new(vec![listener]), ConnectionSlots::new(limits));

    let metrics = Rc::new(RefCell::new(CoreMetrics::new(0, 1)));
    let taken = Rc::new(RefCell::new(Vec::new()));
    let came = Event::new();
    let (to, counts, notify) = (Rc::clone(&taken), Rc::clone(&metrics), came.clone());
    let task = task::spawn(async move {
        let error = acceptor
            .run(&counts, async |incoming| {
                to.borrow_mut().push(incoming);
                notify.notify();
            })
            .await;
        panic!("the listener failed: {error}");
    });
    Accepting {
        address,
        metrics,
        taken,
        came,
        task,
    }
}

async fn refuses_over_the_limit() {
    let server = accepting(ConnectionLimits {
        per_ip: 2,
        ..ConnectionLimits::default()
    });
    let mut clients = Vec::new();
    for _ in 0..2 {
        clients.push(Stream::connect(server.address).await.expect("connected"));
        server.came.wait().await;
    }
    let third = Stream::connect(server.address)
        .await
        .expect("the kernel accepts");
    let read = third.read_into(&mut BytesMut::new(), 1).await;
    assert!(matches!(read, Ok(0) | Err(_)), "refused: {read:?}");
    assert_eq!(server.metrics.borrow().refused(RefuseReason::PerIpLimit), 1);
    server.taken.borrow_mut().pop();
    let _fourth = Stream::connect(server.address).await.expect("connected");
    server.came.wait().await;
    assert_eq!(server.metrics.borrow().counters.connections_accepted, 3);
    server.task.abort();
}

async fn waits_at_the_total() {
    let server = accepting(ConnectionLimits {
        total: 1,
        ..ConnectionLimits::default()
    });
    let _first = Stream::connect(server.address).await.expect("connected");
    server.came.wait().await;
    let _second = Stream::connect(server.address)
        .await
        .expect("waits in the kernel");
    for _ in 0..100 {
        task::yield_now().await;
    }
    assert_eq!(server.taken.borrow().len(), 1, "not accepted yet");
    server.taken.borrow_mut().clear();
    server.came.wait().await;
    assert_eq!(server.metrics.borrow().counters.connections_accepted, 2);
    server.task.abort();
}

async fn waits_for_file_handles() {
    let server = accepting(ConnectionLimits::default());
    // One client whose handle exists before they run out.
    let socket = std::net::TcpStream::connect(server.address).expect("connected");
    server.came.wait().await;
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("readable");
    setrlimit(Resource::RLIMIT_NOFILE, 256.min(soft), hard).expect("may be lowered");
    let mut hoard = Vec::new();
    while let Ok(handle) = socket.try_clone() {
        hoard.push(handle);
    }
    // The client's own handle takes the last one, so that the accepting side finds none.
    hoard.pop();
    let waiting = std::net::TcpStream::connect(server.address).expect("waits in the kernel");
    let before = stats::read().accept_pauses;
    while stats::read().accept_pauses < before + 2 {
        task::yield_now().await;
    }
    assert_eq!(server.taken.borrow().len(), 1, "not accepted yet");
    drop(hoard);
    server.came.wait().await;
    let pauses = stats::read().accept_pauses - before;
    assert!(pauses < 20, "{pauses} tries: it spins");
    assert_eq!(
        server.taken.borrow().len(),
        2,
        "accepted once handles were free"
    );
    setrlimit(Resource::RLIMIT_NOFILE, soft, hard).expect("may be raised again");
    drop(waiting);
    server.task.abort();
}
