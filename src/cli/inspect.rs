//! `thalweg inspect`: shows and verifies log files offline.
//!
//! The records of the metadata log are always shown, decoded.

use std::fmt::Write as _;
use std::io::{self, BufWriter, StdoutLock, Write};
use std::ops::ControlFlow;
use std::path::Path;

use anyhow::anyhow;
use serde_json::{Value, json};
use thalweg_metadata::Record as MetadataRecord;
use thalweg_protocol::records::{BatchHeader, Record};
use thalweg_reactor::{EngineChoice, Runtime, RuntimeOptions};
use thalweg_storage::inspect::{InspectOptions, Item, Kind, Severity, Summary, inspect};

use crate::args::InspectArgs;
use crate::exit::{Exit, Failure};
use crate::output::count;
use crate::repair;

/// Directory of the metadata log, as Kafka names it.
const METADATA_DIR: &str = "__cluster_metadata-0";
/// Bytes of a key or value that are shown.
const SHOWN_BYTES_MAX: usize = 120;

/// Runs the command.
pub(crate) fn run(args: &InspectArgs) -> Result<(), Failure> {
    let runtime = Runtime::new(RuntimeOptions {
        name: "inspect".to_owned(),
        engine: EngineChoice::Plain,
        ..RuntimeOptions::default()
    })
    .map_err(|e| Failure::new(Exit::Failed, format!("cannot start a runtime: {e}")))?;
    let out = BufWriter::new(io::stdout().lock());
    let mut printer = Printer {
        args,
        out,
        in_metadata: false,
        failure: None,
    };
    let mut total = Summary::default();
    let mut is_to_repair = false;
    let metadata = args
        .paths
        .iter()
        .find(|path| path.join(METADATA_DIR).is_dir());
    for path in &args.paths {
        let has_metadata = is_metadata(path) || path.join(METADATA_DIR).is_dir();
        let options = InspectOptions {
            verify: args.verify,
            records: args.records || has_metadata,
        };
        let mut visit = |item: Item<'_>| printer.visit(item);
        let outcome = runtime.block_on(inspect(path, options, &mut visit));
        if let Some(error) = printer.failure.take() {
            return Err(error.into());
        }
        let summary = outcome.map_err(|e| unreadable(&e))?;
        add(&mut total, &summary);
        if path.join(repair::META_PROPERTIES).is_file() {
            let preview = match metadata {
                Some(metadata) => runtime.block_on(repair::preview(path, metadata)),
                None => Err(no_metadata(path)),
            };
            match preview {
                Ok(lines) => {
                    is_to_repair |= !lines.is_empty();
                    printer.repairs(&lines)?;
                }
                Err(error) => {
                    eprintln!("thalweg: what a repair would do was not looked at: {error:#}")
                }
            }
        }
    }
    printer.summary(&total)?;
    printer.out.flush()?;
    match total.damages {
        0 if is_to_repair => Err(Failure::new(
            Exit::Failed,
            "damage found: see thalweg repair",
        )),
        0 => Ok(()),
        n => {
            let text = format!("{} found", count(n, "damaged range"));
            Err(Failure::new(Exit::Failed, text))
        }
    }
}

fn unreadable(error: &io::Error) -> Failure {
    let exit = match error.kind() {
        io::ErrorKind::NotFound => Exit::NotFound,
        _ => Exit::Failed,
    };
    Failure::new(exit, format!("cannot inspect: {error}"))
}

/// Only one of several log directories has it.
fn no_metadata(path: &Path) -> anyhow::Error {
    anyhow!(
        "{} has no metadata log ({METADATA_DIR}), which says what is to be there; where log.dirs names several \
         directories, name them all together: thalweg inspect DIR DIR",
        path.display()
    )
}

fn is_metadata(path: &Path) -> bool {
    path.components().any(|c| c.as_os_str() == METADATA_DIR)
}

fn add(total: &mut Summary, part: &Summary) {
    total.files += part.files;
    total.batches += part.batches;
    total.records += part.records;
    total.batch_bytes += part.batch_bytes;
    total.entries += part.entries;
    total.damages += part.damages;
}

struct Printer<'a> {
    args: &'a InspectArgs,
    out: BufWriter<StdoutLock<'static>>,
    /// The current file belongs to the metadata log.
    in_metadata: bool,
    failure: Option<io::Error>,
}

impl Printer<'_> {
    fn visit(&mut self, item: Item<'_>) -> ControlFlow<()> {
        if let Item::File { path, .. } = item {
            self.in_metadata = is_metadata(path);
        }
        if matches!(item, Item::Record { .. }) && !self.in_metadata && !self.args.records {
            return ControlFlow::Continue(());
        }
        let outcome = if self.args.json {
            let line = self.as_json(item);
            writeln!(self.out, "{line}")
        } else {
            let line = self.as_text(item);
            writeln!(self.out, "{line}")
        };
        match outcome {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                self.failure = Some(error);
                ControlFlow::Break(())
            }
        }
    }

    fn as_text(&self, item: Item<'_>) -> String {
        match item {
            Item::File { path, kind, bytes } => {
                format!("{}  ({}, {bytes} bytes)", path.display(), kind_name(kind))
            }
            Item::Batch { position, header } => batch_text(position, header),
            Item::Record { header, record } => {
                format!("    {}", self.record_text(header, record))
            }
            Item::IndexEntry { offset, position } => format!("  offset {offset} at {position}"),
            Item::TimeIndexEntry { timestamp, offset } => {
                format!("  timestamp {timestamp} offset {offset}")
            }
            Item::CheckpointEntry { name, offset } => {
                format!("  {}-{} {offset}", name.topic, name.partition)
            }
            Item::EpochEntry { epoch, start } => format!("  epoch {epoch} from offset {start}"),
            Item::Property { key, value } => format!("  {key}={value}"),
            Item::Finding(finding) => {
                let place = finding
                    .position
                    .map_or_else(String::new, |p| format!(" at {p}"));
                format!(
                    "  {}{place}: {}",
                    severity_name(finding.severity),
                    finding.text
                )
            }
        }
    }

    fn record_text(&self, header: &BatchHeader, record: &Record<'_>) -> String {
        let mut text = format!("record {} at {}", record.offset, record.timestamp);
        if self.in_metadata && !header.is_control() {
            let decoded = record.value.map(MetadataRecord::decode);
            let _ = match decoded {
                Some(Ok(decoded)) => write!(text, " {decoded:?}"),
                Some(Err(error)) => write!(text, " can not be decoded: {error}"),
                None => write!(text, " without a value"),
            };
            return text;
        }
        let _ = write!(
            text,
            " key {} value {}",
            shown(record.key),
            shown(record.value)
        );
        for h in record.headers.iter() {
            let _ = write!(
                text,
                " {}={}",
                String::from_utf8_lossy(h.key),
                shown(h.value)
            );
        }
        text
    }

    fn as_json(&self, item: Item<'_>) -> Value {
        match item {
            Item::File { path, kind, bytes } => json!({
                "type": "file", "path": path.to_string_lossy(), "kind": kind_name(kind),
                "bytes": bytes,
            }),
            Item::Batch { position, header } => batch_json(position, header),
            Item::Record { header, record } => self.record_json(header, record),
            Item::IndexEntry { offset, position } => {
                json!({"type": "index_entry", "offset": offset.0, "position": position})
            }
            Item::TimeIndexEntry { timestamp, offset } => {
                json!({"type": "time_index_entry", "timestamp": timestamp.0, "offset": offset.0})
            }
            Item::CheckpointEntry { name, offset } => json!({
                "type": "checkpoint_entry", "topic": name.topic, "partition": name.partition.0,
                "offset": offset.0,
            }),
            Item::EpochEntry { epoch, start } => {
                json!({"type": "epoch_entry", "epoch": epoch.0, "start_offset": start.0})
            }
            Item::Property { key, value } => {
                json!({"type": "property", "key": key, "value": value})
            }
            Item::Finding(finding) => json!({
                "type": "finding", "severity": severity_name(finding.severity),
                "path": finding.path.to_string_lossy(), "position": finding.position,
                "text": finding.text,
            }),
        }
    }

    fn record_json(&self, header: &BatchHeader, record: &Record<'_>) -> Value {
        let text = |bytes: Option<&[u8]>| bytes.map(|b| String::from_utf8_lossy(b).into_owned());
        let mut line = json!({
            "type": "record", "offset": record.offset.0, "timestamp": record.timestamp.0,
        });
        if self.in_metadata && !header.is_control() {
            line["metadata"] = match record.value.map(MetadataRecord::decode) {
                Some(Ok(decoded)) => {
                    json!({"name": decoded.name(), "text": format!("{decoded:?}")})
                }
                Some(Err(error)) => json!({"error": error.to_string()}),
                None => Value::Null,
            };
            return line;
        }
        line["key"] = json!(text(record.key));
        line["value"] = json!(text(record.value));
        line
    }

    fn repairs(&mut self, lines: &[String]) -> io::Result<()> {
        for line in lines {
            match self.args.json {
                true => writeln!(self.out, "{}", json!({"type": "repair", "text": line}))?,
                false => writeln!(self.out, "{line}")?,
            }
        }
        Ok(())
    }

    fn summary(&mut self, s: &Summary) -> io::Result<()> {
        if self.args.json {
            let line = json!({
                "type": "summary", "files": s.files, "batches": s.batches, "records": s.records,
                "batch_bytes": s.batch_bytes, "entries": s.entries, "damages": s.damages,
            });
            return writeln!(self.out, "{line}");
        }
        writeln!(
            self.out,
            "{} files, {} batches, {} records, {} bytes of batches, {} entries, {}{}",
            s.files,
            s.batches,
            s.records,
            s.batch_bytes,
            s.entries,
            count(s.damages, "damaged range"),
            if self.args.verify {
                ""
            } else {
                " (checksums and indexes not checked: --verify)"
            }
        )
    }
}

fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Log => "log",
        Kind::OffsetIndex => "offset index",
        Kind::TimeIndex => "time index",
        Kind::Checkpoint => "checkpoint",
        Kind::LeaderEpochs => "leader epochs",
        Kind::PartitionMetadata => "partition metadata",
        Kind::MetaProperties => "meta properties",
        Kind::Quarantine => "damaged ranges",
        Kind::CleanMarker => "clean marker",
        Kind::Marks => "marks",
        Kind::PageCache => "what a kill leaves whole",
        Kind::TxnIndex => "transaction index",
        Kind::Snapshot => "producer snapshot",
        Kind::NextSegment => "next segment",
        Kind::Opaque => "not looked into",
    }
}

fn severity_name(severity: Severity) -> &'static str {
    match severity {
        Severity::Note => "note",
        Severity::Damage => "damage",
    }
}

fn codec_name(header: &BatchHeader) -> &'static str {
    header.codec().map_or("unknown", |codec| codec.name())
}

fn batch_text(position: u64, header: &BatchHeader) -> String {
    let mut text = format!(
        "  batch at {position} offsets {}-{} records {} bytes {} codec {} epoch {} timestamps {}-{}",
        header.base_offset,
        header.last_offset(),
        header.record_count,
        header.total_bytes(),
        codec_name(header),
        header.partition_leader_epoch,
        header.base_timestamp,
        header.max_timestamp
    );
    if let Some(p) = header.producer() {
        let _ = write!(
            text,
            " producer {} epoch {} sequence {}",
            p.id, p.epoch, p.base_sequence
        );
    }
    if header.is_transactional() {
        text.push_str(" transactional");
    }
    if header.is_control() {
        text.push_str(" control");
    }
    text
}

fn batch_json(position: u64, header: &BatchHeader) -> Value {
    json!({
        "type": "batch", "position": position, "base_offset": header.base_offset.0,
        "last_offset": header.last_offset().0, "records": header.record_count,
        "bytes": header.total_bytes(), "codec": codec_name(header),
        "leader_epoch": header.partition_leader_epoch.0,
        "base_timestamp": header.base_timestamp.0, "max_timestamp": header.max_timestamp.0,
        "producer_id": header.producer_id.0, "producer_epoch": header.producer_epoch.0,
        "base_sequence": header.base_sequence, "transactional": header.is_transactional(),
        "control": header.is_control(), "crc": header.crc,
    })
}

/// Bytes for people: text as it is, other bytes escaped, long ones cut.
fn shown(bytes: Option<&[u8]>) -> String {
    let Some(bytes) = bytes else {
        return "null".to_owned();
    };
    let cut = &bytes[..bytes.len().min(SHOWN_BYTES_MAX)];
    let dots = if cut.len() < bytes.len() { "..." } else { "" };
    format!("\"{}\"{dots}", cut.escape_ascii())
}
