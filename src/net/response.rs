//! A response as the pieces that go to the socket.

use bytes::Bytes;
use thalweg_protocol::wire::Encoded;
use thalweg_reactor::fs::File;

use crate::Account;

/// One piece of a response.
#[derive(Clone, Debug)]
pub enum Part {
    /// Bytes in memory.
    Bytes(Bytes),
    /// A range of a file.
    File(FileRange),
}

/// A range of a file on its way to a socket.
#[derive(Clone, Debug)]
pub struct FileRange {
    /// The file; held open until the range was sent.
    pub file: File,
    /// First byte.
    pub position: u64,
    /// Length in bytes.
    pub len: u32,
    /// Whether it is in the page cache.
    pub heat: Heat,
}

/// What is known about a range of a file before it is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Heat {
    /// It was written a moment ago: it is in the page cache.
    Hot,
    /// The page cache is asked, stride by stride: what is there goes by `sendfile`, the rest is read by the
    /// lane ([`thalweg_reactor::lane`]).
    Unknown,
}

/// A response, size prefix included.
#[derive(Clone, Debug, Default)]
pub struct Response {
    /// What leaves first: all of a response without records, which so costs no list.
    head: Bytes,
    rest: Vec<Part>,
    memory_bytes: usize,
    file_bytes: u64,
    account: Account,
}

impl Response {
    /// A response without gaps.
    ///
    /// # Panics
    /// When `encoded` has gaps: its size prefix counts bytes that nobody would send.
    #[must_use]
    pub fn plain(encoded: Encoded) -> Response {
        Response::interleave(encoded, [])
    }

    /// Fills the gaps of `encoded` with `ranges`, in order.
    ///
    /// # Panics
    /// When a range is not as long as its gap or their numbers differ: the client would read
    /// everything after it at the wrong place. The encoder got its lengths from the same plans.
    #[must_use]
    pub fn interleave(
        encoded: Encoded,
        ranges: impl IntoIterator<Item = FileRange, IntoIter: ExactSizeIterator>,
    ) -> Response {
        let ranges = ranges.into_iter();
        assert_eq!(encoded.gaps.len(), ranges.len(), "one range per gap");
        let mut response = Response::default();
        let mut rest = encoded.bytes;
        let mut done = 0;
        for (gap, range) in encoded.gaps.iter().zip(ranges) {
            assert_eq!(gap.len, range.len, "a range as long as its gap");
            let before = rest.split_to(gap.at - done);
            done = gap.at;
            response.push_bytes(before);
            response.file_bytes += u64::from(range.len);
            response.rest.push(Part::File(range));
        }
        response.push_bytes(rest);
        response
    }

    /// All of it, when it is nothing but bytes in memory.
    pub(crate) fn only_bytes(&self) -> Option<&Bytes> {
        self.rest.is_empty().then_some(&self.head)
    }

    /// Number of pieces.
    pub(crate) fn len(&self) -> usize {
        usize::from(!self.head.is_empty()) + self.rest.len()
    }

    /// Bytes that this response holds in memory.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }

    /// Bytes that are sent in all.
    pub(crate) fn bytes(&self) -> u64 {
        self.memory_bytes as u64 + self.file_bytes
    }

    /// The same with what its request waited for.
    #[must_use]
    pub fn with_account(self, account: Account) -> Response {
        Response { account, ..self }
    }

    /// What its request waited for before it was ready.
    pub(crate) fn account(&self) -> &Account {
        &self.account
    }

    /// Takes the bytes out that are sent first, if there are any. What was counted stays.
    pub(crate) fn take_head(&mut self) -> Option<Bytes> {
        Some(std::mem::take(&mut self.head)).filter(|head| !head.is_empty())
    }

    /// Takes out what follows them, in order.
    pub(crate) fn take_rest(&mut self) -> Vec<Part> {
        std::mem::take(&mut self.rest)
    }

    fn push_bytes(&mut self, bytes: Bytes) {
        self.memory_bytes += bytes.len();
        if self.len() == 0 {
            self.head = bytes;
        } else if !bytes.is_empty() {
            self.rest.push(Part::Bytes(bytes));
        }
    }
}

impl From<Bytes> for Response {
    /// Bytes that are a whole response already.
    fn from(bytes: Bytes) -> Response {
        let mut response = Response::default();
        response.push_bytes(bytes);
        response
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use bytes::Bytes;
    use thalweg_protocol::wire::{Encoded, Gap};
    use thalweg_reactor::fs::File;

    use super::{FileRange, Heat, Part, Response};

    fn range(position: u64, len: u32) -> FileRange {
        let null = std::fs::File::open("/dev/null").expect("/dev/null");
        FileRange {
            file: File::from_std(null, PathBuf::from("/dev/null")),
            position,
            len,
            heat: Heat::Hot,
        }
    }

    /// The pieces in order, a range as its place and length.
    fn pieces(mut response: Response) -> Vec<String> {
        let text = |bytes: Bytes| String::from_utf8(bytes.to_vec()).expect("text");
        let head = response.take_head().map(text);
        let rest = response.take_rest().into_iter().map(|part| match part {
            Part::Bytes(bytes) => text(bytes),
            Part::File(range) => format!("{}+{}", range.position, range.len),
        });
        head.into_iter().chain(rest).collect()
    }

    #[test]
    fn gaps_are_filled_in_order() {
        let encoded = Encoded {
            bytes: Bytes::from_static(b"headMIDtail"),
            gaps: vec![Gap { at: 4, len: 2 }, Gap { at: 7, len: 3 }],
        };
        let response = Response::interleave(encoded, [range(10, 2), range(90, 3)]);
        assert_eq!((response.memory_bytes(), response.bytes()), (11, 16));
        assert_eq!(response.len(), 5);
        assert_eq!(pieces(response), ["head", "10+2", "MID", "90+3", "tail"]);
    }

    #[test]
    fn two_gaps_may_touch_and_one_may_be_last() {
        let encoded = Encoded {
            bytes: Bytes::from_static(b"h"),
            gaps: vec![Gap { at: 1, len: 1 }, Gap { at: 1, len: 1 }],
        };
        let response = Response::interleave(encoded, [range(0, 1), range(5, 1)]);
        assert_eq!(pieces(response), ["h", "0+1", "5+1"]);
    }

    #[test]
    #[should_panic(expected = "a range as long as its gap")]
    fn a_range_of_the_wrong_length_is_a_bug() {
        let encoded = Encoded {
            bytes: Bytes::from_static(b"h"),
            gaps: vec![Gap { at: 0, len: 5 }],
        };
        let _ = Response::interleave(encoded, [range(0, 4)]);
    }
}
