//! What one line of input says.

use serde::{Deserialize, Deserializer};
use serde_json::error::Category;
use thalweg_client::Outgoing;
use thalweg_protocol::records::RecordHeader;
use thalweg_types::TimestampMs;

use crate::args::ProduceArgs;
use crate::base64;

/// How lines become records.
pub(super) enum LineForm<'a> {
    Plain {
        separator: Option<&'a [u8]>,
        null: Option<&'a [u8]>,
    },
    Json {
        /// Whether the record's own partition counts.
        keeps_partition: bool,
    },
}

/// What `consume --json` prints. A misspelt name is an error: it would be a tombstone otherwise.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct JsonLine {
    #[serde(default)]
    key: Option<String>,
    key_base64: Option<String>,
    #[serde(default, deserialize_with = "present")]
    value: Option<Option<String>>,
    value_base64: Option<String>,
    #[serde(default)]
    headers: Vec<JsonHeader>,
    timestamp: Option<i64>,
    partition: Option<i32>,
    #[serde(rename = "topic")]
    _topic: Option<String>,
    #[serde(rename = "offset")]
    _offset: Option<i64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct JsonHeader {
    name: String,
    value: Option<String>,
    value_base64: Option<String>,
}

/// What is wrong with a line, without the parser's own words for places: a record is one line.
fn no_record(error: &serde_json::Error) -> String {
    let what = match error.classify() {
        Category::Data => {
            let text = error.to_string();
            let end = text.rfind(" at line ").unwrap_or(text.len());
            return format!(
                "not a record as `consume --json` prints it: {}",
                &text[..end]
            );
        }
        Category::Eof => "it ends too early",
        Category::Io | Category::Syntax => "something else stands there",
    };
    format!("no JSON object: {what} (character {})", error.column())
}

/// Tells `null` from nothing.
fn present<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Option<String>>, D::Error> {
    Option::deserialize(from).map(Some)
}

impl<'a> LineForm<'a> {
    pub(super) fn of(args: &'a ProduceArgs) -> LineForm<'a> {
        match args.json {
            true => LineForm::Json {
                keeps_partition: args.partitioner.is_none(),
            },
            false => LineForm::Plain {
                separator: args.key_separator.as_deref().map(str::as_bytes),
                null: args.null.as_deref().map(str::as_bytes),
            },
        }
    }

    /// Calls `send` with the record of `line`. `fixed` goes before the line's own headers;
    /// `partition` beats the line's own.
    ///
    /// # Errors
    /// What is wrong with the line.
    pub(super) fn parse<T>(
        &self,
        line: &[u8],
        fixed: &[RecordHeader<'_>],
        partition: Option<i32>,
        send: impl FnOnce(&Outgoing<'_>) -> T,
    ) -> Result<T, String> {
        match self {
            LineForm::Plain { separator, null } => {
                let (key, value) = match separator {
                    None => (None, line),
                    Some(separator) => {
                        let at = find(line, separator).ok_or_else(|| {
                            let text = String::from_utf8_lossy(separator);
                            format!("no key separator {text:?}")
                        })?;
                        (Some(&line[..at]), &line[at + separator.len()..])
                    }
                };
                let unless_null = |bytes: &&[u8]| null.is_none_or(|null| null != *bytes);
                Ok(send(&Outgoing {
                    partition,
                    key: key.filter(unless_null),
                    value: Some(value).filter(unless_null),
                    headers: fixed,
                    timestamp: None,
                }))
            }
            LineForm::Json { keeps_partition } => {
                let record: JsonLine = serde_json::from_slice(line).map_err(|e| no_record(&e))?;
                let key = bytes_of("key", record.key, record.key_base64)?;
                let value = match (record.value, record.value_base64) {
                    (None, None) => {
                        return Err(
                            "neither value nor value_base64; null is a tombstone".to_owned()
                        );
                    }
                    (text, encoded) => bytes_of("value", text.flatten(), encoded)?,
                };
                let mut own = Vec::new();
                for header in record.headers {
                    let value = bytes_of("a header's value", header.value, header.value_base64)?;
                    own.push((header.name, value));
                }
                let own = own
                    .iter()
                    .map(|(name, value)| (&name[..], value.as_deref()));
                let headers: Vec<RecordHeader<'_>> = fixed.iter().copied().chain(own).collect();
                Ok(send(&Outgoing {
                    partition: partition.or(record.partition.filter(|_| *keeps_partition)),
                    key: key.as_deref(),
                    value: value.as_deref(),
                    headers: &headers,
                    timestamp: record.timestamp.map(TimestampMs),
                }))
            }
        }
    }
}

fn bytes_of(
    what: &str,
    text: Option<String>,
    encoded: Option<String>,
) -> Result<Option<Vec<u8>>, String> {
    match (text, encoded) {
        (Some(_), Some(_)) => Err(format!("{what} is given as text and in base64")),
        (text, None) => Ok(text.map(String::into_bytes)),
        (None, Some(encoded)) => match base64::decode(&encoded) {
            Some(bytes) => Ok(Some(bytes)),
            None => Err(format!("{what} is not base64")),
        },
    }
}

/// Position of the first `needle` in `hay`; an empty one is nowhere.
fn find(hay: &[u8], needle: &[u8]) -> Option<usize> {
    if needle.is_empty() {
        return None;
    }
    hay.windows(needle.len()).position(|w| w == needle)
}

#[cfg(test)]
mod tests {
    use super::{LineForm, find};

    #[test]
    fn separators() {
        assert_eq!(find(b"key:value:x", b":"), Some(3));
        assert_eq!(find(b"a=>b", b"=>"), Some(1));
        assert_eq!(find(b"ab", b":"), None);
        assert_eq!(find(b"", b":"), None);
        assert_eq!(find(b"ab", b""), None);
    }

    fn parts(form: &LineForm<'_>, line: &str) -> Result<String, String> {
        form.parse(line.as_bytes(), &[("fixed", None)], None, |record| {
            let text = |bytes: Option<&[u8]>| {
                bytes.map_or("-".to_owned(), |b| String::from_utf8_lossy(b).into_owned())
            };
            let names: Vec<&str> = record.headers.iter().map(|(name, _)| *name).collect();
            let (partition, timestamp) = (record.partition, record.timestamp.map(|t| t.0));
            format!(
                "{} {} {names:?} {partition:?} {timestamp:?}",
                text(record.key),
                text(record.value)
            )
        })
    }

    #[test]
    fn plain_lines() {
        let form = LineForm::Plain {
            separator: Some(b":"),
            null: Some(b"NULL"),
        };
        let told = |line| parts(&form, line);
        assert_eq!(told("k:v:w").unwrap(), "k v:w [\"fixed\"] None None");
        assert_eq!(told("NULL:NULL").unwrap(), "- - [\"fixed\"] None None");
        assert_eq!(told(":").unwrap(), "  [\"fixed\"] None None");
        assert_eq!(told("none").unwrap_err(), "no key separator \":\"");
    }

    #[test]
    fn json_lines() {
        let form = LineForm::Json {
            keeps_partition: true,
        };
        let line = r#"{"topic":"t","partition":2,"offset":9,"timestamp":5,"key_base64":"aw==",
                       "value":"v","headers":[{"name":"h","value":null}]}"#;
        let told = parts(&form, line).unwrap();
        assert_eq!(told, "k v [\"fixed\", \"h\"] Some(2) Some(5)");
        let tombstone = parts(&form, r#"{"value":null}"#).unwrap();
        assert_eq!(tombstone, "- - [\"fixed\"] None None");
        let anywhere = LineForm::Json {
            keeps_partition: false,
        };
        let told = parts(&anywhere, r#"{"partition":2,"value":"v"}"#).unwrap();
        assert_eq!(told, "- v [\"fixed\"] None None");
        for bad in [
            "",
            "plain",
            "{}",
            r#"{"vaule":"v"}"#,
            r#"{"value":"v","value_base64":"dg=="}"#,
            r#"{"value_base64":"?"}"#,
            r#"{"value":1}"#,
        ] {
            let told = parts(&form, bad).unwrap_err();
            assert!(!told.contains("at line"), "{bad}: {told}");
        }
        let told = |line| parts(&form, line).unwrap_err();
        assert_eq!(
            told("plain"),
            "no JSON object: something else stands there (character 1)"
        );
        assert_eq!(
            told("{\"value\""),
            "no JSON object: it ends too early (character 8)"
        );
        assert!(told("{\"vaule\":\"v\"}").contains("unknown field `vaule`"));
    }
}
