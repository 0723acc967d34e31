//! Record bytes leave by `sendfile`, few of them as copies, are counted, and a file that is too short ends the connection.

mod rig;

use rig::answers::{encoded, file_of, range};
use rig::{Rig, frame, run};
use thalweg_metrics::CloseReason;
use thalweg_net::{Heat, Limits, Response};

#[test]
fn a_fetch_answer_interleaves_headers_and_file_ranges_and_counts_both_ways() {
    run(Limits::default(), async |rig: Rig| {
        let dir = tempfile::tempdir().expect("a directory");
        let data: Vec<u8> = (0..2_000_000u32).map(|i| (i % 253) as u8).collect();
        let file = file_of(&dir, data.clone()).await;
        let ranges = [
            range(&file, 1_000, 1_500_000, Heat::Hot),
            range(&file, 77, 15, Heat::Hot),
        ];
        let response = Response::interleave(encoded(1_500_000, 15), ranges);
        *rig.service.prepared.borrow_mut() = Some(response);
        let mut client = rig.connect().await;
        client.send(&[frame(b"r"), frame(b"e1")].concat()).await;
        let want = [
            &b"head"[..],
            &data[1_000..1_501_000],
            b"middle",
            &data[77..92],
            b"tail",
        ]
        .concat();
        assert!(client.answer().await.expect("an answer") == want);
        assert_eq!(client.answer().await.as_deref(), Some(&b"e1"[..]));
        let (sent, copied) = rig.metrics(|m| {
            let counters = &m.counters;
            (counters.fetch_bytes_sendfile, counters.fetch_bytes_copied)
        });
        assert_eq!(sent + copied, 1_500_015);
        // The few are copied where the page cache can be read without waiting.
        assert!(sent >= 1_500_000, "{sent}");
        let sent = rig.metrics(|m| m.counters.bytes_out);
        assert_eq!(sent, (4 + want.len() + 6) as u64);
    });
}

#[test]
fn a_file_that_is_too_short_closes_the_connection_after_its_header() {
    run(Limits::default(), async |rig: Rig| {
        let dir = tempfile::tempdir().expect("a directory");
        let file = file_of(&dir, vec![1; 100]).await;
        let ranges = [
            range(&file, 50, 100, Heat::Unknown),
            range(&file, 0, 1, Heat::Unknown),
        ];
        let response = Response::interleave(encoded(100, 1), ranges);
        *rig.service.prepared.borrow_mut() = Some(response);
        let mut client = rig.connect().await;
        client.send(&frame(b"r")).await;
        assert_eq!(client.answer().await, None);
        rig.until_closed(CloseReason::StorageError, 1).await;
        // Whoever owns the file is told.
        let unread = rig.service.unread.take();
        assert!(
            unread.len() == 1 && unread[0].path == file.path() && unread[0].position >= 50,
            "{unread:?}"
        );
    });
}

/// Answers of few records leave as copies; a client that takes nothing for a while gets the same bytes.
#[test]
fn small_ranges_are_copied_as_far_as_the_socket_takes_them() {
    run(Limits::default(), async |rig: Rig| {
        let dir = tempfile::tempdir().expect("a directory");
        let data: Vec<u8> = (0..200_000u32).map(|i| (i % 251) as u8).collect();
        let file = file_of(&dir, data.clone()).await;
        let mut client = rig.connect().await;
        let (first, second) = (65_536, 1_000);
        for at in 0..14 {
            let ranges = [
                range(&file, at, first, Heat::Hot),
                range(&file, 100_000 + at, second, Heat::Unknown),
            ];
            let response = Response::interleave(encoded(first, second), ranges);
            *rig.service.prepared.borrow_mut() = Some(response);
            client.send(&frame(b"r")).await;
            rig.until(|rig| rig.service.prepared.borrow().is_none())
                .await;
        }
        for at in 0..14 {
            let want = [
                &b"head"[..],
                &data[at..at + first as usize],
                b"middle",
                &data[100_000 + at..101_000 + at],
                b"tail",
            ]
            .concat();
            assert!(client.answer().await.expect("an answer") == want, "{at}");
        }
        let (copied, sent) = rig.metrics(|m| {
            let counters = &m.counters;
            (counters.fetch_bytes_copied, counters.fetch_bytes_sendfile)
        });
        assert_eq!(copied + sent, 14 * u64::from(first + second));
        assert!(copied >= u64::from(first + second), "{copied}");
    });
}
