//! `thalweg consume`: prints the records of a topic.

mod format;

use std::collections::BTreeMap;
use std::io::{self, StdoutLock, Write};

use thalweg_client::{
    Cluster, Consumer, ConsumerOptions, Fetched, MissingTopic, OffsetSpec, OnOutOfRange, Position,
};

use crate::args::ConsumeArgs;
use crate::exit::{Exit, Failure, connect};
use format::Format;

const OUTPUT_BYTES: usize = 256 * 1024;

/// Runs the command.
pub(crate) fn run(args: &ConsumeArgs) -> Result<(), Failure> {
    let format = Format::of(args)?;
    let mut cluster = connect(&args.broker)?;
    let partitions = chosen_partitions(&mut cluster, args)?;
    let ends = match args.exit_at_end {
        true => Some(ends_of(&mut cluster, &args.topic, &partitions)?),
        false => None,
    };
    let reset = match args.from {
        Position::Latest => Position::Latest,
        Position::Earliest | Position::Offset(_) | Position::Timestamp(_) => Position::Earliest,
    };
    let on_out_of_range = match args.from {
        Position::Offset(_) => OnOutOfRange::Fail,
        Position::Earliest | Position::Latest | Position::Timestamp(_) => {
            OnOutOfRange::Reset(reset)
        }
    };
    let options = ConsumerOptions {
        on_out_of_range,
        ..ConsumerOptions::default()
    };
    let mut consumer = Consumer::new(cluster, options);
    for partition in &partitions {
        consumer.assign(&args.topic, *partition, args.from)?;
    }
    let out = io::BufWriter::with_capacity(OUTPUT_BYTES, io::stdout().lock());
    let left = args.max_messages.unwrap_or(u64::MAX);
    let mut printer = Printer {
        out,
        format,
        left,
        ends,
    };
    printer.run(&mut consumer, &args.topic, &partitions)
}

fn chosen_partitions(cluster: &mut Cluster, args: &ConsumeArgs) -> Result<Vec<i32>, Failure> {
    let topic = cluster.topic(&args.topic, MissingTopic::Refuse)?;
    let known: Vec<i32> = topic.partitions.iter().map(|p| p.index).collect();
    if let Some(missing) = args.partitions.iter().find(|p| !known.contains(p)) {
        let text = format!("topic {} has no partition {missing}", args.topic);
        return Err(Failure::new(Exit::NotFound, text));
    }
    Ok(if args.partitions.is_empty() {
        known
    } else {
        args.partitions.clone()
    })
}

fn ends_of(
    cluster: &mut Cluster,
    topic: &str,
    partitions: &[i32],
) -> Result<BTreeMap<i32, i64>, Failure> {
    let found = cluster.offsets(topic, partitions, OffsetSpec::Latest)?;
    Ok(found
        .into_iter()
        .map(|(p, f)| (p, f.offset.unwrap_or(0)))
        .collect())
}

/// Why printing stopped inside an answer.
enum Stop {
    Enough,
    Failed(Failure),
}

impl<E: Into<Failure>> From<E> for Stop {
    fn from(error: E) -> Self {
        Stop::Failed(error.into())
    }
}

struct Printer {
    out: io::BufWriter<StdoutLock<'static>>,
    format: Format,
    /// Records still to print.
    left: u64,
    /// Where each partition ended at the start, with `--exit-at-end`.
    ends: Option<BTreeMap<i32, i64>>,
}

impl Printer {
    fn run(
        &mut self,
        consumer: &mut Consumer,
        topic: &str,
        partitions: &[i32],
    ) -> Result<(), Failure> {
        self.drop_ended(consumer, topic, partitions);
        while self.left > 0 && !self.at_end() {
            for fetched in consumer.poll()? {
                match self.print(&fetched) {
                    Ok(()) => {}
                    Err(Stop::Enough) => return Ok(self.out.flush()?),
                    Err(Stop::Failed(failure)) => return Err(failure),
                }
            }
            self.out.flush()?;
            self.drop_ended(consumer, topic, partitions);
        }
        Ok(self.out.flush()?)
    }

    fn at_end(&self) -> bool {
        self.ends.as_ref().is_some_and(BTreeMap::is_empty)
    }

    /// Partitions that have come to their end are not read any further.
    fn drop_ended(&mut self, consumer: &mut Consumer, topic: &str, partitions: &[i32]) {
        let Some(ends) = self.ends.as_mut() else {
            return;
        };
        for partition in partitions {
            let position = consumer.position(topic, *partition);
            let ended = ends
                .get(partition)
                .is_some_and(|end| position.is_none_or(|p| p >= *end));
            if ended {
                ends.remove(partition);
                consumer.unassign(topic, *partition);
            }
        }
    }

    fn print(&mut self, fetched: &Fetched) -> Result<(), Stop> {
        let end = match &self.ends {
            Some(ends) => ends.get(&fetched.partition).copied().unwrap_or(0),
            None => i64::MAX,
        };
        let (out, format, left) = (&mut self.out, &self.format, &mut self.left);
        fetched.for_each(|record| {
            if *left == 0 {
                return Err(Stop::Enough);
            }
            // Records that came after the command began are not asked for.
            if record.offset.0 < end {
                *left -= 1;
                format.print(out, &fetched.topic, fetched.partition, record)?;
            }
            Ok(())
        })
    }
}
