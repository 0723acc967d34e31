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
#[path = "prometheus_tests.rs"]
mod tests;
