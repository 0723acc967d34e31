//! The floor's own reading and writing of frames: one topic and one partition per request, at the
//! versions the load generator uses ([`PRODUCE_VERSION`], [`FETCH_VERSION`]). Nothing of the
//! broker's codec is used here, so that a slower codec can not slow the floor.

use anyhow::{Context, Result, bail, ensure};

/// Version of Produce: the newest that names topics.
pub const PRODUCE_VERSION: i16 = 12;
/// Version of Fetch: the newest that names topics.
pub const FETCH_VERSION: i16 = 12;

const PRODUCE_KEY: i16 = 0;
const FETCH_KEY: i16 = 1;

/// Bytes of a record batch before its records.
const BATCH_HEADER_BYTES: usize = 61;

/// One request, as offsets into the connection's buffer.
#[derive(Debug)]
pub enum Ask {
    /// Append one batch.
    Produce {
        /// To echo.
        correlation: i32,
        /// 0 wants no answer.
        acks: i16,
        /// Partition index.
        partition: usize,
        /// Where the batch lies in the frame.
        batch: std::ops::Range<usize>,
        /// Records in the batch.
        records: i64,
    },
    /// Read from one partition.
    Fetch {
        /// To echo.
        correlation: i32,
        /// Partition index.
        partition: usize,
        /// First offset wanted.
        offset: i64,
        /// `partition_max_bytes`.
        bytes_max: u64,
    },
}

struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8]> {
        let end = self.at.checked_add(len).context("length overflow")?;
        let part = self.bytes.get(self.at..end).context("a frame ends early")?;
        self.at = end;
        Ok(part)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        Ok(self.take(N)?.try_into()?)
    }

    fn i16(&mut self) -> Result<i16> {
        Ok(i16::from_be_bytes(self.array()?))
    }

    fn i32(&mut self) -> Result<i32> {
        Ok(i32::from_be_bytes(self.array()?))
    }

    fn i64(&mut self) -> Result<i64> {
        Ok(i64::from_be_bytes(self.array()?))
    }

    fn uvarint(&mut self) -> Result<usize> {
        let mut value = 0usize;
        for shift in (0..35).step_by(7) {
            let byte = self.take(1)?[0];
            value |= usize::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        bail!("a varint is too long")
    }

    /// Compact string or bytes: length + 1, then the bytes; 0 is null.
    fn compact(&mut self) -> Result<&'a [u8]> {
        let len = self.uvarint()?;
        self.take(len.saturating_sub(1))
    }

    fn no_tags(&mut self) -> Result<()> {
        ensure!(
            self.uvarint()? == 0,
            "the load generator sends no tagged fields"
        );
        Ok(())
    }

    fn one(&mut self) -> Result<()> {
        ensure!(
            self.uvarint()? == 2,
            "exactly one topic and one partition per request"
        );
        Ok(())
    }
}

/// Reads one frame (without its size prefix) and checks the batch's CRC.
///
/// # Errors
/// When the frame is not one the load generator sends, or the CRC does not match.
pub fn parse(frame: &[u8]) -> Result<Ask> {
    let mut c = Cursor {
        bytes: frame,
        at: 0,
    };
    let (key, version, correlation) = (c.i16()?, c.i16()?, c.i32()?);
    let client_id_len = c.i16()?;
    c.take(usize::try_from(client_id_len.max(0))?)?;
    c.no_tags()?;
    match (key, version) {
        (PRODUCE_KEY, PRODUCE_VERSION) => parse_produce(c, correlation),
        (FETCH_KEY, FETCH_VERSION) => parse_fetch(c, correlation),
        (key, version) => bail!("the floor does not know API {key} version {version}"),
    }
}

fn parse_produce(mut c: Cursor<'_>, correlation: i32) -> Result<Ask> {
    c.compact()?; // transactional id
    let acks = c.i16()?;
    c.i32()?; // timeout
    c.one()?;
    c.compact()?; // topic
    c.one()?;
    let partition = usize::try_from(c.i32()?)?;
    let batch = c.compact()?;
    let range = c.at - batch.len()..c.at;
    ensure!(batch.len() >= BATCH_HEADER_BYTES, "no batch");
    let crc = u32::from_be_bytes(batch[17..21].try_into()?);
    ensure!(
        crc32c::crc32c(&batch[21..]) == crc,
        "the CRC of a batch does not match"
    );
    let records = i64::from(i32::from_be_bytes(batch[57..61].try_into()?));
    Ok(Ask::Produce {
        correlation,
        acks,
        partition,
        batch: range,
        records,
    })
}

fn parse_fetch(mut c: Cursor<'_>, correlation: i32) -> Result<Ask> {
    c.take(4 + 4 + 4 + 4 + 1 + 4 + 4)?; // replica, wait, min, max, isolation, session id, epoch
    c.one()?;
    c.compact()?; // topic
    c.one()?;
    let partition = usize::try_from(c.i32()?)?;
    c.i32()?; // current leader epoch
    let offset = c.i64()?;
    c.take(4 + 8)?; // last fetched epoch, log start
    let bytes_max = u64::try_from(c.i32()?)?;
    Ok(Ask::Fetch {
        correlation,
        partition,
        offset,
        bytes_max,
    })
}

fn put_uvarint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn put_topic(out: &mut Vec<u8>, topic: &str) {
    put_uvarint(out, topic.len() as u64 + 1);
    out.extend_from_slice(topic.as_bytes());
}

/// Prepared Produce response of one partition; per answer two numbers are patched.
#[derive(Debug)]
pub struct ProduceAnswer {
    bytes: Vec<u8>,
    base_offset_at: usize,
}

impl ProduceAnswer {
    /// Encodes the answer of `partition` once.
    #[must_use]
    pub fn new(topic: &str, partition: usize) -> Self {
        let mut b = vec![0u8; 8]; // size, correlation
        b.push(0); // header tags
        put_uvarint(&mut b, 2);
        put_topic(&mut b, topic);
        put_uvarint(&mut b, 2);
        b.extend_from_slice(&(partition as i32).to_be_bytes());
        b.extend_from_slice(&0i16.to_be_bytes());
        let base_offset_at = b.len();
        b.extend_from_slice(&0i64.to_be_bytes());
        b.extend_from_slice(&(-1i64).to_be_bytes()); // log append time
        b.extend_from_slice(&0i64.to_be_bytes()); // log start
        b.push(1); // no record errors
        b.push(0); // no message
        b.push(0); // partition tags
        b.push(0); // topic tags
        b.extend_from_slice(&0i32.to_be_bytes()); // throttle
        b.push(0);
        let size = (b.len() - 4) as i32;
        b[..4].copy_from_slice(&size.to_be_bytes());
        ProduceAnswer {
            bytes: b,
            base_offset_at,
        }
    }

    /// Appends one answer to `out`.
    pub fn put(&self, out: &mut Vec<u8>, correlation: i32, base_offset: i64) {
        let start = out.len();
        out.extend_from_slice(&self.bytes);
        out[start + 4..start + 8].copy_from_slice(&correlation.to_be_bytes());
        let at = start + self.base_offset_at;
        out[at..at + 8].copy_from_slice(&base_offset.to_be_bytes());
    }
}

/// What follows the records of a Fetch response: tags of partition, topic and body.
pub const FETCH_TRAILER: [u8; 3] = [0; 3];

/// Appends a Fetch response up to its records, whose `records_bytes` follow from the file.
pub fn put_fetch_head(
    out: &mut Vec<u8>,
    topic: &str,
    correlation: i32,
    partition: usize,
    end: i64,
    records_bytes: u64,
) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&correlation.to_be_bytes());
    out.push(0);
    out.extend_from_slice(&[0; 4 + 2 + 4]); // throttle, error, session
    put_uvarint(out, 2);
    put_topic(out, topic);
    put_uvarint(out, 2);
    out.extend_from_slice(&(partition as i32).to_be_bytes());
    out.extend_from_slice(&0i16.to_be_bytes());
    out.extend_from_slice(&end.to_be_bytes()); // high watermark
    out.extend_from_slice(&end.to_be_bytes()); // last stable
    out.extend_from_slice(&0i64.to_be_bytes()); // log start
    out.push(0); // aborted transactions: null
    out.extend_from_slice(&(-1i32).to_be_bytes()); // preferred replica
    put_uvarint(out, records_bytes + 1);
    let size = (out.len() - start - 4) as u64 + records_bytes + FETCH_TRAILER.len() as u64;
    out[start..start + 4].copy_from_slice(&(size as u32).to_be_bytes());
}
