//! Who is to blame for a slow request: `/slow` and the histograms by stage. Failpoints of the test build hold up one
//! stage, and that stage has to be blamed for at least the time in which the test saw it held.

use std::time::{Duration, Instant};

use serde_json::Value;
use thalweg_protocol::messages::ProduceRequest;

use crate::batch::{plain, read_all};
use crate::broker::{Broker, Options, eventually};
use crate::engine::has_strace;
use crate::gate::Gate;
use crate::tool::thalweg;
use crate::wire::{Connection, Topic, newest, produce_request};

/// Long enough to stand out, short enough to wait for.
const HELD: Duration = Duration::from_millis(40);

impl Broker {
    fn slow(&self, query: &str) -> Vec<Value> {
        let (status, body) = self.get(&format!("/slow{query}"));
        assert_eq!(status, 200, "{body}");
        let told: Value = serde_json::from_str(&body).expect("JSON");
        assert!(told["cluster_id"].as_str().is_some_and(|id| !id.is_empty()));
        told["requests"].as_array().expect("a list").clone()
    }

    /// The slow request that was in `stage` for so many microseconds, as soon as it is told. Others are slow, too, on a
    /// busy machine.
    fn blamed_on(&self, stage: &str, least_us: u64) -> Value {
        eventually(stage, || {
            let mut all = self.slow("").into_iter();
            all.find(|slow| slow["stages_us"][stage].as_u64().unwrap_or(0) >= least_us)
        })
    }
}

fn us(of: &Value) -> u64 {
    of.as_u64().expect("a number")
}

/// Sends a batch while the gate is closed, and opens it [`HELD`] after `is_held` was seen. Gives what was at least
/// waited.
fn held_up(gate: &Gate, client: &mut Connection, topic: &Topic, is_held: impl FnOnce()) -> u64 {
    gate.close();
    let version = newest::<ProduceRequest>();
    client.send(&produce_request(topic, 0, 1, plain(&["held up"])), version);
    is_held();
    let seen = Instant::now();
    while seen.elapsed() < HELD {
        std::thread::yield_now();
    }
    let waited = seen.elapsed();
    assert!(!client.has_answer());
    gate.release();
    client.receive::<ProduceRequest>(version);
    u64::try_from(waited.as_micros()).expect("it fits")
}

#[test]
fn a_slow_flush_is_blamed_on_the_flush() {
    let (gate, options) = Gate::at("ack flush");
    let broker = Broker::start_with(options);
    let mut client = broker.connect();
    let topic = client.create_topic("durable", 1, &[("flush.messages", "1")]);
    assert!(broker.slow("?n=0").is_empty());
    let before = broker.metric("thalweg_append_batches_total", &[]);
    let waited = held_up(&gate, &mut client, &topic, || {
        broker.wait_for_more("thalweg_append_batches_total", &[], before);
    });
    let slow = broker.blamed_on("flush_wait", waited);
    let others = us(&slow["total_us"]) - us(&slow["stages_us"]["flush_wait"]);
    assert!(us(&slow["stages_us"]["append"]) <= others, "{slow}");
    assert_eq!(slow["api"], "Produce");
    assert_eq!(slow["partition"], "durable-0");
    assert!(us(&slow["request_bytes"]) > 60 && us(&slow["response_bytes"]) > 20);
    let stage = ["stage=\"flush_wait\""];
    assert_eq!(
        broker.metric("thalweg_request_stage_seconds_count", &stage),
        1.0
    );
    assert!(broker.metric("thalweg_request_stage_seconds_sum", &stage) >= waited as f64 / 1e6);
    assert_eq!(broker.slow("?n=1").len(), 1);
    assert_eq!(broker.get("/slow?n=many").0, 400);
}

#[test]
fn a_slow_write_is_blamed_on_the_append() {
    if !has_strace() {
        return;
    }
    let (gate, options) = Gate::at("plain write");
    let mut wrapper = crate::engine::denied("EPERM").wrapper;
    wrapper.splice(0..0, options.wrapper);
    let broker = Broker::start_with(Options {
        wrapper,
        ..Options::default()
    });
    let mut client = broker.connect();
    let topic = client.create_topic("written", 1, &[]);
    client.append(&topic, 0, plain(&["at once"]));
    let requests = || broker.metric("thalweg_requests_total", &["Produce"]);
    let before = requests();
    let begun = || broker.metric("thalweg_reactor_in_flight", &[]);
    let waited = held_up(&gate, &mut client, &topic, || {
        let is_begun = || requests() > before && begun() > 0.0;
        eventually("a write in flight", || is_begun().then_some(()));
    });
    let slow = broker.blamed_on("append", waited);
    assert!(slow["stages_us"].get("flush_wait").is_none(), "{slow}");
    assert_eq!(slow["partition"], "written-0");
}

fn top(broker: &Broker, flags: &[&str]) -> String {
    let http = broker.metrics_address().to_string();
    let flags = [&["top", "--http", &http, "--interval", "1"], flags].concat();
    let output = thalweg(&flags);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

#[test]
fn top_shows_cores_lanes_and_stages() {
    let broker = Broker::start();
    let frame = eventually("all cores answer", || {
        let text = top(&broker, &["--once", "--json"]);
        let frame: Value = serde_json::from_str(&text).expect("JSON");
        let cores = frame["cores"].as_array().expect("a list").len();
        (cores == broker.shards()).then_some(frame)
    });
    let list = |name: &str| frame[name].as_array().expect("a list").clone();
    assert!(
        list("cores")
            .iter()
            .all(|core| core["busy_percent"].is_number())
    );
    assert!(
        list("stages")
            .iter()
            .any(|stage| stage["stage"] == "append")
    );
    assert!(
        list("lanes")
            .iter()
            .any(|lane| lane["lane"] == "compaction")
    );
    assert!(
        frame["seconds"]
            .as_f64()
            .is_some_and(|seconds| seconds >= 1.0)
    );
    let text = top(&broker, &[]);
    for heading in ["thalweg top  node", "CORE", "STAGE", "LANE"] {
        assert!(text.contains(heading), "{text}");
    }
}

#[test]
fn top_tells_who_is_not_there() {
    let output = thalweg(&["top", "--http", "127.0.0.1:1", "--once"]);
    assert_eq!(output.status.code(), Some(3));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains("127.0.0.1:1") && said.contains("--http"),
        "{said}"
    );
}

#[test]
fn busy_partitions_are_told_with_both_directions() {
    let broker = Broker::start();
    let mut client = broker.connect();
    let topic = client.create_topic("busy", 2, &[]);
    let look = || -> Value {
        let (status, body) = broker.get("/top?n=1");
        assert_eq!(status, 200, "{body}");
        serde_json::from_str(&body).expect("JSON")
    };
    // Each core ends its interval by its own clock, so one may tell of one direction only.
    let busiest = eventually("an interval with both directions", || {
        let from = client.append(&topic, 1, plain(&["x".repeat(100_000)]));
        client.append(&topic, 0, plain(&["less"]));
        assert_eq!(read_all(&mut client, &topic, 1, from).len(), 1);
        let told = look();
        let first = told["partitions"].as_array().expect("a list").first()?;
        let is_busy = |direction: &str| us(&first[direction]) > 1_000;
        (is_busy("bytes_in_per_s") && is_busy("bytes_out_per_s")).then(|| first.clone())
    });
    assert_eq!(busiest["partition"], "busy-1", "{busiest}");
}
