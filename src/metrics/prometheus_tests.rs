//! Tests of the page of metrics, read by a strict reader of the format.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use super::render_prometheus;
use crate::{
    Cause, CloseReason, CoreMetrics, Engine, GroupLag, LagRow, ProcessFacts, Snapshot, Spent, Stage,
};

type Labels = Vec<(String, String)>;

/// A strict reader of the exposition format: what a scraper would accept, and nothing else.
fn parse(page: &str) -> HashMap<(String, Labels), f64> {
    assert!(page.ends_with('\n'));
    let mut samples = HashMap::new();
    let mut headed = HashSet::new();
    let mut helped = None;
    let mut current = (String::new(), String::new());
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').expect("a help text");
            assert!(!help.is_empty());
            helped = Some(name.to_owned());
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').expect("a type");
            assert_eq!(
                helped.take().as_deref(),
                Some(name),
                "HELP comes before TYPE"
            );
            assert!(["counter", "gauge", "summary", "histogram"].contains(&kind));
            assert!(headed.insert(name.to_owned()), "{name} has two heads");
            current = (name.to_owned(), kind.to_owned());
        } else {
            let (name, labels, value) = parse_sample(line);
            let suffixes: &[&str] = match current.1.as_str() {
                "summary" => &["_sum", "_count"],
                "histogram" => &["_sum", "_count", "_bucket"],
                _ => &[],
            };
            let parts = suffixes.iter().find_map(|suffix| name.strip_suffix(suffix));
            let base = parts.unwrap_or(&name);
            assert_eq!(base, current.0, "a sample outside its group: {line}");
            assert!(
                samples.insert((name, labels), value).is_none(),
                "twice: {line}"
            );
        }
    }
    samples
}

fn parse_sample(line: &str) -> (String, Labels, f64) {
    let name_end = line.find(['{', ' ']).expect("a value");
    let name = &line[..name_end];
    assert!(
        name.chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
    );
    let mut rest = line[name_end..].chars().peekable();
    let mut labels = Vec::new();
    if rest.next_if_eq(&'{').is_some() {
        loop {
            let label: String = std::iter::from_fn(|| rest.next_if(|c| *c != '=')).collect();
            assert_eq!((rest.next(), rest.next()), (Some('='), Some('"')), "{line}");
            let mut value = String::new();
            loop {
                match rest.next().expect("a closing quote") {
                    '"' => break,
                    '\\' => value.push(match rest.next() {
                        Some('n') => '\n',
                        Some(c @ ('\\' | '"')) => c,
                        other => panic!("escape {other:?} in {line}"),
                    }),
                    c => value.push(c),
                }
            }
            labels.push((label, value));
            match rest.next() {
                Some(',') => {}
                Some('}') => break,
                other => panic!("{other:?} after a label in {line}"),
            }
        }
    }
    assert_eq!(rest.next(), Some(' '), "{line}");
    let value: String = rest.collect();
    (name.to_owned(), labels, value.parse().expect("a number"))
}

fn labels(pairs: &[(&str, &str)]) -> Labels {
    pairs
        .iter()
        .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
        .collect()
}

fn busy_snapshot() -> Snapshot {
    let mut cores = vec![CoreMetrics::new(0, 2), CoreMetrics::new(1, 2)];
    cores[0].engine = Some(Engine {
        kind: "plain",
        reason: "io_uring: \"EPERM\"".into(),
        pinned_to: Some(3),
    });
    cores[0].counters.fetch_bytes_sendfile = 65_536;
    cores[1].counters.fetch_bytes_copied = 100;
    cores[1].apis.count_request(1, "Fetch");
    cores[1].apis.count_error(1, "Fetch", "OFFSET_OUT_OF_RANGE");
    cores[1].count_closed(CloseReason::SlowFrame);
    cores[0].record(Stage::Produce, Duration::from_millis(2));
    let mut spent = Spent::default();
    spent.add(Cause::FlushWait, Duration::from_micros(1_500));
    cores[0].blame.count(&spent, 1_600);
    cores[0].topics.of("t").produced_bytes = 7;
    cores[1].topics.of("t").produced_bytes = 5;
    let recovery = Some(Duration::from_millis(1));
    Snapshot {
        process: ProcessFacts {
            recovery,
            ..ProcessFacts::default()
        },
        cores,
        ..Snapshot::default()
    }
}

#[test]
fn a_full_page_is_well_formed() {
    let got = parse(&render_prometheus(&busy_snapshot()));
    let value = |name: &str, l: &[(&str, &str)]| got[&(name.to_owned(), labels(l))];
    let (core0, core1) = (("core", "0"), ("core", "1"));
    assert_eq!(
        value("thalweg_fetch_sendfile_bytes_total", &[core0]),
        65_536.0
    );
    assert_eq!(value("thalweg_fetch_copied_bytes_total", &[core1]), 100.0);
    assert_eq!(
        value("thalweg_requests_total", &[core1, ("api", "Fetch")]),
        1.0
    );
    let error = [core1, ("api", "Fetch"), ("error", "OFFSET_OUT_OF_RANGE")];
    assert_eq!(value("thalweg_request_errors_total", &error), 1.0);
    let slow = [core1, ("reason", "slow_frame")];
    assert_eq!(value("thalweg_connections_closed_total", &slow), 1.0);
    assert_eq!(
        value("thalweg_topic_produced_bytes_total", &[("topic", "t")]),
        12.0
    );
    assert_eq!(value("thalweg_recovery_seconds", &[]), 0.001);
    let engine = [
        core0,
        ("engine", "plain"),
        ("reason", "io_uring: \"EPERM\""),
        ("cpu", "3"),
    ];
    assert_eq!(value("thalweg_engine_info", &engine), 1.0);
}

#[test]
fn summaries_are_in_seconds() {
    let got = parse(&render_prometheus(&busy_snapshot()));
    let value = |name: &str, l: &[(&str, &str)]| got[&(name.to_owned(), labels(l))];
    assert_eq!(
        value("thalweg_produce_seconds_count", &[("core", "0")]),
        1.0
    );
    assert_eq!(
        value("thalweg_produce_seconds_sum", &[("core", "0")]),
        0.002
    );
    let p99 = value(
        "thalweg_produce_seconds",
        &[("core", "0"), ("quantile", "0.99")],
    );
    assert!((0.00198..0.00202).contains(&p99), "{p99}");
    assert!(
        value(
            "thalweg_produce_seconds",
            &[("core", "1"), ("quantile", "0.5")]
        )
        .is_nan()
    );
}

#[test]
fn blame_is_a_histogram_per_core_and_stage() {
    let got = parse(&render_prometheus(&busy_snapshot()));
    let value =
        |name: &str, l: &[(&str, &str)]| got[&(format!("thalweg_request_{name}"), labels(l))];
    let flush = [("core", "0"), ("stage", "flush_wait")];
    assert_eq!(value("stage_seconds_count", &flush), 1.0);
    assert_eq!(value("stage_seconds_sum", &flush), 0.0015);
    let up_to = |le| value("stage_seconds_bucket", &[flush[0], flush[1], ("le", le)]);
    assert_eq!([up_to("0.001023"), up_to("0.004095")], [0.0, 1.0]);
    assert_eq!(up_to("+Inf"), 1.0);
    let append = [("core", "0"), ("stage", "append")];
    assert_eq!(value("stage_seconds_count", &append), 0.0);
    assert_eq!(value("seconds_sum", &[("core", "0")]), 0.0016);
    assert_eq!(value("seconds_count", &[("core", "1")]), 0.0);
}

#[test]
fn bi10_a_label_can_not_break_out_of_its_quotes() {
    let nasty = "a\"} 1\nthalweg_fake 2\\";
    let mut core = CoreMetrics::new(0, 1);
    core.topics.of(nasty).fetched_bytes = 3;
    let got = parse(&render_prometheus(&Snapshot {
        cores: vec![core],
        ..Snapshot::default()
    }));
    let key = (
        "thalweg_topic_fetched_bytes_total".to_owned(),
        labels(&[("topic", nasty)]),
    );
    assert_eq!(got[&key], 3.0);
}

#[test]
fn bi_36_lag_is_told_by_group_and_what_is_left_out_is_counted() {
    let row = |group: &str, bytes| LagRow {
        group: group.to_owned(),
        topic: "t".to_owned(),
        partition: 3,
        committed_offset: 5,
        records: 7,
        stable_records: 6,
        bytes,
        seconds: Some(1.5),
        removal_seconds: None,
    };
    let long = |last: char| format!("{}{last}", "ü".repeat(16_000));
    let lag = GroupLag {
        rows: vec![
            row("g", Some(9)),
            row("evil\"\n", None),
            row(&long('a'), None),
            row(&long('b'), None),
        ],
        left_out: 4,
    };
    let page = render_prometheus(&Snapshot {
        lag: Some(lag),
        ..Snapshot::default()
    });
    assert!(page.lines().all(|line| line.len() < 1_000), "names are cut");
    // Two series of one name would be a page that no scrape takes.
    let cut = page.lines().filter(|line| line.contains("üü"));
    let cut: std::collections::BTreeSet<&str> = cut.collect();
    assert_eq!(cut.len(), 2 * 3, "and stay different");
    let got = parse(&page);
    let of = |group| labels(&[("group", group), ("topic", "t"), ("partition", "3")]);
    let value = |name: &str, l: Labels| got.get(&(name.to_owned(), l)).copied();
    assert_eq!(
        value("thalweg_group_lag_records", of("evil\"\n")),
        Some(7.0)
    );
    let stable = value("thalweg_group_lag_stable_records", of("g"));
    assert_eq!(stable, Some(6.0));
    assert_eq!(value("thalweg_group_lag_bytes", of("g")), Some(9.0));
    assert_eq!(value("thalweg_group_lag_bytes", of("evil\"\n")), None);
    assert_eq!(value("thalweg_group_lag_seconds", of("g")), Some(1.5));
    assert_eq!(value("thalweg_group_removal_seconds", of("g")), None);
    assert_eq!(value("thalweg_group_lag_left_out", Vec::new()), Some(4.0));
}

#[test]
fn a_page_without_cores_is_well_formed() {
    parse(&render_prometheus(&Snapshot::default()));
}
