//! How one record is printed.

use std::io::{self, Write};

use serde::Serialize;
use thalweg_protocol::records::{Header, Record};

use crate::args::ConsumeArgs;
use crate::base64;
use crate::exit::{Exit, Failure};

/// The form of the output, parsed once.
pub(super) enum Format {
    /// Parts in order; nothing is added.
    Parts(Vec<Part>),
    /// One JSON object per line.
    Json,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Part {
    Text(Vec<u8>),
    Topic,
    Partition,
    Offset,
    Timestamp,
    Headers,
    Key,
    Value,
}

#[derive(Serialize)]
struct JsonRecord<'a> {
    topic: &'a str,
    partition: i32,
    offset: i64,
    timestamp: i64,
    #[serde(flatten)]
    key: JsonBytes<'a, true>,
    #[serde(flatten)]
    value: JsonBytes<'a, false>,
    headers: Vec<JsonHeader<'a>>,
}

#[derive(Serialize)]
struct JsonHeader<'a> {
    name: String,
    #[serde(flatten)]
    value: JsonBytes<'a, false>,
}

/// `key`/`value` when the bytes are UTF-8 (or absent: null), else `key_base64`/`value_base64`.
struct JsonBytes<'a, const IS_KEY: bool>(Option<&'a [u8]>);

impl<const IS_KEY: bool> Serialize for JsonBytes<'_, IS_KEY> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeMap;
        let (plain, encoded) = if IS_KEY {
            ("key", "key_base64")
        } else {
            ("value", "value_base64")
        };
        let mut map = serializer.serialize_map(Some(1))?;
        match self.0.map(|bytes| (std::str::from_utf8(bytes), bytes)) {
            None => map.serialize_entry(plain, &())?,
            Some((Ok(text), _)) => map.serialize_entry(plain, text)?,
            Some((Err(_), bytes)) => map.serialize_entry(encoded, &base64::encode(bytes))?,
        }
        map.end()
    }
}

impl Format {
    pub(super) fn of(args: &ConsumeArgs) -> Result<Format, Failure> {
        let usage = |text| Failure::new(Exit::Usage, text);
        if args.json {
            return Ok(Format::Json);
        }
        if let Some(format) = &args.format {
            return parse(format).map(Format::Parts).map_err(usage);
        }
        let separator = unescape(&args.separator).map_err(usage)?;
        let wanted = [
            (args.print_partition, Part::Partition),
            (args.print_offset, Part::Offset),
            (args.print_timestamp, Part::Timestamp),
            (args.print_headers, Part::Headers),
            (args.print_key, Part::Key),
        ];
        let mut parts = Vec::new();
        for (_, part) in wanted.into_iter().filter(|(on, _)| *on) {
            parts.push(part);
            parts.push(Part::Text(separator.clone()));
        }
        parts.push(Part::Value);
        parts.push(Part::Text(b"\n".to_vec()));
        Ok(Format::Parts(parts))
    }

    pub(super) fn print(
        &self,
        out: &mut impl Write,
        topic: &str,
        partition: i32,
        record: &Record<'_>,
    ) -> io::Result<()> {
        let parts = match self {
            Format::Parts(parts) => parts,
            Format::Json => return print_json(out, topic, partition, record),
        };
        for part in parts {
            match part {
                Part::Text(bytes) => out.write_all(bytes)?,
                Part::Topic => out.write_all(topic.as_bytes())?,
                Part::Partition => write!(out, "{partition}")?,
                Part::Offset => write!(out, "{}", record.offset)?,
                Part::Timestamp => write!(out, "{}", record.timestamp)?,
                Part::Headers => print_headers(out, record)?,
                Part::Key => out.write_all(record.key.unwrap_or(b"null"))?,
                Part::Value => out.write_all(record.value.unwrap_or(b"null"))?,
            }
        }
        Ok(())
    }
}

fn print_headers(out: &mut impl Write, record: &Record<'_>) -> io::Result<()> {
    for (i, header) in record.headers.iter().enumerate() {
        if i > 0 {
            out.write_all(b",")?;
        }
        out.write_all(header.key)?;
        out.write_all(b"=")?;
        out.write_all(header.value.unwrap_or(b"null"))?;
    }
    Ok(())
}

fn print_json(
    out: &mut impl Write,
    topic: &str,
    partition: i32,
    record: &Record<'_>,
) -> io::Result<()> {
    let line = JsonRecord {
        topic,
        partition,
        offset: record.offset.0,
        timestamp: record.timestamp.0,
        key: JsonBytes(record.key),
        value: JsonBytes(record.value),
        headers: record.headers.iter().map(json_header).collect(),
    };
    serde_json::to_writer(&mut *out, &line)?;
    out.write_all(b"\n")
}

fn json_header(header: Header<'_>) -> JsonHeader<'_> {
    let name = String::from_utf8_lossy(header.key).into_owned();
    JsonHeader {
        name,
        value: JsonBytes(header.value),
    }
}

fn parse(format: &str) -> Result<Vec<Part>, String> {
    let bytes = unescape(format)?;
    let (mut parts, mut text) = (Vec::new(), Vec::new());
    let mut rest = bytes.iter().copied();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            text.push(byte);
            continue;
        }
        let part = match rest.next() {
            Some(b'%') => {
                text.push(b'%');
                continue;
            }
            Some(b't') => Part::Topic,
            Some(b'p') => Part::Partition,
            Some(b'o') => Part::Offset,
            Some(b'T') => Part::Timestamp,
            Some(b'h') => Part::Headers,
            Some(b'k') => Part::Key,
            Some(b'v') => Part::Value,
            Some(other) => {
                return Err(format!("--format knows no %{}", char::from(other)));
            }
            None => return Err("--format ends in a lone %".to_owned()),
        };
        if !text.is_empty() {
            parts.push(Part::Text(std::mem::take(&mut text)));
        }
        parts.push(part);
    }
    if !text.is_empty() {
        parts.push(Part::Text(text));
    }
    Ok(parts)
}

fn unescape(text: &str) -> Result<Vec<u8>, String> {
    let mut out = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        out.push(match rest.next() {
            Some(b'n') => b'\n',
            Some(b't') => b'\t',
            Some(b'0') => 0,
            Some(b'\\') => b'\\',
            Some(other) => return Err(format!("unknown escape \\{}", char::from(other))),
            None => return Err("a lone \\ at the end".to_owned()),
        });
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::{Part, parse};

    #[test]
    fn formats() {
        let parts = parse("%p:%o\\t100%% %v\\n").unwrap();
        let text = |t: &str| Part::Text(t.as_bytes().to_vec());
        let expected = vec![
            Part::Partition,
            text(":"),
            Part::Offset,
            text("\t100% "),
            Part::Value,
            text("\n"),
        ];
        assert_eq!(parts, expected);
        assert!(parse("%x").is_err() && parse("%").is_err() && parse("\\q").is_err());
    }
}
