//! A probe of the time from producing to consuming: one record at a time through a topic of its own, beside the
//! load.
//!
//! A Fetch waits at the end of the log before the record is sent, so that the time is that of the broker's
//! wake-up and not of a poll. It counts from the intended time of sending, as everywhere.

use std::collections::BTreeMap;
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use hdrhistogram::Histogram;
use thalweg_client::{ConnectOptions, Connection, Ticket};
use thalweg_protocol::messages::FetchRequest;
use thalweg_protocol::{ErrorCode, Records};

use crate::floor::wire::FETCH_VERSION;
use crate::job::{ProduceJob, fetch_request, with_size};
use crate::load::{Job, LoadOptions, new_histogram, record};
use crate::schedule::Schedule;
use crate::stage;
use crate::workload::{EndToEnd, Produce, Workload};

const TOPIC: &str = "bench-end-to-end";
const RECORD_BYTES: usize = 100;
const FETCH_BYTES: i32 = 1 << 20;

struct Probe {
    produce: Connection,
    consume: Connection,
    job: ProduceJob,
    offset: i64,
}

/// Probes for as long as a load with these options runs; microseconds, without those of the warm-up.
///
/// # Errors
/// When a request fails.
pub fn probe(how: &EndToEnd, options: &LoadOptions) -> Result<Histogram<u64>> {
    let address = options.address.to_string();
    let mut cluster = stage::cluster(&address)?;
    stage::create_topic(&mut cluster, TOPIC, 1, &BTreeMap::new())?;
    let outcome = Probe::new(&address)
        .and_then(|mut probe| probe.run(how, options))
        .context("end-to-end probe");
    let deleted = cluster.delete_topic(TOPIC);
    let latency_us = outcome?;
    deleted?;
    Ok(latency_us)
}

impl Probe {
    fn new(address: &str) -> Result<Probe> {
        let how = Produce {
            connections: 1,
            in_flight: 1,
            acks: 1,
            rate: None,
        };
        let workload = Workload::plain(TOPIC, RECORD_BYTES, 1);
        let options = ConnectOptions::default();
        Ok(Probe {
            produce: Connection::open(address, &options)?,
            consume: Connection::open(address, &options)?,
            job: ProduceJob::new(TOPIC, &workload, &how)?,
            offset: 0,
        })
    }

    fn run(&mut self, how: &EndToEnd, options: &LoadOptions) -> Result<Histogram<u64>> {
        let mut latency_us = new_histogram()?;
        let start = Instant::now();
        let measured_from = start + options.warm_up;
        let end = measured_from + options.measure;
        let schedule = Schedule::new(start, how.probes_per_second, 1);
        let mut n = 0;
        while schedule.intended(0, n) < end {
            let intended = schedule.intended(0, n);
            let waiting = self.ask()?;
            thread::sleep(intended.saturating_duration_since(Instant::now()));
            self.send()?;
            self.wait(waiting)?;
            if intended >= measured_from {
                record(&mut latency_us, intended.elapsed());
            }
            self.acknowledged()?;
            n += 1;
        }
        Ok(latency_us)
    }

    fn ask(&mut self) -> Result<Ticket<FetchRequest>> {
        let request = fetch_request(TOPIC, 0, self.offset, FETCH_BYTES);
        Ok(self.consume.send_at(&request, FETCH_VERSION)?)
    }

    fn send(&mut self) -> Result<()> {
        let mut request = Vec::new();
        let token = self.job.next(0, 1, &mut request);
        request.extend_from_slice(self.job.tail(token));
        Ok(self.produce.send_bytes(&request)?)
    }

    /// Until the record has come.
    fn wait(&mut self, mut waiting: Ticket<FetchRequest>) -> Result<()> {
        loop {
            let answer = self.consume.receive(waiting)?;
            let data = answer.responses.first().and_then(|t| t.partitions.first());
            let data = data.context("an answer without the partition")?;
            ensure!(
                data.error_code == ErrorCode::None as i16,
                "fetch: error {}",
                data.error_code
            );
            if let Some(Records::Held(bytes)) = &data.records
                && !bytes.is_empty()
            {
                self.offset += 1;
                return Ok(());
            }
            waiting = self.ask()?;
        }
    }

    fn acknowledged(&mut self) -> Result<()> {
        let answer = self.produce.read_frame()?;
        self.job.check(0, &with_size(&answer))?;
        Ok(())
    }
}
