//! The Prometheus text exposition format, version 0.0.4.

use std::fmt::Write as _;
use std::time::Duration;

use crate::{
    CloseReason, CoreMetrics, Kind, LogDirFacts, RefuseReason, Snapshot, Stage, TopicCounts, blame,
    lag,
};

/// `Content-Type` of [`render_prometheus`].
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

const QUANTILES: [f64; 4] = [0.5, 0.9, 0.99, 0.999];

/// Renders `snapshot` as Prometheus text. Counters and summaries keep their core as the label
/// `core`; topics are summed over cores.
#[must_use]
pub fn render_prometheus(snapshot: &Snapshot) -> String {
    let mut page = Page {
        text: String::with_capacity(16 * 1024),
    };
    process(&mut page, snapshot);
    engines(&mut page, &snapshot.cores);
    counters(&mut page, &snapshot.cores);
    apis(&mut page, &snapshot.cores);
    connections(&mut page, &snapshot.cores);
    stages(&mut page, &snapshot.cores);
    blame::render(&mut page, &snapshot.cores);
    topics(&mut page, snapshot);
    if let Some(lag) = &snapshot.lag {
        lag::render(&mut page, lag);
    }
    page.text
}

/// The text so far. All samples of one metric must follow its head.
pub(crate) struct Page {
    text: String,
}

impl Page {
    pub(crate) fn head(&mut self, metric: &str, kind: &str, help: &str) {
        self.text.push_str("# HELP ");
        self.text.push_str(metric);
        self.text.push(' ');
        for c in help.chars() {
            match c {
                '\\' => self.text.push_str("\\\\"),
                '\n' => self.text.push_str("\\n"),
                c => self.text.push(c),
            }
        }
        let _ = writeln!(self.text, "\n# TYPE {metric} {kind}");
    }

    pub(crate) fn sample(
        &mut self,
        metric: &str,
        labels: &[(&str, &str)],
        value: impl std::fmt::Display,
    ) {
        self.text.push_str(metric);
        for (i, (name, label)) in labels.iter().enumerate() {
            self.text.push(if i == 0 { '{' } else { ',' });
            self.text.push_str(name);
            self.text.push_str("=\"");
            push_escaped(&mut self.text, label);
            self.text.push('"');
        }
        if !labels.is_empty() {
            self.text.push('}');
        }
        let _ = writeln!(self.text, " {value}");
    }
}

fn push_escaped(text: &mut String, label: &str) {
    for c in label.chars() {
        match c {
            '\\' => text.push_str("\\\\"),
            '"' => text.push_str("\\\""),
            '\n' => text.push_str("\\n"),
            // Whoever reads the page on a terminal must not be at the mercy of a client.
            c if c.is_control() => {
                text.push('\\');
                text.extend(c.escape_unicode());
            }
            c => text.push(c),
        }
    }
}

fn process(page: &mut Page, snapshot: &Snapshot) {
    let facts = &snapshot.process;
    page.head(
        "thalweg_build_info",
        "gauge",
        "Version of the binary; always 1.",
    );
    let node = facts.node_id.to_string();
    page.sample(
        "thalweg_build_info",
        &[("version", &facts.version), ("node_id", &node)],
        1,
    );
    page.head(
        "thalweg_start_time_seconds",
        "gauge",
        "Start of the process, Unix time.",
    );
    page.sample("thalweg_start_time_seconds", &[], facts.start_unix_seconds);
    page.head(
        "thalweg_cores",
        "gauge",
        "Shards that answered this scrape.",
    );
    let shards = snapshot.cores.iter().filter(|c| !c.is_control());
    page.sample("thalweg_cores", &[], shards.count());
    if let Some(took) = facts.recovery {
        page.head(
            "thalweg_recovery_seconds",
            "gauge",
            "Opening and recovering all logs at start.",
        );
        page.sample("thalweg_recovery_seconds", &[], seconds(took));
    }
    page.head(
        "thalweg_recovery_remaining_logs",
        "gauge",
        "Logs that the start has not opened yet.",
    );
    page.sample("thalweg_recovery_remaining_logs", &[], facts.logs_to_open);
    page.head(
        "thalweg_unclean_start",
        "gauge",
        "1 when the last stop was not clean.",
    );
    page.sample("thalweg_unclean_start", &[], u8::from(facts.unclean_start));
    page.head("thalweg_topics", "gauge", "Topics that exist.");
    page.sample("thalweg_topics", &[], facts.topics);
    page.head("thalweg_partitions", "gauge", "Partitions that exist.");
    page.sample("thalweg_partitions", &[], facts.partitions);
    log_dirs(page, &facts.log_dirs);
}

fn log_dirs(page: &mut Page, dirs: &[LogDirFacts]) {
    let mut gauge = |name: &str, help: &str, value: &dyn Fn(&LogDirFacts) -> Option<f64>| {
        page.head(name, "gauge", help);
        for dir in dirs {
            if let Some(value) = value(dir) {
                page.sample(name, &[("dir", &dir.path)], value);
            }
        }
    };
    let flag = |set: bool| Some(f64::from(u8::from(set)));
    let offline = dirs.iter().filter(|dir| dir.is_offline).count();
    gauge(
        "thalweg_log_dir_offline",
        "1 when the disk of the log directory has failed, or it was not there at the start.",
        &|dir| flag(dir.is_offline),
    );
    gauge(
        "thalweg_log_dir_full",
        "1 while produce is refused because the disk has less room than its headroom.",
        &|dir| flag(dir.is_full),
    );
    gauge(
        "thalweg_log_dir_total_bytes",
        "Size of the file system.",
        &|dir| dir.total_bytes.map(|bytes| bytes as f64),
    );
    gauge(
        "thalweg_log_dir_usable_bytes",
        "What may still be written to the file system.",
        &|dir| dir.usable_bytes.map(|bytes| bytes as f64),
    );
    gauge(
        "thalweg_log_dir_oldest_operation_seconds",
        "Age of the oldest write or flush that the disk has not answered; 0 when none is under way.",
        &|dir| Some(dir.oldest_operation.as_secs_f64()),
    );
    const OFFLINE: &str = "thalweg_log_dirs_offline";
    page.head(
        OFFLINE,
        "gauge",
        "Log directories whose disk has failed, or that were not there at the start.",
    );
    page.sample(OFFLINE, &[], offline as u64);
}

fn engines(page: &mut Page, cores: &[CoreMetrics]) {
    const METRIC: &str = "thalweg_engine_info";
    page.head(
        METRIC,
        "gauge",
        "What drives file operations (ring or plain), and why not better.",
    );
    for core in cores {
        let Some(engine) = &core.engine else { continue };
        let pinned = engine
            .pinned_to
            .map_or_else(|| "none".to_owned(), |cpu| cpu.to_string());
        let labels = [
            ("core", &*core.label()),
            ("engine", engine.kind),
            ("reason", &engine.reason),
            ("cpu", &pinned),
        ];
        page.sample(METRIC, &labels, 1);
    }
}

fn counters(page: &mut Page, cores: &[CoreMetrics]) {
    let per_core: Vec<_> = cores
        .iter()
        .map(|c| (c.label(), c.counters.fields()))
        .collect();
    let Some((_, first)) = per_core.first() else {
        return;
    };
    for (at, field) in first.iter().enumerate() {
        page.head(field.metric, field.kind.name(), field.help);
        for (core, fields) in &per_core {
            page.sample(field.metric, &[("core", core)], fields[at].value);
        }
    }
}

fn apis(page: &mut Page, cores: &[CoreMetrics]) {
    const REQUESTS: &str = "thalweg_requests_total";
    page.head(REQUESTS, Kind::Counter.name(), "Requests received, by API.");
    for core in cores {
        let label = core.label();
        for api in core.apis.used() {
            page.sample(
                REQUESTS,
                &[("core", &label), ("api", api.name)],
                api.requests,
            );
        }
    }
    const ERRORS: &str = "thalweg_request_errors_total";
    page.head(
        ERRORS,
        Kind::Counter.name(),
        "Error codes sent, by API and error.",
    );
    for core in cores {
        let label = core.label();
        for api in core.apis.used() {
            for (error, count) in &api.errors {
                let labels = [("core", &*label), ("api", api.name), ("error", error)];
                page.sample(ERRORS, &labels, count);
            }
        }
    }
}

fn connections(page: &mut Page, cores: &[CoreMetrics]) {
    const REFUSED: &str = "thalweg_connections_refused_total";
    page.head(
        REFUSED,
        Kind::Counter.name(),
        "Connections closed before they were served.",
    );
    for core in cores {
        let label = core.label();
        for reason in RefuseReason::ALL {
            let labels = [("core", &*label), ("reason", reason.label())];
            page.sample(REFUSED, &labels, core.refused(*reason));
        }
    }
    const CLOSED: &str = "thalweg_connections_closed_total";
    page.head(
        CLOSED,
        Kind::Counter.name(),
        "Served connections that were closed, by reason.",
    );
    for core in cores {
        let label = core.label();
        for reason in CloseReason::ALL {
            let labels = [("core", &*label), ("reason", reason.label())];
            page.sample(CLOSED, &labels, core.closed(*reason));
        }
    }
}

fn stages(page: &mut Page, cores: &[CoreMetrics]) {
    for stage in Stage::ALL {
        if cores.iter().all(|core| core.stage(*stage).count() == 0) {
            continue;
        }
        page.head(stage.metric(), "summary", stage.help());
        let (sum, count) = (
            format!("{}_sum", stage.metric()),
            format!("{}_count", stage.metric()),
        );
        for core in cores {
            let label = core.label();
            let times = core.stage(*stage);
            let recent = times.quantiles(&QUANTILES);
            for (i, quantile) in QUANTILES.iter().enumerate() {
                let labels = [("core", &*label), ("quantile", &quantile.to_string())];
                match &recent {
                    Some(values) => page.sample(stage.metric(), &labels, seconds(values[i])),
                    None => page.sample(stage.metric(), &labels, "NaN"),
                }
            }
            page.sample(&sum, &[("core", &label)], seconds(times.sum()));
            page.sample(&count, &[("core", &label)], times.count());
        }
    }
}

/// Metric name, help text and how to read its value from the counts of a topic.
type TopicMetric = (&'static str, &'static str, fn(&TopicCounts) -> u64);

const TOPIC_METRICS: [TopicMetric; 4] = [
    (
        "thalweg_topic_produced_bytes_total",
        "Record bytes accepted from producers.",
        |c| c.produced_bytes,
    ),
    (
        "thalweg_topic_produced_records_total",
        "Records accepted from producers.",
        |c| c.produced_records,
    ),
    (
        "thalweg_topic_fetched_bytes_total",
        "Record bytes sent to consumers.",
        |c| c.fetched_bytes,
    ),
    (
        "thalweg_topic_produce_failures_total",
        "Partition entries of produce requests refused.",
        |c| c.produce_failures,
    ),
];

fn topics(page: &mut Page, snapshot: &Snapshot) {
    let Some(sum) = snapshot.merged() else { return };
    for (metric, help, read) in TOPIC_METRICS {
        page.head(metric, Kind::Counter.name(), help);
        for (topic, counts) in sum.topics.iter() {
            page.sample(metric, &[("topic", topic)], read(counts));
        }
    }
}

fn seconds(duration: Duration) -> f64 {
    duration.as_secs_f64()
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};
    use std::time::Duration;

    use super::render_prometheus;
    use crate::{
        Cause, CloseReason, CoreMetrics, Engine, GroupLag, LagRow, ProcessFacts, Snapshot, Spent,
        Stage,
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
}
