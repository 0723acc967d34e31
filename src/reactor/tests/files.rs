//! Reads, writes, names and locks, on both engines.

#![allow(clippy::unwrap_used, reason = "a test may end where it fails")]

mod common;

use std::future::Future;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use bytes::{Bytes, BytesMut};
use common::on_both_engines;
use thalweg_reactor::fs::{self, File, OpenMode};
use thalweg_reactor::{in_place, stats, task};

async fn fresh(dir: &Path) -> File {
    fs::open(&dir.join("data"), OpenMode::CreateNew)
        .await
        .unwrap()
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
            assert_eq!(
                fs::read_at(&file, 300_000, 5).await.unwrap(),
                BytesMut::new()
            );
            assert_eq!(fs::read_at(&file, 0, 0).await.unwrap(), BytesMut::new());
            let mut buf = [0; 16];
            assert_eq!(fs::read_cached(&file, 299_990, &mut buf).unwrap(), Some(10));
            assert_eq!(buf[..10], content[..10]);
        });
    });
}

#[test]
fn errors_name_operation_path_and_offset() {
    on_both_engines(|runtime| {
        let dir = tempfile::tempdir().unwrap();
        runtime.block_on(async {
            let path = dir.path().join("data");
            let error = fs::open(&path, OpenMode::Read).await.unwrap_err();
            assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
            assert_eq!(fs::os_error(&error), Some(2));
            drop(fresh(dir.path()).await);
            let file = fs::open(&path, OpenMode::Read).await.unwrap();
            let error = fs::write_at(&file, vec![Bytes::from_static(b"x")], 77)
                .await
                .unwrap_err();
            let text = error.to_string();
            let path = path.display().to_string();
            assert!(
                text.contains("write") && text.contains(&path) && text.contains("77"),
                "{text}"
            );
            assert_eq!(fs::os_error(&error), Some(9));
        });
    });
}

#[test]
fn writes_side_by_side_and_dropped_ones_all_reach_the_file() {
    on_both_engines(|runtime| {
        let dir = tempfile::tempdir().unwrap();
        runtime.block_on(async {
            let file = fresh(dir.path()).await;
            let tasks: Vec<_> = (0..500u64)
                .map(|n| {
                    let file = file.clone();
                    task::spawn(async move {
                        let bytes = Bytes::from(vec![n as u8; 1_000]);
                        fs::write_at(&file, vec![bytes], n * 1_000).await.unwrap();
                    })
                })
                .collect();
            // All have begun; every third loses its future now.
            while stats::read().ops_started < 500 {
                task::yield_now().await;
            }
            for (n, task) in tasks.into_iter().enumerate() {
                if n % 3 == 0 {
                    task.abort();
                }
                task.await;
            }
        });
        // `block_on` waits for what the aborted tasks began.
        let content = std::fs::read(dir.path().join("data")).unwrap();
        let want: Vec<u8> = (0..500u64).flat_map(|n| [n as u8; 1_000]).collect();
        assert!(content == want);
    });
}

#[test]
fn names_and_sizes() {
    on_both_engines(|runtime| {
        let dir = tempfile::tempdir().unwrap();
        runtime.block_on(async {
            let sub = dir.path().join("a").join("b");
            fs::create_dir_all(&sub).await.unwrap();
            assert!(fs::create_dir(&sub).await.is_err());
            let (one, two) = (sub.join("one"), sub.join("two"));
            let file = fs::open(&one, OpenMode::CreateNew).await.unwrap();
            assert!(fs::open(&one, OpenMode::CreateNew).await.is_err());
            fs::allocate(&file, 0, 1 << 16).await.unwrap();
            assert_eq!(fs::len(&file).await.unwrap(), 0);
            fs::truncate(&file, 100).await.unwrap();
            fs::sync_all(&file).await.unwrap();
            fs::rename(&one, &two).await.unwrap();
            fs::sync_dir(&sub).await.unwrap();
            let listed = fs::list_dir(&sub).await.unwrap();
            assert_eq!(listed.len(), 1);
            assert_eq!(listed[0].name.to_str(), Some("two"));
            assert!(!listed[0].is_dir);
            let names = vec!["two".to_owned(), "none".to_owned()];
            let lengths = fs::lengths(&sub, names).await.unwrap();
            assert_eq!(lengths, [Some(100), None]);
            let paths = vec![two.clone(), sub.join("none")];
            let read = fs::read_files(paths.clone(), 100).await.unwrap();
            assert_eq!(read, [Some(Bytes::from(vec![0; 100])), None]);
            assert_eq!(fs::read_files(paths, 99).await.unwrap(), [None, None]);
            assert!(fs::metadata(&two).await.unwrap().modified_ms > 0);
            assert!(fs::metadata(&sub).await.unwrap().is_dir);
            drop(fs::open(&two, OpenMode::Create).await.unwrap());
            assert_eq!(fs::metadata(&two).await.unwrap().len, 100);
            drop(fs::open(&two, OpenMode::CreateEmpty).await.unwrap());
            assert_eq!(fs::metadata(&two).await.unwrap().len, 0);
            fs::unlink(&two).await.unwrap();
            assert!(!fs::exists(&two).await.unwrap());
            // The handle outlives the name.
            fs::write_at(&file, vec![Bytes::from_static(b"still here")], 0)
                .await
                .unwrap();
            fs::sync_data(&file).await.unwrap();
            fs::remove_dir_all(&dir.path().join("a")).await.unwrap();
            assert!(!fs::exists(&sub).await.unwrap());
        });
    });
}

#[test]
fn a_file_is_replaced_whole() {
    on_both_engines(|runtime| {
        let dir = tempfile::tempdir().unwrap();
        runtime.block_on(async {
            let path = dir.path().join("checkpoint");
            for text in ["first", "second, longer"] {
                fs::write_file_atomically(&path, Bytes::from_static(text.as_bytes()))
                    .await
                    .unwrap();
                assert_eq!(fs::read_file(&path, 100).await.unwrap(), text);
            }
            assert_eq!(fs::list_dir(dir.path()).await.unwrap().len(), 1);
            let error = fs::read_file(&path, 5).await.unwrap_err();
            assert_eq!(error.kind(), std::io::ErrorKind::FileTooLarge);
        });
    });
}

#[test]
fn a_file_is_extended_in_its_place() {
    on_both_engines(|runtime| {
        let dir = tempfile::tempdir().unwrap();
        runtime.block_on(async {
            let path = dir.path().join("index");
            let inode = || std::fs::metadata(&path).unwrap().ino();
            let write = async |text: &'static str| {
                let written = fs::extend_file(&path, Bytes::from_static(text.as_bytes())).await;
                written.unwrap();
                assert_eq!(fs::read_file(&path, 100).await.unwrap(), text);
                inode()
            };
            let first = write("one").await;
            assert_eq!(write("one, two").await, first);
            // What goes on differently, too.
            assert_eq!(write("eins, zwei").await, first);
            // A shorter one may not be left with the end of the longer.
            assert_ne!(write("one").await, first);
            assert_eq!(fs::list_dir(dir.path()).await.unwrap().len(), 1);
        });
    });
}

#[test]
fn a_mount_has_an_id_that_stays() {
    on_both_engines(|runtime| {
        let dir = tempfile::tempdir().unwrap();
        runtime.block_on(async {
            let first = fs::cache_lifetime(dir.path()).await.unwrap();
            std::fs::create_dir(dir.path().join("sub")).unwrap();
            let again = fs::cache_lifetime(&dir.path().join("sub")).await.unwrap();
            assert_eq!(first, again);
            let other = fs::cache_lifetime(std::path::Path::new("/proc"))
                .await
                .unwrap();
            // Kernels before 6.8 have none.
            assert!(first.is_none() || first != other, "{first:?}");
            let path = dir.path().join("replaced");
            for text in ["one", "two, longer"] {
                fs::replace_file(&path, Bytes::from_static(text.as_bytes()))
                    .await
                    .unwrap();
                assert_eq!(fs::read_file(&path, 100).await.unwrap(), text);
            }
        });
    });
}

#[test]
fn files_work_without_a_runtime_of_ours() {
    let dir = tempfile::tempdir().unwrap();
    let tokio = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    tokio.block_on(async {
        let file = fresh(dir.path()).await;
        fs::write_at(&file, vec![Bytes::from_static(b"abc")], 0)
            .await
            .unwrap();
        fs::sync_data(&file).await.unwrap();
        assert_eq!(fs::read_at(&file, 1, 10).await.unwrap(), "bc");
    });
}

/// Names and cached pages need no other thread where a thread serves nobody; what waits for a disk goes there.
#[test]
fn what_is_in_memory_is_done_in_place() {
    on_both_engines(|runtime| {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data");
        runtime.block_on(async {
            let content = Bytes::from(vec![7u8; 2_000_000]);
            let file = fresh(dir.path()).await;
            fs::write_at(&file, vec![content.clone()], 0).await.unwrap();
            let mut polls = 0;
            let mut work = Box::pin(in_place(async {
                assert_eq!(fs::list_dir(dir.path()).await.unwrap().len(), 1);
                let file = fs::open(&path, OpenMode::ReadWrite).await.unwrap();
                assert_eq!(fs::read_at(&file, 0, 3_000_000).await.unwrap(), content);
                assert_eq!(
                    fs::read_at(&file, 1_999_999, 5).await.unwrap(),
                    &content[..1]
                );
                assert_eq!(fs::read_file(&path, 2_000_000).await.unwrap(), content);
                let other = dir.path().join("other");
                fs::replace_file(&other, Bytes::from_static(b"x"))
                    .await
                    .unwrap();
                assert_eq!(fs::len(&file).await.unwrap(), 2_000_000);
            }));
            std::future::poll_fn(|cx| {
                polls += 1;
                work.as_mut().poll(cx)
            })
            .await;
            assert_eq!(polls, 1);
            // A flush goes its way.
            in_place(fs::sync_data(&file)).await.unwrap();
            assert_eq!(fs::list_dir(dir.path()).await.unwrap().len(), 2);
        });
    });
}
