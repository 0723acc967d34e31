//! Answers with file ranges in them.

use bytes::{BufMut, Bytes, BytesMut};
use thalweg_net::{FileRange, Heat};
use thalweg_protocol::wire::{Encoded, Gap};
use thalweg_reactor::fs::{self, File, OpenMode};

/// A file with this content.
pub async fn file_of(dir: &tempfile::TempDir, bytes: Vec<u8>) -> File {
    let file = fs::open(&dir.path().join("segment"), OpenMode::CreateNew)
        .await
        .expect("created");
    fs::write_at(&file, vec![Bytes::from(bytes)], 0)
        .await
        .expect("written");
    file
}

/// A part of a file as the records of an answer.
pub fn range(file: &File, position: u64, len: u32, heat: Heat) -> FileRange {
    FileRange {
        file: file.clone(),
        position,
        len,
        heat,
    }
}

/// A response of head, gap, middle, gap, tail.
pub fn encoded(first: u32, second: u32) -> Encoded {
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
