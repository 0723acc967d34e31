//! Runs the text scenarios in `testdata`: each line without indentation is an event, the indented
//! lines below it are what must come of it. `UPDATE_SCENARIOS=1` writes what comes instead; read
//! the difference before keeping it.

use std::collections::HashMap;
use std::fmt::{Display, Write as _};
use std::path::Path;

use thalweg_protocol::records::{BatchSummary, Codec, ProducerSequence, TimestampType};
use thalweg_replica::{
    Accepted, AckPoint, Acks, Effect, EpochCache, EpochEntry, FetchAsk, Isolation, Leadership,
    Listed, Parking, Producers, Refused, Replica, ReplicaStart, Sought, StopReason, Token,
};
use thalweg_types::{BrokerId, LeaderEpoch, Offset, ProducerEpoch, ProducerId, TimestampMs};

/// `command word key=value ...`
struct Line<'a> {
    command: &'a str,
    words: Vec<&'a str>,
    values: HashMap<&'a str, &'a str>,
}

impl<'a> Line<'a> {
    fn parse(text: &'a str) -> Line<'a> {
        let mut parts = text.split_whitespace();
        let command = parts.next().unwrap_or_default();
        let (mut words, mut values) = (Vec::new(), HashMap::new());
        for part in parts {
            match part.split_once('=') {
                Some((key, value)) => {
                    values.insert(key, value);
                }
                None => words.push(part),
            }
        }
        Line {
            command,
            words,
            values,
        }
    }

    fn number(&self, key: &str, default: i64) -> i64 {
        self.values
            .get(key)
            .map_or(default, |text| text.parse().expect("a number"))
    }

    fn epoch(&self, key: &str, default: i32) -> LeaderEpoch {
        LeaderEpoch(i32::try_from(self.number(key, i64::from(default))).expect("an epoch"))
    }

    fn brokers(&self, key: &str) -> Vec<BrokerId> {
        let text = self.values.get(key).copied().unwrap_or("1");
        text.split(',')
            .map(|id| BrokerId(id.parse().expect("a broker")))
            .collect()
    }

    fn token(&self) -> Token {
        let text = self.words.first().expect("a token");
        Token(
            text.trim_start_matches('t')
                .parse()
                .expect("a token such as t1"),
        )
    }

    fn offset_word(&self) -> Offset {
        Offset(
            self.words
                .first()
                .expect("an offset")
                .parse()
                .expect("an offset"),
        )
    }
}

fn summary(line: &Line<'_>) -> BatchSummary {
    let records = i32::try_from(line.number("records", 1)).expect("small");
    let id = line.number("pid", -1);
    BatchSummary {
        bytes: usize::try_from(line.number("bytes", 100)).expect("small"),
        record_count: records,
        last_offset_delta: records - 1,
        max_timestamp: TimestampMs(line.number("time", 0)),
        offset_delta_of_max_timestamp: 0,
        timestamp_type: TimestampType::CreateTime,
        codec: Codec::None,
        uncompressed_bytes: 0,
        producer: (id >= 0).then_some(ProducerSequence {
            id: ProducerId(id),
            epoch: ProducerEpoch(i16::try_from(line.number("pepoch", 0)).expect("small")),
            base_sequence: i32::try_from(line.number("seq", 0)).expect("a sequence"),
        }),
        is_transactional: line.words.contains(&"transactional"),
        is_control: line.words.contains(&"control"),
    }
}

/// `durable` among the words: flush.messages=1.
fn ack_point(line: &Line<'_>) -> AckPoint {
    match line.words.contains(&"durable") {
        true => AckPoint::Durable,
        false => AckPoint::Written,
    }
}

fn opened(line: &Line<'_>) -> Replica {
    let text = line.values.get("epochs").copied().unwrap_or("");
    let entries: Vec<EpochEntry> = text
        .split(',')
        .filter_map(|pair| pair.split_once(':'))
        .map(|(epoch, start)| EpochEntry {
            epoch: LeaderEpoch(epoch.parse().expect("an epoch")),
            start: Offset(start.parse().expect("an offset")),
        })
        .collect();
    let (log_start, log_end) = (
        Offset(line.number("start", 0)),
        Offset(line.number("end", 0)),
    );
    Replica::new(ReplicaStart {
        local: BrokerId(1),
        log_start,
        log_end,
        durable_end: Offset(line.number("durable", log_end.0)),
        ack_point: ack_point(line),
        high_watermark: Offset(line.number("hw", 0)),
        epochs: EpochCache::restore(&entries, log_start, log_end),
        producers: Producers::default(),
    })
}

/// The same log opened again: its producers come from the snapshot of its written end.
fn restarted(replica: &Replica) -> Replica {
    let (at, bytes) = replica.producer_snapshot();
    let producers = Producers::from_snapshot(&bytes, at, TimestampMs(0)).expect("just written");
    Replica::new(ReplicaStart {
        local: BrokerId(1),
        log_start: replica.log_start(),
        log_end: replica.written_end(),
        durable_end: replica.durable_end(),
        ack_point: AckPoint::Written,
        high_watermark: replica.high_watermark(),
        epochs: replica.epochs().clone(),
        producers,
    })
}

fn say(out: &mut String, text: impl Display) {
    writeln!(out, "  {text}").expect("a String takes it");
}

fn refusal(out: &mut String, refused: Refused) {
    say(
        out,
        format_args!("refused {}: {refused}", refused.code().name()),
    );
}

fn effects(out: &mut String, list: &[Effect]) {
    for effect in list {
        match effect {
            Effect::EpochStarted { epoch, start } => {
                say(out, format_args!("epoch {epoch} starts at {start}"));
            }
            Effect::EpochsTrimmed => say(out, "epochs trimmed"),
            Effect::HighWatermarkMoved(to) => say(out, format_args!("high watermark {to}")),
            Effect::AnswerProduce {
                token,
                outcome: Ok(done),
            } => {
                let range = format!("{}..{}", done.assigned.base, done.assigned.end);
                say(
                    out,
                    format_args!("answer t{} {range} start {}", token.0, done.log_start),
                );
            }
            Effect::AnswerProduce {
                token,
                outcome: Err(why),
            } => {
                say(
                    out,
                    format_args!("answer t{} {}", token.0, why.code().name()),
                );
            }
            Effect::WakeFetch { token } => say(out, format_args!("wake t{}", token.0)),
        }
    }
}

fn run(replica: &mut Replica, line: &Line<'_>, out: &mut String) {
    let mut list = Vec::new();
    match line.command {
        "open" => *replica = opened(line),
        "lead" => {
            let leadership = Leadership {
                epoch: line.epoch("epoch", 0),
                replicas: line.brokers("replicas"),
                in_sync: line.brokers("isr"),
                min_in_sync: u32::try_from(line.number("min", 1)).expect("small"),
            };
            if let Err(stale) = replica.become_leader(&leadership, &mut list) {
                say(out, stale);
            }
        }
        "stop" => {
            let why = match line.words.first().copied() {
                Some("deleted") => StopReason::Deleted,
                Some("storage") => StopReason::StorageFailed,
                _other => StopReason::NotLeader,
            };
            replica.stop(why, Some(line.epoch("epoch", -1)), &mut list);
        }
        "min" => {
            let min = line
                .words
                .first()
                .and_then(|n| n.parse().ok())
                .expect("a number");
            replica.on_min_in_sync(min, &mut list);
        }
        "produce" => produce(replica, line, out),
        "expire-producers" => {
            let max = usize::try_from(line.number("max", 100)).expect("small");
            let now = TimestampMs(line.number("now", 0));
            let left = replica.expire_producers(now, line.number("keep", i64::MAX), max);
            say(out, format_args!("{left} known"));
        }
        "restart" => *replica = restarted(replica),
        "written" => replica.on_written(line.offset_word(), &mut list),
        "durable" => replica.on_durable(line.offset_word(), &mut list),
        "ack-point" => replica.on_ack_point(ack_point(line), &mut list),
        "failed" => replica.on_write_failed(line.offset_word(), &mut list),
        "log-start" => replica.on_log_start(line.offset_word(), &mut list),
        "fetch" => fetch(replica, line, out),
        "park" => park(replica, line, out),
        "unpark" => replica.unpark_fetch(line.token()),
        "list" => list_offsets(replica, line, out),
        "epoch-end" => {
            match replica.on_epoch_end(line.epoch("current", -1), line.epoch("asked", -1)) {
                Ok(end) => say(out, format_args!("epoch {} ends at {}", end.epoch, end.end)),
                Err(why) => refusal(out, why),
            }
        }
        "epochs" => {
            let text = replica.epochs().to_text();
            say(out, text.trim_end().replace('\n', " | "));
        }
        other => panic!("no such event: {other}"),
    }
    effects(out, &list);
    replica.check();
}

fn list_offsets(replica: &Replica, line: &Line<'_>, out: &mut String) {
    let list = |sought| {
        let epoch = line.epoch("current", -1);
        replica.on_list_offsets(epoch, Isolation::ReadUncommitted, sought)
    };
    match (list(Sought::Earliest), list(Sought::Latest)) {
        (Ok(Listed::Known { offset: start, .. }), Ok(Listed::Known { offset, epoch })) => {
            say(out, format_args!("{start}..{offset} epoch {epoch}"));
        }
        (Err(why), _) => refusal(out, why),
        (start, end) => panic!("{start:?} {end:?}"),
    }
}

fn produce(replica: &mut Replica, line: &Line<'_>, out: &mut String) {
    let acks = match line.values.get("acks").copied() {
        Some("all") => Ok(Acks::All),
        Some(number) => Acks::from_wire(number.parse().expect("a number")),
        None => Ok(Acks::Leader),
    };
    let mut list = Vec::new();
    let now = TimestampMs(line.number("now", 0));
    let answer = acks
        .and_then(|acks| replica.on_produce(now, &summary(line), acks, line.token(), &mut list));
    match answer {
        Ok(Accepted::Append(a)) => say(
            out,
            format_args!("assigned {}..{} epoch {}", a.base, a.end, a.epoch),
        ),
        Ok(Accepted::Retry { timestamp }) => say(out, format_args!("a retry, time {timestamp}")),
        Err(why) => refusal(out, why),
    }
    effects(out, &list);
}

fn park(replica: &mut Replica, line: &Line<'_>, out: &mut String) {
    let from = Offset(line.number("from", 0));
    let seen = Offset(line.number("seen", 0));
    let missing = u64::try_from(line.number("missing", 1)).expect("small");
    let isolation = Isolation::ReadUncommitted;
    match replica.park_fetch(line.token(), from, seen, isolation, missing) {
        Parking::Parked => say(out, "parked"),
        Parking::LookAgain => say(out, "look again"),
        Parking::Full => say(out, "full"),
    }
}

fn fetch(replica: &Replica, line: &Line<'_>, out: &mut String) {
    let ask = FetchAsk {
        offset: line.offset_word(),
        current_leader_epoch: line.epoch("current", -1),
        last_fetched_epoch: line.epoch("last", -1),
        isolation: Isolation::ReadUncommitted,
    };
    match replica.on_fetch(&ask) {
        Ok(b) => match b.diverging {
            Some(end) => say(
                out,
                format_args!("diverging epoch {} ends at {}", end.epoch, end.end),
            ),
            None => {
                let hw = b.high_watermark;
                say(
                    out,
                    format_args!("up to {} (hw {hw}, start {})", b.up_to, b.log_start),
                );
            }
        },
        Err(why) => refusal(out, why),
    }
}

/// The scenario's text with the indented lines as they come.
fn played(text: &str) -> String {
    let mut out = String::new();
    let mut replica = opened(&Line::parse("open"));
    for line in text.lines().filter(|line| !line.starts_with(' ')) {
        writeln!(out, "{line}").expect("a String takes it");
        if !line.is_empty() && !line.starts_with('#') {
            run(&mut replica, &Line::parse(line), &mut out);
        }
    }
    out
}

#[test]
fn scenarios() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata");
    let mut paths: Vec<_> = std::fs::read_dir(&dir)
        .expect("testdata exists")
        .map(|entry| entry.expect("readable").path())
        .collect();
    paths.sort();
    assert!(!paths.is_empty(), "there are scenarios");
    for path in paths {
        let text = std::fs::read_to_string(&path).expect("readable");
        let played = played(&text);
        if std::env::var_os("UPDATE_SCENARIOS").is_some() {
            std::fs::write(&path, played).expect("writable");
            continue;
        }
        for (number, (expected, found)) in text.lines().zip(played.lines()).enumerate() {
            assert_eq!(found, expected, "{}:{}", path.display(), number + 1);
        }
        assert_eq!(played, text, "{}", path.display());
    }
}
