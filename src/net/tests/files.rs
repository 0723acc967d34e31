//! Record bytes leave by `sendfile`, are counted, and a file that is too short ends the connection.

mod rig;

use bytes::{BufMut, Bytes, BytesMut};
use rig::{Rig, frame, run};
use thalweg_metrics::CloseReason;
use thalweg_net::{Limits, RecordSource, Response};
use thalweg_protocol::wire::{Encoded, Gap};
use thalweg_reactor::fs::{self, File, OpenMode};

async fn file_of(dir: &tempfile::TempDir, bytes: Vec<u8>) -> File {
    let file = fs::open(&dir.path().join("segment"), OpenMode::CreateNew)
        .await
        .expect("created");
    fs::write_at(&file, vec![Bytes::from(bytes)], 0)
        .await
        .expect("written");
    file
}

/// A response of head, gap, middle, gap, tail.
fn encoded(first: u32, second: u32) -> Encoded {
    let mut bytes = BytesMut::new();
    bytes.put_u32(4 + first + 6 + second + 4);
    bytes.put_slice(b"headmiddletail");
    let gaps = vec![
        Gap { at: 8, len: first },
        Gap {
            at: 14,
            len: second,
        },
    ];
    Encoded {
        bytes: bytes.freeze(),
        gaps,
    }
}

#[test]
fn a_fetch_answer_interleaves_headers_and_file_ranges_and_counts_both_ways() {
    run(Limits::default(), async |rig: Rig| {
        let dir = tempfile::tempdir().expect("a directory");
        let data: Vec<u8> = (0..2_000_000u32).map(|i| (i % 253) as u8).collect();
        let file = file_of(&dir, data.clone()).await;
        let memory = Bytes::from_static(b"still in memory");
        let sources = vec![
            RecordSource::File {
                file,
                position: 1_000,
                len: 1_500_000,
            },
            RecordSource::Memory(memory.clone()),
        ];
        let response = Response::interleave(encoded(1_500_000, memory.len() as u32), sources);
        *rig.service.prepared.borrow_mut() = Some(response);
        let mut client = rig.connect().await;
        client.send(&[frame(b"r"), frame(b"e1")].concat()).await;
        let want = [
            &b"head"[..],
            &data[1_000..1_501_000],
            b"middle",
            b"still in memory",
            b"tail",
        ]
        .concat();
        assert!(client.answer().await.expect("an answer") == want);
        assert_eq!(client.answer().await.as_deref(), Some(&b"e1"[..]));
        let counted = rig.metrics(|m| {
            (
                m.counters.fetch_bytes_sendfile,
                m.counters.fetch_bytes_copied,
            )
        });
        assert_eq!(counted, (1_500_000, memory.len() as u64));
        let sent = rig.metrics(|m| m.counters.bytes_out);
        assert_eq!(sent, (4 + want.len() + 6) as u64);
    });
}

#[test]
fn a_file_that_is_too_short_closes_the_connection_after_its_header() {
    run(Limits::default(), async |rig: Rig| {
        let dir = tempfile::tempdir().expect("a directory");
        let file = file_of(&dir, vec![1; 100]).await;
        let sources = vec![
            RecordSource::File {
                file: file.clone(),
                position: 50,
                len: 100,
            },
            RecordSource::File {
                file,
                position: 0,
                len: 1,
            },
        ];
        let response = Response::interleave(encoded(100, 1), sources);
        *rig.service.prepared.borrow_mut() = Some(response);
        let mut client = rig.connect().await;
        client.send(&frame(b"r")).await;
        assert_eq!(client.answer().await, None);
        rig.until_closed(CloseReason::StorageError, 1).await;
    });
}
