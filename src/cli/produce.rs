//! `thalweg produce`: lines from stdin or files become records.
//!
//! A thread reads in large chunks; lines are cut from the chunks without copying, except those that cross
//! a border. When there is nothing more for a moment, what is buffered is sent, so that
//! `tail -f | thalweg produce` delivers each line at once.

mod line;

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use thalweg_client::{
    Acks, Advice, ClientError, Idempotence, MissingTopic, Producer, ProducerOptions, Spread,
};
use thalweg_protocol::records::{Codec, RecordHeader};

use crate::args::{AcksChoice, CodecChoice, PartitionerChoice, ProduceArgs};
use crate::exit::{Exit, Failure, connect_to_produce, warn_of_leaderless};
use crate::progress::Progress;
use line::LineForm;

const CHUNK_BYTES: usize = 1024 * 1024;
/// Chunks read ahead of the producer.
const CHUNKS_MAX: usize = 4;
/// Silence of the input after which buffered records are sent.
const LINGER: Duration = Duration::from_millis(5);

/// Runs the command.
pub(crate) fn run(args: &ProduceArgs) -> Result<(), Failure> {
    let sources = sources(args)?;
    let mut cluster = connect_to_produce(&args.broker)?;
    let topic = cluster.topic(&args.topic, MissingTopic::Create)?;
    if let Some(wanted) = args.partition
        && !topic.partitions.iter().any(|p| p.index == wanted)
    {
        let text = format!("topic {} has no partition {wanted}", args.topic);
        return Err(Failure::new(Exit::NotFound, text));
    }
    if args.partition.is_none() {
        let leaderless: Vec<i32> = topic.leaderless().collect();
        warn_of_leaderless(&args.topic, &leaderless);
    }
    let (sender, pieces) = sync_channel(CHUNKS_MAX);
    thread::spawn(move || read_sources(&sources, &sender));
    let header = |p: &'_ crate::args::Property| (p.key.clone(), p.value.clone());
    let headers: Vec<(String, String)> = args.headers.iter().map(header).collect();
    let mut lines = Lines {
        args,
        form: LineForm::of(args),
        headers: headers
            .iter()
            .map(|(name, value)| (&name[..], Some(value.as_bytes())))
            .collect(),
        producer: Producer::new(cluster, options(args)),
        progress: Progress::new(),
        partial: Vec::new(),
        line_number: 0,
    };
    let outcome = lines.pump(&pieces);
    lines.progress.finish();
    outcome
}

fn options(args: &ProduceArgs) -> ProducerOptions {
    ProducerOptions {
        acks: match args.acks {
            AcksChoice::None => Acks::None,
            AcksChoice::Leader => Acks::Leader,
            AcksChoice::All => Acks::All,
        },
        codec: match args.compression {
            CodecChoice::None => Codec::None,
            CodecChoice::Gzip => Codec::Gzip,
            CodecChoice::Snappy => Codec::Snappy,
            CodecChoice::Lz4 => Codec::Lz4,
            CodecChoice::Zstd => Codec::Zstd,
        },
        spread: match args.partitioner {
            None | Some(PartitionerChoice::Key) => Spread::Key,
            Some(PartitionerChoice::Sticky) => Spread::Sticky,
            Some(PartitionerChoice::RoundRobin) => Spread::RoundRobin,
        },
        idempotence: match args.no_idempotence {
            true => Idempotence::Off,
            false => Idempotence::On,
        },
        batch_bytes: args.batch_bytes as usize,
        ..ProducerOptions::default()
    }
}

/// `None` is stdin. A file that can not be opened is found out before anything is sent.
fn sources(args: &ProduceArgs) -> Result<Vec<Option<PathBuf>>, Failure> {
    if args.files.is_empty() {
        return Ok(vec![None]);
    }
    let mut sources = Vec::new();
    for path in &args.files {
        if path.as_os_str() == "-" {
            sources.push(None);
            continue;
        }
        File::open(path).map_err(|e| unreadable(Some(path), &e))?;
        sources.push(Some(path.clone()));
    }
    Ok(sources)
}

fn unreadable(path: Option<&Path>, error: &io::Error) -> Failure {
    let exit = match error.kind() {
        io::ErrorKind::NotFound => Exit::NotFound,
        _other => Exit::Failed,
    };
    let name = path.map_or("stdin".to_owned(), |path| path.display().to_string());
    Failure::new(exit, format!("cannot read {name}: {error}"))
}

/// What the reading thread passes on.
enum Piece {
    Bytes(Vec<u8>),
    /// A source is through: its last line needs no line end.
    End,
}

type PieceSender = SyncSender<Result<Piece, Failure>>;

fn read_sources(sources: &[Option<PathBuf>], sender: &PieceSender) {
    for source in sources {
        let outcome = match source {
            None => read_pieces(&mut io::stdin().lock(), sender),
            Some(path) => File::open(path).and_then(|mut file| read_pieces(&mut file, sender)),
        };
        let end = match outcome {
            Ok(()) => Ok(Piece::End),
            Err(error) => Err(unreadable(source.as_deref(), &error)),
        };
        let failed = end.is_err();
        if sender.send(end).is_err() || failed {
            return;
        }
    }
}

/// Ends early when nobody takes the pieces any more.
fn read_pieces(from: &mut impl Read, sender: &PieceSender) -> io::Result<()> {
    loop {
        let mut chunk = vec![0; CHUNK_BYTES];
        let n = match from.read(&mut chunk) {
            Ok(0) => return Ok(()),
            Ok(n) => n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(e),
        };
        chunk.truncate(n);
        if sender.send(Ok(Piece::Bytes(chunk))).is_err() {
            return Ok(());
        }
    }
}

struct Lines<'a> {
    args: &'a ProduceArgs,
    form: LineForm<'a>,
    /// Of every record.
    headers: Vec<RecordHeader<'a>>,
    producer: Producer,
    progress: Progress,
    /// Beginning of a line whose end has not been read yet.
    partial: Vec<u8>,
    line_number: u64,
}

impl Lines<'_> {
    fn pump(&mut self, pieces: &Receiver<Result<Piece, Failure>>) -> Result<(), Failure> {
        loop {
            let piece = match pieces.recv_timeout(LINGER) {
                Ok(piece) => piece,
                Err(RecvTimeoutError::Timeout) => {
                    self.flush()?;
                    // Nothing is buffered now: wait as long as it takes.
                    match pieces.recv() {
                        Ok(piece) => piece,
                        Err(_) => break,
                    }
                }
                Err(RecvTimeoutError::Disconnected) => break,
            };
            match piece {
                Ok(Piece::Bytes(chunk)) => self.take_chunk(&chunk)?,
                Ok(Piece::End) => self.end_line()?,
                Err(failure) => {
                    // What came before it is still to be delivered.
                    self.flush()?;
                    return Err(failure);
                }
            }
            self.confirm();
            self.progress.show();
        }
        self.flush()
    }

    fn end_line(&mut self) -> Result<(), Failure> {
        let last = std::mem::take(&mut self.partial);
        match last.is_empty() {
            true => Ok(()),
            false => self.send(&last),
        }
    }

    fn take_chunk(&mut self, chunk: &[u8]) -> Result<(), Failure> {
        for piece in chunk.split_inclusive(|byte| *byte == b'\n') {
            match (piece.strip_suffix(b"\n"), self.partial.is_empty()) {
                (Some(line), true) => self.send(line)?,
                (Some(rest), false) => {
                    let mut line = std::mem::take(&mut self.partial);
                    line.extend_from_slice(rest);
                    self.send(&line)?;
                    line.clear();
                    self.partial = line;
                }
                (None, _) => self.partial.extend_from_slice(piece),
            }
        }
        Ok(())
    }

    fn send(&mut self, line: &[u8]) -> Result<(), Failure> {
        self.line_number += 1;
        let (producer, topic) = (&mut self.producer, &self.args.topic);
        let partition = self.args.partition;
        let outcome = self.form.parse(line, &self.headers, partition, |record| {
            producer.send(topic, record)
        });
        match outcome {
            Ok(sent) => sent.map_err(|error| self.with_lines(error)),
            Err(reason) => {
                // What came before it is still to be delivered.
                self.flush()?;
                let text = format!("line {} of the input: {reason}", self.line_number);
                Err(Failure::new(Exit::Failed, text))
            }
        }
    }

    fn flush(&mut self) -> Result<(), Failure> {
        let flushed = self.producer.flush();
        flushed.map_err(|error| self.with_lines(error))?;
        self.confirm();
        self.progress.show();
        Ok(())
    }

    /// Says which lines were not confirmed: each line is one record.
    fn with_lines(&self, error: ClientError) -> Failure {
        let may_help = error.advice() != Advice::GiveUp;
        let mut failure = Failure::from(error);
        if may_help {
            let waited = format!("; tried for {} s (--timeout)", self.args.broker.timeout);
            failure.message.push_str(&waited);
        }
        if let Some(lines) = self.producer.refused() {
            let (first, last) = lines.into_inner();
            let named = match first == last {
                true => format!("line {first}"),
                false => format!("among lines {first} to {last}"),
            };
            failure.message = format!("{named} of the input: {}", failure.message);
        }
        failure
    }

    fn confirm(&mut self) {
        for delivery in self.producer.take_deliveries() {
            self.progress
                .add(delivery.records.into(), delivery.bytes as u64);
        }
    }
}
