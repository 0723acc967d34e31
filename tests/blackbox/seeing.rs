//! Metrics, health and the log.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::batch::{plain, read_all};
use crate::broker::{Broker, Options, PATIENCE, eventually, shards_of_the_run};

/// Status and body of a GET.
pub fn get_over(mut stream: TcpStream, path: &str) -> (u16, String) {
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    )
    .expect("the endpoint reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let status = answer
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok());
    let body = answer
        .split_once("\r\n\r\n")
        .map(|(_, body)| body.to_owned());
    (status.expect("a status line"), body.unwrap_or_default())
}

impl Broker {
    /// Status and body of a GET.
    pub fn get(&self, path: &str) -> (u16, String) {
        let stream = TcpStream::connect(self.metrics_address());
        get_over(stream.expect("the endpoint listens"), path)
    }

    /// What is scraped. A core that does not answer in time is left out there, and asked again here.
    pub fn metrics(&self) -> String {
        eventually("the numbers of every core", || {
            let (status, page) = self.get("/metrics");
            assert_eq!(status, 200);
            let is_told = |core| {
                let label = format!("core=\"{core}\"");
                let mut lines = page.lines();
                lines.any(|line| line.starts_with("thalweg_engine_info{") && line.contains(&label))
            };
            (0..self.shards()).all(is_told).then_some(page)
        })
    }

    /// Sum of a metric's samples whose labels contain all of `having`.
    pub fn metric(&self, name: &str, having: &[&str]) -> f64 {
        let page = self.metrics();
        let values = page.lines().filter_map(|line| {
            let rest = line
                .strip_prefix(name)
                .filter(|rest| rest.starts_with(['{', ' ']))?;
            let (labels, value) = rest.rsplit_once(' ')?;
            having
                .iter()
                .all(|text| labels.contains(text))
                .then(|| value.parse::<f64>().ok())?
        });
        values.sum()
    }

    /// Asks until the metric is above zero, which must not take long.
    pub fn wait_for_metric(&self, name: &str, having: &[&str]) -> f64 {
        self.wait_for_more(name, having, 0.0)
    }

    /// Asks until the metric is above `floor`, which must not take long.
    pub fn wait_for_more(&self, name: &str, having: &[&str], floor: f64) -> f64 {
        eventually(name, || {
            let value = self.metric(name, having);
            (value > floor).then_some(value)
        })
    }
}

#[test]
fn health_and_metrics_are_served() {
    let broker = Broker::start_with(Options::default());
    assert_eq!(broker.get("/healthz").0, 200);
    assert_eq!(broker.get("/readyz").0, 200);
    assert_eq!(broker.get("/nothing").0, 404);
    let (_, page) = broker.get("/metrics");
    for line in page.lines().filter(|line| !line.starts_with('#')) {
        let (name, value) = line.rsplit_once(' ').expect("a name and a value");
        assert!(name.starts_with("thalweg_"), "{line}");
        assert!(value.parse::<f64>().is_ok(), "{line}");
    }
    for core in 0..shards_of_the_run() {
        let label = format!("core=\"{core}\"");
        assert!(
            broker.metric("thalweg_engine_info", &[&label]) > 0.0,
            "{label}"
        );
    }
}

#[test]
fn records_are_counted_by_api_and_topic() {
    let broker = Broker::start_with(Options::default());
    let mut client = broker.connect();
    let topic = client.create_topic("counted", 2, &[]);
    for partition in [0, 1, 1] {
        client.append(&topic, partition, plain(&["a", "b"]));
    }
    assert_eq!(broker.metric("thalweg_requests_total", &["Produce"]), 3.0);
    let by_topic = ["topic=\"counted\""];
    assert_eq!(
        broker.metric("thalweg_topic_produced_records_total", &by_topic),
        6.0
    );
    assert!(broker.metric("thalweg_produce_seconds_count", &[]) >= 3.0);
    assert_eq!(broker.metric("thalweg_append_batches_total", &[]), 3.0);
}

/// The record bytes of a fetch leave the page cache by `sendfile`; nothing of them is copied.
#[test]
fn fetched_records_are_sent_and_not_copied() {
    let broker = Broker::start_with(Options::default());
    let mut client = broker.connect();
    let topic = client.create_topic("sent", 1, &[]);
    let mut bytes = 0;
    for _ in 0..20 {
        let batch = plain(&["x".repeat(200_000)]);
        bytes += batch.len();
        client.append(&topic, 0, batch);
    }
    let copied_before = broker.metric("thalweg_fetch_copied_bytes_total", &[]);
    assert_eq!(read_all(&mut client, &topic, 0, 0).len(), 20);
    let sent = broker.metric("thalweg_fetch_sendfile_bytes_total", &[]);
    let copied = broker.metric("thalweg_fetch_copied_bytes_total", &[]) - copied_before;
    let bytes = u32::try_from(bytes).expect("4 MB").into();
    assert!(sent >= bytes, "{sent} of {bytes} bytes by sendfile");
    assert_eq!(copied, 0.0, "bytes of large batches copied");
}

#[test]
fn logs_are_json_on_request() {
    let mut broker = Broker::start_with(Options {
        arguments: vec!["--log-format", "human", "--log-level", "debug"],
        ..Options::default()
    });
    broker.stop();
    let lines = broker.log();
    assert!(lines.iter().any(|line| line.contains("INFO")), "{lines:?}");
    let output = json_log();
    for line in &output {
        let event: serde_json::Value = serde_json::from_str(line).expect("one object per line");
        assert!(event["level"].is_string(), "{line}");
    }
    assert!(!output.is_empty());
}

/// The log of a broker that can not start, which is short; the reason is in it.
fn json_log() -> Vec<String> {
    let folder = tempfile::tempdir().expect("a folder");
    let not_a_folder = folder.path().join("file");
    std::fs::write(&not_a_folder, "x").expect("a file");
    let options = Options {
        arguments: vec!["--log-format", "json"],
        ..Options::default()
    };
    let output = crate::broker::serve_command(&not_a_folder, &options)
        .output()
        .expect("it runs");
    assert!(!output.status.success());
    let text = String::from_utf8(output.stderr).expect("UTF-8");
    text.lines().map(str::to_owned).collect()
}
