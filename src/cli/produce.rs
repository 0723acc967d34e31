//! `thalweg produce`: lines from stdin become records.
//!
//! A thread reads stdin in large chunks; lines are cut from the chunks without copying, except those
//! that cross a border. When stdin has nothing more for a moment, what is buffered is sent, so that
//! `tail -f | thalweg produce` delivers each line at once.

use std::io::{self, Read};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use thalweg_client::{Acks, MissingTopic, Outgoing, Producer, ProducerOptions};
use thalweg_protocol::records::Codec;

use crate::args::{AcksChoice, CodecChoice, ProduceArgs};
use crate::exit::{Exit, Failure, connect};
use crate::progress::Progress;

const CHUNK_BYTES: usize = 1024 * 1024;
/// Chunks read ahead of the producer.
const CHUNKS_MAX: usize = 4;
/// Silence on stdin after which buffered records are sent.
const LINGER: Duration = Duration::from_millis(5);

/// Runs the command.
pub(crate) fn run(args: &ProduceArgs) -> Result<(), Failure> {
    let mut cluster = connect(&args.broker)?;
    let topic = cluster.topic(&args.topic, MissingTopic::Create)?;
    if let Some(wanted) = args.partition
        && !topic.partitions.iter().any(|p| p.index == wanted)
    {
        let text = format!("topic {} has no partition {wanted}", args.topic);
        return Err(Failure::new(Exit::NotFound, text));
    }
    let options = ProducerOptions {
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
        batch_bytes: args.batch_bytes as usize,
        ..ProducerOptions::default()
    };
    let (sender, chunks) = sync_channel(CHUNKS_MAX);
    thread::spawn(move || read_chunks(&sender));
    let mut lines = Lines {
        args,
        producer: Producer::new(cluster, options),
        progress: Progress::new(),
        partial: Vec::new(),
        line_number: 0,
    };
    let outcome = lines.pump(&chunks);
    lines.progress.finish();
    outcome
}

fn read_chunks(sender: &SyncSender<io::Result<Vec<u8>>>) {
    let mut stdin = io::stdin().lock();
    loop {
        let mut chunk = vec![0; CHUNK_BYTES];
        let outcome = match stdin.read(&mut chunk) {
            Ok(0) => return,
            Ok(n) => {
                chunk.truncate(n);
                Ok(chunk)
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => Err(e),
        };
        let failed = outcome.is_err();
        if sender.send(outcome).is_err() || failed {
            return;
        }
    }
}

struct Lines<'a> {
    args: &'a ProduceArgs,
    producer: Producer,
    progress: Progress,
    /// Beginning of a line whose end has not been read yet.
    partial: Vec<u8>,
    line_number: u64,
}

impl Lines<'_> {
    fn pump(&mut self, chunks: &Receiver<io::Result<Vec<u8>>>) -> Result<(), Failure> {
        loop {
            match chunks.recv_timeout(LINGER) {
                Ok(chunk) => {
                    let chunk = chunk.map_err(|e| {
                        Failure::new(Exit::Failed, format!("cannot read stdin: {e}"))
                    })?;
                    self.take_chunk(&chunk)?;
                }
                Err(RecvTimeoutError::Timeout) => {
                    self.flush()?;
                    // Nothing is buffered now: wait as long as it takes.
                    match chunks.recv() {
                        Ok(Ok(chunk)) => self.take_chunk(&chunk)?,
                        Ok(Err(e)) => {
                            let text = format!("cannot read stdin: {e}");
                            return Err(Failure::new(Exit::Failed, text));
                        }
                        Err(_) => break,
                    }
                }
                Err(RecvTimeoutError::Disconnected) => break,
            }
            self.confirm();
            self.progress.show();
        }
        if !self.partial.is_empty() {
            let last = std::mem::take(&mut self.partial);
            self.send(&last)?;
        }
        self.flush()
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
        let (key, value) = match &self.args.key_separator {
            None => (None, line),
            Some(separator) => match find(line, separator.as_bytes()) {
                Some(at) => (Some(&line[..at]), &line[at + separator.len()..]),
                None => {
                    let number = self.line_number;
                    let text = format!("line {number} has no key separator {separator:?}");
                    // What came before it is still to be delivered.
                    self.flush()?;
                    return Err(Failure::new(Exit::Failed, text));
                }
            },
        };
        let record = Outgoing {
            partition: self.args.partition,
            key,
            value: Some(value),
            ..Outgoing::default()
        };
        Ok(self.producer.send(&self.args.topic, &record)?)
    }

    fn flush(&mut self) -> Result<(), Failure> {
        self.producer.flush()?;
        self.confirm();
        self.progress.show();
        Ok(())
    }

    fn confirm(&mut self) {
        for delivery in self.producer.take_deliveries() {
            self.progress
                .add(delivery.records.into(), delivery.bytes as u64);
        }
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
    use super::find;

    #[test]
    fn separators() {
        assert_eq!(find(b"key:value:x", b":"), Some(3));
        assert_eq!(find(b"a=>b", b"=>"), Some(1));
        assert_eq!(find(b"ab", b":"), None);
        assert_eq!(find(b"", b":"), None);
        assert_eq!(find(b"ab", b""), None);
    }
}
