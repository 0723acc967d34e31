//! What `driver.rs` promises.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;

use super::{Counting, Driver};
use crate::load::{Counters, HEAD_BYTES, Job, Keep, MEASURE, Part, Shared};
use crate::schedule::{Due, Schedule};
use crate::workload::Reader;

/// Requests of eight bytes; an answer's size is what it moved.
#[derive(Clone)]
struct Echo;

impl Job for Echo {
    fn next(&mut self, _conn: usize, correlation: i32, head: &mut Vec<u8>) -> usize {
        head.extend_from_slice(&4i32.to_be_bytes());
        head.extend_from_slice(&correlation.to_be_bytes());
        0
    }
    fn tail(&self, _token: usize) -> &[u8] {
        &[]
    }
    fn check(&mut self, _conn: usize, head: &[u8]) -> Result<u64> {
        assert!(head.len() <= HEAD_BYTES);
        Ok(u64::from(u32::from_be_bytes(head[..4].try_into()?)))
    }
    fn unanswered_bytes(&self) -> Option<u64> {
        None
    }
    fn bytes_per_request(&self) -> u64 {
        1
    }
    fn boxed(&self) -> Box<dyn Job> {
        Box::new(self.clone())
    }
}

fn rig(reader: Reader) -> (Driver, TcpStream, Shared) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let part = Part {
        name: "echo",
        job: Box::new(Echo),
        connections: 1,
        in_flight: 2,
        rate: None,
        reader,
        keep: Keep::Latency,
        gives_way: false,
    };
    let driver = Driver::connect(&part, vec![0], listener.local_addr().unwrap()).unwrap();
    let (peer, _) = listener.accept().unwrap();
    let shared = Shared {
        phase: AtomicU8::new(MEASURE),
        parts: vec![Counters::default()],
    };
    (driver, peer, shared)
}

fn answer(correlation: i32, size: usize) -> Vec<u8> {
    let mut bytes = (size as u32).to_be_bytes().to_vec();
    bytes.extend_from_slice(&correlation.to_be_bytes());
    bytes.resize(size + 4, 7);
    bytes
}

/// Both readers see the same answers: short ones, one that just fits the head, and long ones.
#[test]
fn both_readers_count_the_same() {
    let sizes = [4, HEAD_BYTES - 4, HEAD_BYTES - 3, 300_000, 5, 2_000_000];
    for reader in [Reader::Copy, Reader::Discard] {
        let (mut driver, mut peer, shared) = rig(reader);
        let counting = Counting {
            shared: &shared,
            part: 0,
        };
        let answers: Vec<u8> = (1i32..)
            .zip(sizes)
            .flat_map(|(c, s)| answer(c, s))
            .collect();
        driver.in_flight_max = sizes.len();
        driver.turn(0, counting).unwrap();
        assert_eq!(driver.conns[0].in_flight.len(), sizes.len());
        let writer = std::thread::spawn(move || {
            peer.write_all(&answers).unwrap();
            peer
        });
        let counted = |s: &Shared| s.parts[0].requests.load(Ordering::Relaxed);
        while counted(&shared) < sizes.len() as u64 {
            driver.conns[0].readable = true;
            driver.turn(0, counting).unwrap();
        }
        let total: usize = sizes.iter().sum();
        assert_eq!(shared.parts[0].bytes.load(Ordering::Relaxed), total as u64);
        assert!(driver.conns[0].answer.is_empty() && driver.conns[0].skip == 0);
        let is_copied = driver.scratch[HEAD_BYTES..].iter().any(|byte| *byte != 0);
        assert_eq!(is_copied, reader == Reader::Copy);
        writer.join().unwrap();
    }
}

#[test]
fn an_answer_may_come_byte_by_byte() {
    let (mut driver, _peer, _) = rig(Reader::Copy);
    let bytes = answer(1, 300);
    let conn = &mut driver.conns[0];
    let ends: Vec<bool> = bytes.iter().map(|b| conn.take(&[*b]).1).collect();
    assert_eq!(ends.iter().position(|end| *end), Some(303));
    assert_eq!(conn.answer.len(), HEAD_BYTES);
}

/// Requests that were due an hour ago and are sent now were an hour late, however fast the answer comes.
#[test]
fn a_late_send_is_measured_from_its_intended_time() {
    let (mut driver, mut peer, shared) = rig(Reader::Discard);
    let counting = Counting {
        shared: &shared,
        part: 0,
    };
    let minute = Duration::from_secs(60);
    let start = Instant::now().checked_sub(minute).unwrap();
    // One request per half a minute: at 0, 30 and 60 seconds; two may be in flight.
    let schedule = Schedule::new(start, 1.0 / 30.0, 1);
    driver.due = Some(Due::new(schedule, vec![0]));
    driver.release_due(counting);
    assert_eq!((driver.conns[0].due, driver.backlog), (3, 3));
    driver.turn(0, counting).unwrap();
    assert_eq!((driver.conns[0].begun, driver.backlog), (2, 1));
    let mut request = [0u8; 16];
    peer.read_exact(&mut request).unwrap();
    peer.write_all(&answer(1, 4)).unwrap();
    while driver.recorded.latency_us.is_empty() {
        driver.conns[0].readable = true;
        driver.turn(0, counting).unwrap();
    }
    assert!(driver.recorded.latency_us.max() >= 60_000_000);
    assert!(driver.recorded.send_delay_us.max() >= 60_000_000);
    // The second has no answer at the end, and the third neither.
    driver.count_unanswered(Instant::now());
    assert_eq!(driver.recorded.unanswered, 2);
    assert_eq!(driver.recorded.latency_us.len(), 3);
    assert_eq!(shared.parts[0].intended.load(Ordering::Relaxed), 3);
    assert_eq!(driver.recorded.backlog_max, 3);
}
