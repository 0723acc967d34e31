//! `thalweg consume`: prints the records of a topic.

mod format;

mod source;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, StdoutLock, Write};
use std::time::{Duration, Instant};

use thalweg_client::{
    Cluster, ConsumerOptions, Fetched, MissingTopic, OffsetSpec, OnOutOfRange, Position,
};

use crate::args::{ConsumeArgs, ResetChoice};
use crate::exit::{Exit, Failure, connect, named, warn_of_leaderless};
use format::Format;
use source::Source;

const OUTPUT_BYTES: usize = 256 * 1024;

/// Runs the command.
pub(crate) fn run(args: &ConsumeArgs) -> Result<(), Failure> {
    let format = Format::of(args)?;
    let mut cluster = connect(&args.broker)?;
    let (partitions, leaderless) = chosen_partitions(&mut cluster, args)?;
    let options = ConsumerOptions {
        on_out_of_range: on_out_of_range(args),
        ..ConsumerOptions::default()
    };
    let mut source = match &args.group {
        Some(group) => Source::member(cluster, group, args, options)?,
        None => {
            let positions = positions(&mut cluster, args, &partitions)?;
            Source::assigned(cluster, &args.topic, &positions, options)?
        }
    };
    let mut printer = Printer {
        out: io::BufWriter::with_capacity(OUTPUT_BYTES, io::stdout().lock()),
        format,
        left: args.max_messages.unwrap_or(u64::MAX),
        exit_at_end: args.exit_at_end,
        ends: BTreeMap::new(),
        unread: Vec::new(),
        assignment_seen: 0,
        leaderless,
        stuck_since: None,
        patience: Duration::from_secs(args.broker.timeout.into()),
    };
    let outcome = printer.run(&mut source, &args.topic);
    // Whatever happened, the group need not wait for a member that is gone.
    let left = source.leave();
    outcome.and(left)
}

/// Where to go on when the log does not have the wanted offset, or the group has none.
fn on_out_of_range(args: &ConsumeArgs) -> OnOutOfRange {
    match (args.offset_reset, args.offset) {
        (Some(ResetChoice::None), _) | (None, Position::Offset(_)) => OnOutOfRange::Fail,
        (Some(ResetChoice::Latest), _) | (None, Position::Latest) => {
            OnOutOfRange::Reset(Position::Latest)
        }
        (Some(ResetChoice::Earliest), _) | (None, Position::Earliest | Position::Timestamp(_)) => {
            OnOutOfRange::Reset(Position::Earliest)
        }
    }
}

/// Those that the command is to read, and which of them have no leader at the moment, which is said.
fn chosen_partitions(
    cluster: &mut Cluster,
    args: &ConsumeArgs,
) -> Result<(Vec<i32>, BTreeSet<i32>), Failure> {
    let topic = cluster.topic(&args.topic, MissingTopic::Refuse)?;
    let known: Vec<i32> = topic.partitions.iter().map(|p| p.index).collect();
    if let Some(missing) = args.partitions.iter().find(|p| !known.contains(p)) {
        let text = format!("topic {} has no partition {missing}", args.topic);
        return Err(Failure::new(Exit::NotFound, text));
    }
    let chosen = match args.partitions.is_empty() {
        true => known,
        false => args.partitions.clone(),
    };
    let led = with_leader(cluster, &args.topic, &chosen)?;
    let is_led = |p: &&i32| led.contains(p);
    let leaderless: Vec<i32> = chosen.iter().filter(|p| !is_led(p)).copied().collect();
    warn_of_leaderless(&args.topic, &leaderless);
    Ok((chosen, leaderless.into_iter().collect()))
}

/// Those of `partitions` that have a leader at the moment. All when none has one: whoever asks for them
/// waits, and fails in the end.
fn with_leader(
    cluster: &mut Cluster,
    topic: &str,
    partitions: &[i32],
) -> Result<Vec<i32>, Failure> {
    let known = cluster.topic(topic, MissingTopic::Refuse)?;
    let leaderless: Vec<i32> = known.leaderless().collect();
    let is_led = |p: &&i32| !leaderless.contains(p);
    let led: Vec<i32> = partitions.iter().filter(is_led).copied().collect();
    Ok(match led.is_empty() {
        true => partitions.to_vec(),
        false => led,
    })
}

/// Where to begin in each partition. A command that ends at the end asks for nothing beyond it, so that the
/// broker has no occasion to say that an offset is not there.
fn positions(
    cluster: &mut Cluster,
    args: &ConsumeArgs,
    partitions: &[i32],
) -> Result<BTreeMap<i32, Position>, Failure> {
    let mut positions: BTreeMap<i32, Position> =
        partitions.iter().map(|p| (*p, args.offset)).collect();
    let Position::Offset(wanted) = args.offset else {
        return Ok(positions);
    };
    if !args.exit_at_end {
        return Ok(positions);
    }
    let led = with_leader(cluster, &args.topic, partitions)?;
    for (partition, end) in cluster.offsets(&args.topic, &led, OffsetSpec::Latest)? {
        let end = end.offset.unwrap_or(0);
        match on_out_of_range(args) {
            _in_range if wanted <= end => {}
            OnOutOfRange::Reset(position) => {
                positions.insert(partition, position);
            }
            OnOutOfRange::Fail => {
                let text = format!(
                    "offset {wanted} is beyond the end of {}-{partition}, which is {end}; --offset-reset \
                     says where to go on instead",
                    args.topic
                );
                return Err(Failure::new(Exit::Failed, text));
            }
        }
    }
    Ok(positions)
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
    exit_at_end: bool,
    /// With `exit_at_end`: partitions that are not read to their end yet, and where that was when the
    /// command began or was given them.
    ends: BTreeMap<i32, i64>,
    /// With `exit_at_end`: partitions that had no leader to say where they end.
    unread: Vec<i32>,
    /// The [`Source::assignments`] that `ends` belongs to.
    assignment_seen: u64,
    /// Partitions of which it was said last that they have no leader.
    leaderless: BTreeSet<i32>,
    /// With `exit_at_end`: since when nothing is left to read but those.
    stuck_since: Option<Instant>,
    /// How long those are waited for then.
    patience: Duration,
}

impl Printer {
    fn run(&mut self, source: &mut Source, topic: &str) -> Result<(), Failure> {
        self.look_at_ends(source, topic)?;
        self.drop_ended(source, topic);
        while self.left > 0 && !self.is_at_end() && !source.is_interrupted() {
            let answers = source.poll()?;
            self.tell_leaderless(source, topic);
            self.look_at_ends(source, topic)?;
            let (mut done, mut failed) = (Vec::new(), Ok(()));
            for fetched in answers {
                if self.exit_at_end && !self.ends.contains_key(&fetched.partition) {
                    continue; // read to its end before
                }
                let (next, outcome) = self.print(&fetched);
                done.push((fetched.partition, next));
                match outcome {
                    Ok(()) => {}
                    Err(Stop::Enough) => break,
                    Err(Stop::Failed(failure)) => {
                        failed = Err(failure);
                        break;
                    }
                }
            }
            // Only what is out is dealt with.
            self.out.flush()?;
            for (partition, next) in done {
                source.consumed(topic, partition, next);
            }
            failed?;
            self.drop_ended(source, topic);
            self.drop_stuck();
        }
        self.out.flush()?;
        if !self.is_at_end() || self.unread.is_empty() {
            return Ok(());
        }
        let text = format!(
            "not read, because they have no leader: {}; `thalweg log-dirs describe` says why",
            named(topic, &self.unread)
        );
        Err(Failure::new(Exit::Failed, text))
    }

    fn is_at_end(&self) -> bool {
        self.exit_at_end && self.assignment_seen > 0 && self.ends.is_empty()
    }

    /// Finds out where newly assigned partitions end.
    fn look_at_ends(&mut self, source: &mut Source, topic: &str) -> Result<(), Failure> {
        if !self.exit_at_end || self.assignment_seen == source.assignments() {
            return Ok(());
        }
        self.assignment_seen = source.assignments();
        let partitions = source.partitions();
        let led = with_leader(source.cluster(), topic, &partitions)?;
        let found = source.cluster().offsets(topic, &led, OffsetSpec::Latest)?;
        self.unread = partitions;
        self.unread.retain(|p| !led.contains(p));
        let end = |(p, found): (i32, thalweg_client::FoundOffset)| (p, found.offset.unwrap_or(0));
        self.ends = found.into_iter().map(end).collect();
        Ok(())
    }

    /// Partitions that have come to their end are not read any further.
    fn drop_ended(&mut self, source: &mut Source, topic: &str) {
        self.ends.retain(|partition, end| {
            let position = source.position(topic, *partition);
            let has_ended = position.is_none_or(|p| p >= *end);
            if has_ended {
                source.finish(topic, *partition);
            }
            !has_ended
        });
    }

    /// Says which partitions have lost their leader since it was last said, and which have one again.
    fn tell_leaderless(&mut self, source: &Source, topic: &str) {
        let now = source.leaderless();
        if now == self.leaderless {
            return;
        }
        let lost: Vec<i32> = now.difference(&self.leaderless).copied().collect();
        warn_of_leaderless(topic, &lost);
        // Those that another member has by now are not told of.
        let mut found = source.partitions();
        found.retain(|p| self.leaderless.contains(p) && !now.contains(p));
        if !found.is_empty() {
            eprintln!(
                "thalweg: read on, with a leader again: {}",
                named(topic, &found)
            );
        }
        self.leaderless = now;
    }

    /// Without leaders for so long, the rest counts as not read.
    fn drop_stuck(&mut self) {
        let is_stuck =
            !self.ends.is_empty() && self.ends.keys().all(|p| self.leaderless.contains(p));
        if !is_stuck {
            self.stuck_since = None;
            return;
        }
        let since = *self.stuck_since.get_or_insert_with(Instant::now);
        if since.elapsed() >= self.patience {
            self.unread
                .extend(std::mem::take(&mut self.ends).into_keys());
        }
    }

    /// Prints until something keeps it from going on. Returns the offset after what was dealt with.
    fn print(&mut self, fetched: &Fetched) -> (i64, Result<(), Stop>) {
        let end = match self.exit_at_end {
            true => self.ends.get(&fetched.partition).copied().unwrap_or(0),
            false => i64::MAX,
        };
        let (out, format, left) = (&mut self.out, &self.format, &mut self.left);
        let mut next = fetched.from;
        let outcome = fetched.for_each(|record| {
            if *left == 0 {
                return Err(Stop::Enough);
            }
            // Records that came after the command began are not asked for.
            if record.offset.0 < end {
                *left -= 1;
                format.print(out, &fetched.topic, fetched.partition, record)?;
                next = record.offset.0 + 1;
            }
            Ok(())
        });
        if outcome.is_ok() {
            next = fetched.next.min(end).max(next);
        }
        (next, outcome)
    }
}
