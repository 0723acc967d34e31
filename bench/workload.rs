//! Workloads: one TOML file each, in `bench/workloads/`. Reports name them, so their numbers may not change
//! silently: add a new file instead.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail, ensure};
use serde::{Deserialize, Serialize};
use thalweg_protocol::records::Codec;

use crate::catalogue::FILES;

/// One workload. It has a `produce` or a `consume` section, or both, which then run side by side.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// Its name in reports; a named workload's file is called the same.
    pub name: String,
    /// What it shows, in a line.
    pub about: String,
    /// Partitions of the topic. Request n of connection c goes to partition (c + n) mod partitions.
    pub partitions: usize,
    /// Bytes of one record's value.
    pub record_bytes: usize,
    /// Bytes of a record's key; without it keys are null. Keys are random, and each record lies in the partition that
    /// Kafka's Java client would choose for its key.
    #[serde(default)]
    pub key_bytes: usize,
    /// A batch takes as many records as fit in so many bytes, at least one.
    /// Before compression.
    pub batch_bytes: usize,
    /// Compression of the batches. Values are random bytes; compressed ones are of 16 letters, about half of which
    /// compression takes away.
    #[serde(default)]
    pub compression: Compression,
    /// Properties that the topic is created with.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub topic: BTreeMap<String, String>,
    /// Connections that write.
    pub produce: Option<Produce>,
    /// Connections that read.
    pub consume: Option<Consume>,
    /// Connections that drain a backlog beside them.
    pub cold: Option<Cold>,
    /// A probe of the time from producing to consuming, beside the load.
    pub end_to_end: Option<EndToEnd>,
    /// How long, and how often.
    #[serde(default)]
    pub measure: Measure,
}

/// Connections that write.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Produce {
    /// Connections to the broker.
    pub connections: usize,
    /// Requests in flight on each, at most.
    pub in_flight: usize,
    /// acks: 0, 1 or -1.
    pub acks: i16,
    /// Open loop at this rate; without it a request is sent whenever one is answered.
    pub rate: Option<Rate>,
}

/// Connections that read.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Consume {
    /// Connections to the broker.
    pub connections: usize,
    /// Requests in flight on each, at most.
    pub in_flight: usize,
    /// `partition_max_bytes` of Fetch.
    pub fetch_bytes: usize,
    /// What is read.
    pub from: ReadFrom,
    /// Megabytes of batches that are produced first; for `from = "filled"`.
    #[serde(default = "fill_mb_default")]
    pub fill_mb: usize,
    /// What becomes of the records.
    #[serde(default)]
    pub reader: Reader,
    /// Open loop at this rate.
    pub rate: Option<Rate>,
}

/// Connections that drain a backlog: connection c reads partition c of a topic of its own from the start to the end, and
/// again. The backlog is written once, in the batches of 64 KiB of 1,000-byte records, and pushed out of the page cache
/// before each round where `run --evict` says where it lies.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Cold {
    /// Connections, and partitions of the backlog.
    pub connections: usize,
    /// `partition_max_bytes` of Fetch.
    pub fetch_bytes: usize,
    /// Megabytes of batches, over all partitions.
    pub backlog_mb: usize,
    /// What becomes of the records.
    #[serde(default)]
    pub reader: Reader,
}

/// Compression of batches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)]
pub enum Compression {
    #[default]
    None,
    Gzip,
    Snappy,
    Lz4,
    Zstd,
}

impl Compression {
    /// As batches name it.
    #[must_use]
    pub fn codec(self) -> Codec {
        match self {
            Compression::None => Codec::None,
            Compression::Gzip => Codec::Gzip,
            Compression::Snappy => Codec::Snappy,
            Compression::Lz4 => Codec::Lz4,
            Compression::Zstd => Codec::Zstd,
        }
    }
}

/// What consumers read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReadFrom {
    /// What was produced before, over and over.
    Filled,
    /// What the workload's producers write, as it comes. Connection c follows partition c mod partitions.
    Tail,
}

/// What becomes of the records that were asked for.
#[derive(clap::ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reader {
    /// The kernel drops them (`MSG_TRUNC`), so that the reader is not the limit; heads of answers are read.
    #[default]
    Discard,
    /// They are copied to user memory, as a real client has to.
    Copy,
}

/// Rate of an open loop, over all connections of its section.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Rate {
    /// Requests per second.
    RequestsPerSecond(f64),
    /// 10^6 bytes of record batches per second.
    MbPerSecond(f64),
}

impl Rate {
    /// In requests per second, when one request moves so many bytes.
    #[must_use]
    pub fn requests_per_second(self, bytes_per_request: u64) -> f64 {
        match self {
            Rate::RequestsPerSecond(rate) => rate,
            Rate::MbPerSecond(mb) => mb * 1e6 / bytes_per_request.max(1) as f64,
        }
    }
}

/// A probe of the time from producing to consuming.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct EndToEnd {
    /// Records per second, one at a time, to a topic of its own with one partition.
    pub probes_per_second: f64,
}

/// How long, and how often.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Measure {
    /// Seconds before measuring.
    pub warm_up_seconds: f64,
    /// Measured seconds per round.
    pub seconds: f64,
    /// Rounds.
    pub rounds: usize,
}

impl Default for Measure {
    fn default() -> Self {
        Measure {
            warm_up_seconds: 1.0,
            seconds: 5.0,
            rounds: 5,
        }
    }
}

fn fill_mb_default() -> usize {
    512
}

/// A workload and the text that it was read from.
#[derive(Clone, Debug)]
pub struct WorkloadFile {
    /// What the text says.
    pub workload: Workload,
    /// The text.
    pub text: String,
}

impl WorkloadFile {
    /// A named workload, or with `.toml` at the end that file.
    ///
    /// # Errors
    /// When there is none, or it is not right; says which key.
    pub fn open(name: &str) -> Result<WorkloadFile> {
        let text = if Path::new(name).extension().is_some_and(|e| e == "toml") {
            std::fs::read_to_string(name).with_context(|| format!("cannot read {name}"))?
        } else {
            let found = FILES.iter().find(|(known, _)| *known == name);
            let (_, text) = found.ok_or_else(|| {
                let names: Vec<&str> = Workload::names().collect();
                anyhow!(
                    "no workload `{name}`; there are {}, or give a .toml file",
                    names.join(", ")
                )
            })?;
            (*text).to_owned()
        };
        let workload = Workload::parse(&text).with_context(|| format!("workload {name}"))?;
        Ok(WorkloadFile { workload, text })
    }
}

impl Workload {
    /// Names of the workloads in `bench/workloads/`.
    pub fn names() -> impl Iterator<Item = &'static str> {
        FILES.iter().map(|(name, _)| *name)
    }

    /// The workload of that name or file, for the command line.
    ///
    /// # Errors
    /// As [`WorkloadFile::open`].
    pub fn named(name: &str) -> Result<Workload> {
        WorkloadFile::open(name).map(|file| file.workload)
    }

    /// Reads a workload file.
    ///
    /// # Errors
    /// Names the key that is unknown, missing, of the wrong type or out of range.
    pub fn parse(text: &str) -> Result<Workload> {
        let workload: Workload = toml::from_str(text)?;
        workload.check()?;
        Ok(workload)
    }

    /// Whether the numbers make sense together.
    ///
    /// # Errors
    /// Names the key that does not.
    pub fn check(&self) -> Result<()> {
        at_least_one("partitions", self.partitions)?;
        at_least_one("record_bytes", self.record_bytes)?;
        at_least_one("batch_bytes", self.batch_bytes)?;
        ensure!(
            self.produce.is_some() || self.consume.is_some(),
            "there is neither `[produce]` nor `[consume]`: nothing would be sent"
        );
        if let Some(produce) = &self.produce {
            at_least_one("produce.connections", produce.connections)?;
            at_least_one("produce.in_flight", produce.in_flight)?;
            ensure!(
                (-1..=1).contains(&produce.acks),
                "produce.acks is {}; give 0, 1 or -1",
                produce.acks
            );
            check_rate("produce.rate", produce.rate)?;
        }
        if let Some(consume) = &self.consume {
            at_least_one("consume.connections", consume.connections)?;
            at_least_one("consume.in_flight", consume.in_flight)?;
            at_least_one("consume.fetch_bytes", consume.fetch_bytes)?;
            check_rate("consume.rate", consume.rate)?;
            match consume.from {
                ReadFrom::Filled => at_least_one("consume.fill_mb", consume.fill_mb)?,
                ReadFrom::Tail => self.check_tail(consume)?,
            }
        }
        if let Some(cold) = &self.cold {
            at_least_one("cold.connections", cold.connections)?;
            at_least_one("cold.fetch_bytes", cold.fetch_bytes)?;
            at_least_one("cold.backlog_mb", cold.backlog_mb)?;
        }
        if let Some(probe) = &self.end_to_end {
            positive("end_to_end.probes_per_second", probe.probes_per_second)?;
        }
        at_least_one("measure.rounds", self.measure.rounds)?;
        positive("measure.seconds", self.measure.seconds)?;
        let warm_up = self.measure.warm_up_seconds;
        ensure!(
            warm_up.is_finite() && warm_up >= 0.0,
            "measure.warm_up_seconds is {warm_up}; give 0 or more"
        );
        Ok(())
    }

    fn check_tail(&self, consume: &Consume) -> Result<()> {
        ensure!(
            self.produce.is_some(),
            "consume.from is \"tail\", but there is no `[produce]` to follow"
        );
        ensure!(
            consume.in_flight == 1,
            "consume.in_flight is {}; with from = \"tail\" it must be 1, as an answer says where to read on",
            consume.in_flight
        );
        ensure!(
            consume.rate.is_none(),
            "consume.rate makes no sense with from = \"tail\": the producers set the rate"
        );
        Ok(())
    }

    /// The batches of a backlog: what catches up is mostly of another time, and in large batches.
    #[must_use]
    pub fn of_backlog(cold: &Cold) -> Workload {
        Workload {
            partitions: cold.connections,
            ..Workload::plain("backlog", 1_000, 65_536)
        }
    }

    /// One partition, batches without keys and compression; nobody writes or reads.
    #[must_use]
    pub fn plain(name: &str, record_bytes: usize, batch_bytes: usize) -> Workload {
        Workload {
            name: name.to_owned(),
            about: String::new(),
            partitions: 1,
            record_bytes,
            key_bytes: 0,
            batch_bytes,
            compression: Compression::None,
            topic: BTreeMap::new(),
            produce: None,
            consume: None,
            cold: None,
            end_to_end: None,
            measure: Measure::default(),
        }
    }

    /// The section to write with when only a topic is to be filled, whatever the workload says.
    #[must_use]
    pub fn filling(&self) -> Produce {
        self.produce.clone().unwrap_or(Produce {
            connections: 1,
            in_flight: self.partitions,
            acks: 1,
            rate: None,
        })
    }
}

fn at_least_one(key: &str, value: usize) -> Result<()> {
    ensure!(value >= 1, "{key} is 0; give at least 1");
    Ok(())
}

fn positive(key: &str, value: f64) -> Result<()> {
    if value.is_finite() && value > 0.0 {
        return Ok(());
    }
    bail!("{key} is {value}; give more than 0")
}

fn check_rate(key: &str, rate: Option<Rate>) -> Result<()> {
    match rate {
        None => Ok(()),
        Some(Rate::RequestsPerSecond(value)) => {
            positive(&format!("{key}.requests_per_second"), value)
        }
        Some(Rate::MbPerSecond(value)) => positive(&format!("{key}.mb_per_second"), value),
    }
}

#[cfg(test)]
mod tests {
    use super::{Rate, Reader, Workload, WorkloadFile};
    use crate::catalogue::FILES;

    const GOOD: &str = r#"
        name = "x"
        about = "a test"
        partitions = 2
        record_bytes = 10
        batch_bytes = 100
        [produce]
        connections = 3
        in_flight = 4
        acks = -1
        rate = { mb_per_second = 8 }
    "#;

    fn refusal(text: &str) -> String {
        format!("{:#}", Workload::parse(text).unwrap_err())
    }

    #[test]
    fn named_workloads_are_right_and_have_the_name_of_their_file() {
        for (name, _) in FILES {
            let workload = WorkloadFile::open(name).unwrap().workload;
            assert_eq!(workload.name, *name);
        }
        let on_disk = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/workloads"));
        assert_eq!(on_disk.unwrap().count(), FILES.len());
    }

    #[test]
    fn a_file_says_what_it_says() {
        let workload = Workload::parse(GOOD).unwrap();
        let produce = workload.produce.unwrap();
        assert_eq!((produce.connections, produce.acks), (3, -1));
        assert_eq!(produce.rate.unwrap().requests_per_second(1_000), 8_000.0);
        assert_eq!(workload.measure, super::Measure::default());
        let hot = Workload::named("hot-consume").unwrap();
        assert_eq!(hot.consume.unwrap().reader, Reader::Discard);
        assert_eq!(Rate::RequestsPerSecond(7.0).requests_per_second(9), 7.0);
    }

    #[test]
    fn errors_name_the_key() {
        let cases = [
            (("connections = 3", "conections = 3"), "conections"),
            (("acks = -1", "acks = 2"), "produce.acks is 2"),
            (("in_flight = 4", "in_flight = 0"), "produce.in_flight is 0"),
            (("in_flight = 4", "in_flight = \"four\""), "in_flight"),
            (("partitions = 2", ""), "partitions"),
            (
                ("mb_per_second = 8", "mb_per_second = 0"),
                "produce.rate.mb_per_second",
            ),
            (("mb_per_second = 8", "mb_per_hour = 8"), "mb_per_hour"),
        ];
        for ((from, to), named) in cases {
            let error = refusal(&GOOD.replace(from, to));
            assert!(error.contains(named), "{error} does not name {named}");
        }
        let nothing = GOOD.split("[produce]").next().unwrap();
        assert!(refusal(nothing).contains("[produce]"));
        let tail = GOOD.to_owned()
            + "[consume]\nconnections=1\nin_flight=2\nfetch_bytes=1\nfrom=\"tail\"\n";
        assert!(refusal(&tail).contains("consume.in_flight is 2"));
    }

    #[test]
    fn an_unknown_name_lists_those_there_are() {
        let error = WorkloadFile::open("no-such").unwrap_err().to_string();
        assert!(
            error.contains("no-such") && error.contains("open-mixed"),
            "{error}"
        );
        let error = WorkloadFile::open("/nonexistent/x.toml").unwrap_err();
        assert!(format!("{error:#}").contains("/nonexistent/x.toml"));
    }
}
