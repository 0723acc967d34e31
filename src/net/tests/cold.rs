//! File ranges that are not in the page cache come through the lane. These tests have it to themselves, one
//! after the other, with memory for two strides.

mod rig;

use std::sync::{Mutex, PoisonError};

use rig::answers::{encoded, file_of, range};
use rig::{Client, Rig, frame, run};
use thalweg_metrics::Cause;
use thalweg_net::{Heat, Limits, Response};
use thalweg_reactor::fs::{self, File};
use thalweg_reactor::lane::{self, Lane, LaneOptions};

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn on_a_small_lane<F: AsyncFnOnce(Rig)>(test: F) {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    lane::set_up(LaneOptions {
        memory_bytes: 2 * 256 * 1024,
        ..LaneOptions::default()
    });
    run(Limits::default(), test);
}

/// A client that asks for the first `len` bytes of `file`, and one more.
async fn ask_for(rig: &Rig, file: &File, len: u32) -> Client {
    let ranges = [
        range(file, 0, len, Heat::Unknown),
        range(file, 0, 1, Heat::Unknown),
    ];
    let response = Response::interleave(encoded(len, 1), ranges);
    *rig.service.prepared.borrow_mut() = Some(response);
    let client = rig.connect().await;
    client.send(&frame(b"r")).await;
    rig.until(|rig| rig.service.prepared.borrow().is_none())
        .await;
    client
}

/// Puts the file on the disk and takes it out of the page cache, from `from` on. False where it has no disk.
async fn cool(file: &File, from: u64) -> bool {
    fs::sync_all(file).await.expect("synced");
    fs::forget_cached(file, from, 0);
    fs::cached_pages(file, from, 0) == Some(0)
}

/// What is in the page cache goes by `sendfile`, what is not through the lane, in one answer, and all of it
/// arrives in its place.
#[test]
fn ranges_that_are_not_in_memory_are_read_by_the_lane() {
    on_a_small_lane(async |rig: Rig| {
        let dir = tempfile::tempdir().expect("a directory");
        let data: Vec<u8> = (0..3_000_000u32).map(|i| (i / 3 % 251) as u8).collect();
        let file = file_of(&dir, data.clone()).await;
        let is_cold = cool(&file, 1 << 20).await;
        let ranges = [
            range(&file, 777_777, 1_500_000, Heat::Unknown),
            range(&file, 2_500_001, 99, Heat::Unknown),
        ];
        let response = Response::interleave(encoded(1_500_000, 99), ranges);
        *rig.service.prepared.borrow_mut() = Some(response);
        let mut client = rig.connect().await;
        client.send(&[frame(b"r"), frame(b"e1")].concat()).await;
        let want = [
            &b"head"[..],
            &data[777_777..2_277_777],
            b"middle",
            &data[2_500_001..2_500_100],
            b"tail",
        ]
        .concat();
        assert!(client.answer().await.expect("an answer") == want);
        assert_eq!(client.answer().await.as_deref(), Some(&b"e1"[..]));
        let (warm, cold, read) = rig.metrics(|m| {
            let counters = &m.counters;
            let read = (counters.cold_reads, counters.cold_read_bytes);
            (
                counters.fetch_bytes_sendfile,
                counters.fetch_bytes_cold,
                read,
            )
        });
        assert_eq!(warm + cold, 1_500_099);
        if is_cold {
            assert_eq!(
                warm,
                (1 << 20) - 777_777,
                "up to the first page that is not there"
            );
            assert_eq!(read.1, cold, "each byte once");
            assert_eq!(read.0, (2_277_777u64 - (1 << 20)).div_ceil(262_144) + 1);
            assert_eq!(
                fs::cached_pages(&file, 1 << 20, 0),
                Some(0),
                "nothing stays"
            );
            // The other request has not waited for it.
            rig.until(|rig| rig.metrics(|m| m.blame.total().count()) == 2)
                .await;
            let blamed = rig.metrics(|m| m.blame.stage(Cause::ColdRead).count());
            assert_eq!(blamed, 1);
        }
    });
}

/// A client that leaves in the middle of a cold answer takes its share of the lane with it.
#[test]
fn bi35_who_leaves_withdraws_what_it_waits_for() {
    on_a_small_lane(async |rig: Rig| {
        let dir = tempfile::tempdir().expect("a directory");
        let data = vec![7; 40_000_000];
        let file = file_of(&dir, data).await;
        cool(&file, 0).await;
        for _ in 0..4 {
            let client = ask_for(&rig, &file, 39_999_999).await;
            rig.until(|rig| rig.metrics(|m| m.counters.bytes_out) > 0)
                .await;
            drop(client);
            rig.until(|rig| rig.net.open_connections() == 0).await;
        }
        rig.until(|_| {
            let lane = Lane::shared();
            lane::waiting().0 == 0 && lane.buffers_used() == 0 && lane.handles_open() == 0
        })
        .await;
    });
}

/// Clients that take nothing do not keep the memory of the lane from those who do.
#[test]
fn slow_clients_give_their_buffers_up() {
    on_a_small_lane(async |rig: Rig| {
        let dir = tempfile::tempdir().expect("a directory");
        let data: Vec<u8> = (0..20_000_000u32).map(|i| (i / 5 % 249) as u8).collect();
        let file = file_of(&dir, data.clone()).await;
        if !cool(&file, 0).await {
            return;
        }
        let mut slow = Vec::new();
        for _ in 0..3 {
            slow.push(ask_for(&rig, &file, 19_999_999).await);
        }
        for _ in 0..3 {
            let got = ask_for(&rig, &file, 1_000_000)
                .await
                .answer()
                .await
                .expect("an answer");
            assert!(got[4..1_000_004] == data[..1_000_000]);
        }
        // They get theirs, too, once they take it.
        for client in &mut slow {
            let got = client.answer().await.expect("an answer");
            assert!(got[4..20_000_003] == data[..19_999_999]);
        }
    });
}
