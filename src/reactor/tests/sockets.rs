//! Sockets: growth of buffers, whole sends, sendfile, hand-over between threads.

#![allow(clippy::unwrap_used, reason = "a test may end where it fails")]

mod common;

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;

use bytes::{Bytes, BytesMut};
use common::on_both_engines;
use thalweg_reactor::fs::{self, OpenMode};
use thalweg_reactor::net::{Listener, More, READ_STEP_BYTES, SendFileError, Stream};
use thalweg_reactor::{Runtime, RuntimeOptions, mailbox, spawn_shard_thread, stats, task};

const ANY: &str = "127.0.0.1:0";

async fn pair() -> (Stream, Stream) {
    let listener = Listener::bind(ANY.parse().unwrap()).unwrap();
    let address = listener.local_addr().unwrap();
    let connecting = task::spawn(async move { Stream::connect(address).await.unwrap() });
    let (accepted, peer) = listener.accept().await.unwrap();
    let client = connecting.await.unwrap();
    assert_eq!(client.local_addr().unwrap(), peer);
    (client, Stream::adopt(accepted).unwrap())
}

fn receive(stream: Stream, len: usize) -> task::Task<BytesMut> {
    task::spawn(async move {
        let mut got = BytesMut::new();
        while got.len() < len {
            let read = stream.read_into(&mut got, len).await.unwrap();
            assert!(read > 0, "the stream ended after {} bytes", got.len());
        }
        got
    })
}

#[test]
fn one_address_has_one_listener() {
    let runtime = Runtime::new(RuntimeOptions::default()).unwrap();
    runtime.block_on(async {
        let first = Listener::bind(ANY.parse().unwrap()).unwrap();
        let address = first.local_addr().unwrap();
        let second = Listener::bind(address).unwrap_err();
        assert_eq!(second.kind(), std::io::ErrorKind::AddrInUse);
        drop(first);
        Listener::bind(address).unwrap();
    });
}

#[test]
fn a_buffer_grows_only_as_bytes_arrive() {
    let runtime = Runtime::new(RuntimeOptions::default()).unwrap();
    runtime.block_on(async {
        let (client, server) = pair().await;
        let mut buf = BytesMut::new();
        {
            // Nothing has come: the wait holds no memory.
            let reading = server.read_into(&mut buf, 1 << 30);
            let waited =
                thalweg_reactor::time::timeout(std::time::Duration::from_millis(1), reading).await;
            assert!(waited.is_err());
        }
        assert_eq!(buf.capacity(), 0);
        client.write_all(b"abc", More::No).await.unwrap();
        assert_eq!(server.read_into(&mut buf, 1 << 30).await.unwrap(), 3);
        assert!(buf.capacity() <= 2 * READ_STEP_BYTES);
        client.write_all(b"defgh", More::No).await.unwrap();
        assert_eq!(server.read_into(&mut buf, 2).await.unwrap(), 2);
        assert_eq!(buf, "abcde");
        client.close_write();
        assert_eq!(server.read_into(&mut buf, 100).await.unwrap(), 3);
        assert_eq!(server.read_into(&mut buf, 100).await.unwrap(), 0);
    });
}

#[test]
fn long_sends_arrive_whole_and_are_counted() {
    let runtime = Runtime::new(RuntimeOptions::default()).unwrap();
    runtime.block_on(async {
        let (client, server) = pair().await;
        let before = stats::read();
        let whole: Vec<u8> = (0..5_000_000u32).map(|n| (n * 7 / 3) as u8).collect();
        let got = receive(server, whole.len() * 2);
        client.write_all(&whole, More::Yes).await.unwrap();
        let parts: Vec<Bytes> = (0..2_500)
            .map(|n| Bytes::copy_from_slice(&whole[n * 2_000..(n + 1) * 2_000]))
            .flat_map(|part| [Bytes::new(), part])
            .collect();
        client.write_all_vectored(&parts, More::No).await.unwrap();
        let got = got.await.unwrap();
        assert!(got[..whole.len()] == whole && got[whole.len()..] == whole);
        let counted = stats::read().socket_bytes_copied - before.socket_bytes_copied;
        assert_eq!(counted, 2 * whole.len() as u64);
        assert_eq!(stats::read().sendfile_bytes, before.sendfile_bytes);
    });
}

#[test]
fn a_file_goes_out_in_quanta_between_which_others_run() {
    on_both_engines(|runtime| {
        let dir = tempfile::tempdir().unwrap();
        runtime.block_on(async {
            let whole: Vec<u8> = (0..4_000_000u32).map(|n| (n * 13 / 7) as u8).collect();
            let file = fs::open(&dir.path().join("f"), OpenMode::CreateNew)
                .await
                .unwrap();
            fs::write_at(&file, vec![Bytes::from(whole.clone())], 0)
                .await
                .unwrap();
            let (client, server) = pair().await;
            let before = stats::read();
            let got = receive(client, whole.len() - 5);
            let turns = Rc::new(Cell::new(0));
            let counted = Rc::clone(&turns);
            let other = task::spawn(async move {
                loop {
                    counted.set(counted.get() + 1);
                    task::yield_now().await;
                }
            });
            server
                .send_file(&file, 5, whole.len() as u64 - 5, More::No)
                .await
                .unwrap();
            assert!(
                turns.get() >= whole.len() / (512 * 1024),
                "{} turns",
                turns.get()
            );
            other.abort();
            assert!(got.await.unwrap() == whole[5..]);
            let sent = stats::read().sendfile_bytes - before.sendfile_bytes;
            assert_eq!(sent, whole.len() as u64 - 5);
            assert_eq!(
                stats::read().socket_bytes_copied,
                before.socket_bytes_copied
            );
        });
    });
}

#[test]
fn a_short_file_and_a_lost_peer_are_told_apart() {
    let runtime = Runtime::new(RuntimeOptions::default()).unwrap();
    let dir = tempfile::tempdir().unwrap();
    runtime.block_on(async {
        let file = fs::open(&dir.path().join("f"), OpenMode::CreateNew)
            .await
            .unwrap();
        fs::write_at(&file, vec![Bytes::from(vec![1; 1_000])], 0)
            .await
            .unwrap();
        let (client, server) = pair().await;
        let short = server
            .send_file(&file, 400, 700, More::No)
            .await
            .unwrap_err();
        assert!(
            matches!(
                short,
                SendFileError::Short {
                    sent: 600,
                    wanted: 700
                }
            ),
            "{short}"
        );
        let past = server
            .send_file(&file, 5_000, 1, More::No)
            .await
            .unwrap_err();
        assert!(
            matches!(past, SendFileError::Short { sent: 0, wanted: 1 }),
            "{past}"
        );
        let far = server
            .send_file(&file, u64::MAX, 1, More::No)
            .await
            .unwrap_err();
        assert!(matches!(far, SendFileError::File { sent: 0, .. }), "{far}");
        drop(client);
        let lost = loop {
            // The first sends may still go into the socket's buffer.
            if let Err(error) = server.send_file(&file, 0, 1_000, More::No).await {
                break error;
            }
        };
        assert!(matches!(lost, SendFileError::Socket(_)), "{lost}");
    });
}

#[test]
fn closing_wakes_the_reader_and_a_blocked_writer() {
    let runtime = Runtime::new(RuntimeOptions::default()).unwrap();
    runtime.block_on(async {
        let (_client, server) = pair().await;
        let server = Rc::new(server);
        let (reading, writing) = (Rc::clone(&server), Rc::clone(&server));
        let reader = task::spawn(async move { reading.read_into(&mut BytesMut::new(), 10).await });
        // Nobody reads at the other end, so this fills the socket's buffers and waits.
        let writer =
            task::spawn(async move { writing.write_all(&vec![0; 64 << 20], More::No).await });
        while stats::read().socket_bytes_copied == 0 || !all_waiting(&reader, &writer) {
            task::yield_now().await;
        }
        server.close();
        assert!(!matches!(reader.await.unwrap(), Ok(1..)));
        assert!(writer.await.unwrap().is_err());
    });
}

fn all_waiting<A, B>(reader: &task::Task<A>, writer: &task::Task<B>) -> bool {
    !reader.is_finished() && !writer.is_finished()
}

/// Bytes that can be sent to a peer that reads nothing.
async fn filled(stream: &Stream) -> usize {
    stream.writable().await.unwrap();
    let piece = [Bytes::from(vec![0; 64 * 1024])];
    let sends = || stream.try_write_vectored(&piece, More::No).unwrap();
    std::iter::repeat_with(sends).take_while(|n| *n > 0).sum()
}

/// To a peer that reads nothing goes what the buffers hold.
#[test]
fn a_send_buffer_bounds_what_the_kernel_holds() {
    let runtime = Runtime::new(RuntimeOptions::default()).unwrap();
    runtime.block_on(async {
        let mut held = Vec::new();
        for send_buffer in [Some(16 * 1024), None] {
            let (_client, server) = pair().await;
            if let Some(bytes) = send_buffer {
                server.set_send_buffer(bytes).unwrap();
            }
            held.push(filled(&server).await);
        }
        assert!(held[0] > 0 && held[0] * 2 < held[1], "{held:?}");
    });
}

#[test]
fn a_peer_on_this_host_is_told_from_others() {
    let runtime = Runtime::new(RuntimeOptions::default()).unwrap();
    runtime.block_on(async {
        let (client, server) = pair().await;
        assert!(client.peer_is_on_this_host() && server.peer_is_on_this_host());
    });
}

/// Of a peer that sends what nobody reads comes what the buffers hold.
#[test]
fn a_receive_buffer_bounds_what_the_kernel_holds() {
    let runtime = Runtime::new(RuntimeOptions::default()).unwrap();
    runtime.block_on(async {
        let mut held = Vec::new();
        for receive_buffer in [16 * 1024, 128 * 1024] {
            let (client, server) = pair().await;
            client.set_send_buffer(16 * 1024).unwrap();
            server.set_receive_buffer(receive_buffer).unwrap();
            held.push(filled(&client).await);
        }
        assert!(held[0] > 0 && held[0] < held[1], "{held:?}");
    });
}

#[test]
fn accepted_connections_go_to_another_thread() {
    const CONNECTIONS: usize = 20;
    let (hand_over, mut take) = mailbox::channel(2);
    let echo = spawn_shard_thread(RuntimeOptions::default(), move |runtime| {
        runtime.block_on(async {
            let mut served = Vec::new();
            while let Some(accepted) = take.recv().await {
                let stream = Stream::adopt(accepted).unwrap();
                served.push(task::spawn(async move {
                    let mut buf = BytesMut::new();
                    while stream.read_into(&mut buf, 1_000).await.unwrap() > 0 {
                        stream.write_all(&buf, More::No).await.unwrap();
                        buf.clear();
                    }
                }));
            }
            for task in served {
                task.await.unwrap();
            }
            stats::read().socket_bytes_received
        })
    })
    .unwrap();
    let runtime = Runtime::new(RuntimeOptions::default()).unwrap();
    runtime.block_on(async {
        let listener = Listener::bind(ANY.parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        let clients: Vec<_> = (0..CONNECTIONS)
            .map(|n| task::spawn(client(address, n)))
            .collect();
        for _ in 0..CONNECTIONS {
            let (accepted, _) = listener.accept().await.unwrap();
            hand_over.send(accepted).await.unwrap();
        }
        drop(hand_over);
        for client in clients {
            client.await.unwrap();
        }
    });
    assert_eq!(
        echo.join().unwrap().unwrap(),
        (0..CONNECTIONS as u64).map(|n| n + 1).sum()
    );
}

async fn client(address: SocketAddr, n: usize) {
    let stream = Stream::connect(address).await.unwrap();
    let sent = vec![n as u8; n + 1];
    stream.write_all(&sent, More::No).await.unwrap();
    let mut got = BytesMut::new();
    while got.len() < sent.len() {
        stream.read_into(&mut got, 100).await.unwrap();
    }
    assert_eq!(got, sent);
}
