//! A frame as lines of text.

use thalweg_control::{PartitionLine, SlowLine};

use super::frame::{CoreRate, Frame, LaneRate, StageTimes};
use crate::args::format_moment;
use crate::exit::Failure;
use crate::output::{Align, or_dash, printable, set_table};

/// What the busiest partitions are sorted by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Sort {
    #[default]
    Both,
    In,
    Out,
}

impl Sort {
    pub(super) fn next(self) -> Sort {
        match self {
            Sort::Both => Sort::In,
            Sort::In => Sort::Out,
            Sort::Out => Sort::Both,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Sort::Both => "in and out",
            Sort::In => "in",
            Sort::Out => "out",
        }
    }

    fn key(self, line: &PartitionLine) -> u64 {
        match self {
            Sort::Both => line.bytes_in_per_s + line.bytes_out_per_s,
            Sort::In => line.bytes_in_per_s,
            Sort::Out => line.bytes_out_per_s,
        }
    }
}

/// How a frame is shown.
#[derive(Clone, Copy, Debug)]
pub(super) struct View {
    pub(super) sort: Sort,
    /// Longer lines are cut.
    pub(super) columns: usize,
    /// Further lines are left out.
    pub(super) lines: usize,
    /// Between two frames.
    pub(super) seconds: u32,
}

/// The lines of `frame`.
pub(super) fn lines(frame: &Frame, view: &View) -> Vec<String> {
    let mut out = vec![title(frame, view)];
    let sections = [
        cores(&frame.cores),
        partitions(&frame.partitions, view.sort),
        stages(&frame.stages),
        lanes(&frame.lanes),
        slow(&frame.slow),
    ];
    for section in sections.into_iter().filter(|lines| lines.len() > 1) {
        out.push(String::new());
        out.extend(section);
    }
    fit(out, view)
}

/// What is shown while the broker does not answer.
pub(super) fn unreachable(failure: &Failure, view: &View) -> Vec<String> {
    let text = format!("thalweg top  {}", printable(&failure.message));
    let again = format!("asked again every {} s; q quits", view.seconds);
    fit(vec![text, again], view)
}

fn fit(lines: Vec<String>, view: &View) -> Vec<String> {
    let cut = |line: String| match line.char_indices().nth(view.columns) {
        Some((end, _)) => line[..end].to_owned(),
        None => line,
    };
    lines.into_iter().take(view.lines).map(cut).collect()
}

fn title(frame: &Frame, view: &View) -> String {
    if frame.cluster_id.is_empty() {
        return format!("thalweg top  first frame in {} s; q quits", view.seconds);
    }
    format!(
        "thalweg top  node {}  cluster {}  {}  {}  every {} s  by {} (s)  q quits",
        frame.node_id,
        frame.cluster_id,
        frame.version,
        format_moment(frame.at_ms),
        view.seconds,
        view.sort.name(),
    )
}

fn cores(cores: &[CoreRate]) -> Vec<String> {
    let headings = right(
        "CORE",
        &[
            "BUSY",
            "REQ/S",
            "IN/S",
            "OUT/S",
            "QUEUED",
            "FILE OPS",
            "CONNS",
            "PARTITIONS",
            "MEMORY",
        ],
    );
    let row = |core: &CoreRate| {
        vec![
            core.core.to_string(),
            format!("{:.0} %", core.busy_percent),
            rate(core.requests_per_s),
            bytes(core.bytes_in_per_s),
            bytes(core.bytes_out_per_s),
            core.queued.to_string(),
            core.in_flight.to_string(),
            core.connections.to_string(),
            core.partitions.to_string(),
            bytes(core.memory_bytes as f64),
        ]
    };
    set_table(&headings, &cores.iter().map(row).collect::<Vec<_>>())
}

fn partitions(partitions: &[PartitionLine], sort: Sort) -> Vec<String> {
    let mut partitions: Vec<_> = partitions.iter().collect();
    partitions.sort_by_key(|line| std::cmp::Reverse(sort.key(line)));
    let row = |line: &&PartitionLine| {
        vec![
            line.partition.clone(),
            bytes(line.bytes_in_per_s as f64),
            bytes(line.bytes_out_per_s as f64),
        ]
    };
    let headings = right("PARTITION", &["IN/S", "OUT/S"]);
    set_table(&headings, &partitions.iter().map(row).collect::<Vec<_>>())
}

fn stages(stages: &[StageTimes]) -> Vec<String> {
    let headings = right("STAGE", &["REQ/S", "WAITING", "P50", "P99", "P99.9"]);
    let time = |us: Option<u32>| or_dash(us.map(|us| duration(u64::from(us))));
    let row = |stage: &StageTimes| {
        vec![
            stage.stage.clone(),
            rate(stage.requests_per_s),
            format!("{:.3}", stage.waiting),
            time(stage.p50_us),
            time(stage.p99_us),
            time(stage.p999_us),
        ]
    };
    set_table(&headings, &stages.iter().map(row).collect::<Vec<_>>())
}

fn lanes(lanes: &[LaneRate]) -> Vec<String> {
    let row = |lane: &LaneRate| {
        vec![
            lane.lane.clone(),
            rate(lane.rounds_per_s),
            bytes(lane.bytes_per_s),
            or_dash(lane.waiting_bytes.map(|waiting| bytes(waiting as f64))),
        ]
    };
    let headings = right("LANE", &["PER S", "BYTES/S", "WAITING"]);
    set_table(&headings, &lanes.iter().map(row).collect::<Vec<_>>())
}

fn slow(slow: &[SlowLine]) -> Vec<String> {
    let headings = [
        ("SLOWEST", Align::Right),
        ("ENDED", Align::Left),
        ("API", Align::Left),
        ("PARTITION", Align::Left),
        ("CLIENT", Align::Left),
        ("REQUEST", Align::Right),
        ("ANSWER", Align::Right),
        ("SPENT IN", Align::Left),
    ];
    let row = |line: &SlowLine| {
        vec![
            duration(u64::from(line.total_us)),
            format_moment(line.ended_ms),
            line.api.clone(),
            or_dash(line.partition.clone()),
            line.client_id
                .clone()
                .unwrap_or_else(|| line.client.clone()),
            bytes(f64::from(line.request_bytes)),
            bytes(line.response_bytes as f64),
            causes(line),
        ]
    };
    set_table(&headings, &slow.iter().map(row).collect::<Vec<_>>())
}

/// What a request waited for, the longest first.
fn causes(line: &SlowLine) -> String {
    let mut causes: Vec<(&str, u32)> = line
        .stages_us
        .iter()
        .map(|(stage, us)| (stage.as_str(), *us))
        .chain([("other", line.other_us)])
        .collect();
    causes.sort_by_key(|(_, us)| std::cmp::Reverse(*us));
    // What is not worth a thousandth of it is not worth a word.
    causes.retain(|(_, us)| *us > line.total_us / 1_000);
    let words = causes
        .iter()
        .map(|(stage, us)| format!("{stage} {}", duration(u64::from(*us))));
    words.collect::<Vec<_>>().join(", ")
}

/// The first column to the left, the others to the right.
fn right<'a>(first: &'a str, others: &[&'a str]) -> Vec<(&'a str, Align)> {
    let others = others.iter().map(|heading| (*heading, Align::Right));
    std::iter::once((first, Align::Left))
        .chain(others)
        .collect()
}

fn rate(per_s: f64) -> String {
    match per_s {
        rate if rate > 0.0 && rate < 10.0 => format!("{rate:.1}"),
        rate => format!("{rate:.0}"),
    }
}

/// Bytes with a decimal unit and three digits.
fn bytes(bytes: f64) -> String {
    const UNITS: [&str; 5] = ["B", "kB", "MB", "GB", "TB"];
    let mut value = bytes;
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1_000.0;
        unit += 1;
    }
    let digits = match (unit, value) {
        (0, _) => 0,
        (_, value) if value < 9.995 => 2,
        (_, value) if value < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.digits$} {}", UNITS[unit])
}

fn duration(us: u64) -> String {
    match us {
        0..=999 => format!("{us} us"),
        1_000..=9_999 => format!("{:.2} ms", us as f64 / 1e3),
        10_000..=999_999 => format!("{:.0} ms", us as f64 / 1e3),
        _ => format!("{:.2} s", us as f64 / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use thalweg_control::{PartitionLine, SlowLine};

    use super::{Sort, View, bytes, duration, lines};
    use crate::top::frame::Frame;
    use crate::top::frame::tests::look;

    fn view(columns: usize, lines: usize) -> View {
        View {
            sort: Sort::default(),
            columns,
            lines,
            seconds: 2,
        }
    }

    fn slow() -> SlowLine {
        SlowLine {
            ended_ms: 0,
            core: 0,
            api: "Produce".to_owned(),
            partition: Some("t-0".to_owned()),
            client_id: Some("evil\\u{1b}".to_owned()),
            client: "127.0.0.1:9".to_owned(),
            request_bytes: 120,
            response_bytes: 60,
            total_us: 50_000,
            parked_us: 0,
            stages_us: BTreeMap::from([
                ("append".to_owned(), 9_000),
                ("flush_wait".to_owned(), 40_000),
                ("queue".to_owned(), 3),
            ]),
            other_us: 997,
        }
    }

    #[test]
    fn a_frame_shows_cores_partitions_stages_lanes_and_causes() {
        let frame = Frame::between(&look(10_000, 1), &look(12_000, 3), vec![slow()]);
        let shown = lines(&frame, &view(200, usize::MAX));
        let has = |text: &str| {
            assert!(
                shown.iter().any(|line| line.contains(text)),
                "no {text:?} in\n{}",
                shown.join("\n")
            );
        };
        has("50 %");
        has("1.50 MB");
        has("9.21 ms");
        has("flushes");
        has("flush_wait 40 ms, append 9.00 ms, other 997 us");
        assert!(!shown.iter().any(|line| line.contains("queue 3 us")));
    }

    #[test]
    fn a_frame_fits_the_terminal() {
        let frame = Frame::between(&look(10_000, 1), &look(12_000, 3), vec![slow(); 50]);
        let shown = lines(&frame, &view(40, 12));
        assert_eq!(shown.len(), 12);
        assert!(shown.iter().all(|line| line.chars().count() <= 40));
    }

    #[test]
    fn the_first_screen_says_that_it_waits() {
        let shown = lines(&Frame::default(), &view(80, 24));
        assert_eq!(shown, ["thalweg top  first frame in 2 s; q quits"]);
    }

    #[test]
    fn partitions_are_sorted_as_asked() {
        let line = |name: &str, bytes_in_per_s, bytes_out_per_s| PartitionLine {
            partition: name.to_owned(),
            bytes_in_per_s,
            bytes_out_per_s,
        };
        let all = [line("x-0", 5, 1), line("y-0", 1, 9), line("z-0", 4, 4)];
        let order = |sort| -> Vec<String> {
            let shown = super::partitions(&all, sort);
            shown[1..].iter().map(|line| line[..1].to_owned()).collect()
        };
        assert_eq!(order(Sort::Both), ["y", "z", "x"]);
        assert_eq!(order(Sort::Both.next()), ["x", "z", "y"]);
        assert_eq!(order(Sort::Out), ["y", "z", "x"]);
        assert_eq!(Sort::Out.next(), Sort::Both);
    }

    #[test]
    fn numbers_have_three_digits_and_a_unit() {
        let shown = [0.0, 999.0, 1_000.0, 12_345.0, 999_900.0, 5e15].map(bytes);
        assert_eq!(
            shown,
            ["0 B", "999 B", "1.00 kB", "12.3 kB", "1.00 MB", "5000 TB"]
        );
        let shown = [7, 1_500, 40_000, 2_500_000].map(duration);
        assert_eq!(shown, ["7 us", "1.50 ms", "40 ms", "2.50 s"]);
    }
}
