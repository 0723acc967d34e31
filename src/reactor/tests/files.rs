//! Reads, writes, names and locks, on both engines.

mod common;

use std::path::Path;

use bytes::{Bytes, BytesMut};
use common::on_both_engines;
use thalweg_reactor::fs::{self, File, OpenMode};
use thalweg_reactor::stats;

async fn fresh(dir: &Path) -> File {
    fs::open(&dir.join("data"), OpenMode::CreateNew).await.unwrap()
}

#[test]
fn a_vectored_write_is_read_back_whole() {
    on_both_engines(|runtime| {
        let dir = tempfile::tempdir().unwrap();
        runtime.block_on(async {
            let file = fresh(dir.path()).await;
            // More slices than one system call takes, some of them empty.
            let bufs: Vec<_> = (0..3_000u32)
                .map(|n| Bytes::from(n.to_le_bytes()[..(n % 5) as usize].to_vec()))
                .collect();
            let whole: Vec<u8> = bufs.iter().flatten().copied().collect();
            let written = fs::write_at(&file, bufs, 10).await.unwrap();
            assert_eq!(written, whole.len() as u64);
            let read = fs::read_at(&file, 10, whole.len()).await.unwrap();
            assert_eq!(read, whole);
            assert_eq!(fs::len(&file).await.unwrap(), 10 + written);
            assert_eq!(fs::write_at(&file, vec![Bytes::new()], 0).await.unwrap(), 0);
            assert_eq!(stats::read().ops_started, stats::read().ops_finished);
        });
    });
}

#[test]
fn a_read_is_short_only_at_the_end() {
    on_both_engines(|runtime| {
        let dir = tempfile::tempdir().unwrap();
        runtime.block_on(async {
            let file = fresh(dir.path()).await;
            let content = Bytes::from(vec![7u8; 300_000]);
            fs::write_at(&file, vec![content.clone()], 0).await.unwrap();
            assert_eq!(fs::read_at(&file, 0, 1_000_000).await.unwrap(), content);
            assert_eq!(fs::read_at(&file, 299_999, 5).await.unwrap(), &content[..1]);
            assert_eq!(fs::read_at(&file, 300_000, 5).await.unwrap(), BytesMut::new());
            assert_eq!(fs::read_at(&file, 0, 0).await.unwrap(), BytesMut::new());
            let mut buf = [0; 16];
            assert_eq!(fs::read_cached(&file, 299_990, &mut buf).unwrap(), Some(10));
            assert_eq!(buf[..10], content[..10]);
        });
    });
}
