"""The report: Markdown, JSON and plots."""

import json
import statistics
from pathlib import Path

from . import plots, ratios

PARTS = ("produce", "consume", "cold")
COLUMNS = (("mb_s", "MB/s", 1), ("requests_s", "requests/s", 0), ("p50_us", "p50 us", 0), ("p99_us", "p99 us", 0),
           ("p999_us", "p99.9 us", 0))

PROMISES = """\
Equal promises: Kafka, Thalweg and the floor acknowledge from the page cache (acks=1, one replica, nothing is flushed
before an acknowledgement), except in `durable-acks`, where both brokers run the topic with `flush.messages=1`, their calls
of fsync and fdatasync are counted in a round before, and the floor has no turn. All get the same requests from the same
load generator on a CPU of its own.
"""


def spread(values):
    """(median, least, most)."""
    return statistics.median(values), min(values), max(values)


def figure(result, contender, name):
    """Median and spread of a figure; None where a round lacks it."""
    found = [sample.get(name) for sample in result["samples"][contender]]
    return None if any(value is None for value in found) else spread(found)


def cell(values, decimals):
    """A spread as text."""
    return "" if values is None else "{:.{d}f} ({:.{d}f}-{:.{d}f})".format(*values, d=decimals)


def write(folder, report, results):
    """Writes report.json, report.md and the plots into a folder."""
    folder = Path(folder)
    (folder / "report.json").write_text(json.dumps(report, indent=1) + "\n")
    names = []
    for name, picture in pictures(results).items():
        (folder / f"{name}.svg").write_text(picture)
        names.append(name)
    (folder / "report.md").write_text(markdown(report, results, names))


def markdown(report, results, plot_names):
    """The report for people."""
    lines = ["# Thalweg beside Apache Kafka", "", f"`{report['command']}`", ""]
    lines += environment_lines(report) + ["", PROMISES] + ratio_lines(report) + [""]
    lines += [f"![{name}]({name}.svg)" for name in plot_names] + [""]
    for name, result in results.items():
        lines += result_lines(name, result) + [""]
    lines += ["## Left out", ""] + [f"- {line}" for line in report["left_out"]]
    return "\n".join(lines).rstrip() + "\n"


def environment_lines(report):
    machine, settings = report["machine"], report["settings"]
    lines = [f"Commit {machine['commit']}, Linux {machine['kernel']}, {machine['cpu']}, {machine['cpus']} CPUs, "
             f"{machine['memory_mib']} MiB; free page reporting {machine['free_page_reporting']}; {settings['rounds']} rounds of {settings['seconds']:g} s after "
             f"{settings['warm_up']:g} s; broker on CPU {settings['broker_cpu']}, load on CPU {settings['load_cpu']} "
             "(None: not confined). Medians (smallest-largest) over rounds; MB are 10^6 bytes of record batches."]
    for name, broker in report["brokers"].items():
        lines += ["", f"- {name} {broker['version']}: `{' '.join(broker['command_line'])}`; takes "
                  f"{broker['idle_cpu_share']:.1%} of a CPU while nobody asks for anything"]
    lines += ["", "What the JVM chooses by the number of CPUs (Kafka's start scripts name the collector, so that only the "
              "numbers of threads differ with them):", ""]
    choices = report["jvm_choices"]
    flags = sorted({flag for choice in choices.values() for flag in choice})
    lines += table(["", *flags], [[name, *(choice.get(flag, "") for flag in flags)] for name, choice in choices.items()])
    return lines


def table(head, rows):
    """A table of Markdown."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return lines + ["| " + " | ".join(map(str, row)) + " |" for row in rows]


def ratio_lines(report):
    found = report["ratios"]
    rows = []
    for name in ratios.FORMULAS:
        if name in found:
            low, high = found[name + "_spread"]
            rows.append([f"`{name}`", f"{found[name]:.3g} ({low:.3g}-{high:.3g})", ratios.target(name),
                         ratios.verdict(name, found[name])])
        else:
            rows.append([f"`{name}`", f"absent: {report['absent'][name]}", ratios.target(name), ""])
    return ["## Ratios", ""] + table(["ratio", "median (range) of paired rounds", "to reach", ""], rows)


def result_lines(name, result):
    """One workload."""
    lines = [f"## {name}", ""]
    if "failed" in result:
        return [*lines, f"Failed: {result['failed']}"]
    if "method" in result:
        lines += [f"How cold: {result['method']}.", ""]
    if "checked" in result:
        lines += ["Syncs and acknowledgements in the round before: "
                  + "; ".join(f"{broker} {seen}" for broker, seen in result["checked"].items()) + ".", ""]
    if "rate" in result:
        lines += [f"{result['rate']:.0f} requests per second, open loop.", ""]
    if "knees" in result:
        rows = [[broker, f"{knee['requests_s']:.0f}", f"{knee['mb_s']:.1f}", "yes" if knee["is_resolved"] else "no"]
                for broker, knee in result["knees"].items()]
        return lines + table(["", "requests/s", "MB/s", "to 5 %"], rows)
    return lines + table(*sample_table(result))


def sample_table(result):
    """Head and rows: a row for each contender and each part that it has."""
    rows = []
    for contender, samples in result["samples"].items():
        keys = {key.split(".")[0] for sample in samples for key in sample if "." in key}
        for part in sorted(keys, key=lambda key: (PARTS.index(key) if key in PARTS else 9, key)):
            row = [contender, part.replace("_", " ")]
            row += [cell(figure(result, contender, f"{part}.{key}"), decimals) for key, _, decimals in COLUMNS]
            own = figure(result, contender, f"{part}.broker_cpu_s_per_gb")
            row.append(cell(own or figure(result, contender, "cpu_s_per_gb"), 3))
            row.append(cell(figure(result, contender, "cpu_us_per_request"), 1))
            row.append(cell(figure(result, contender, "other_cpus"), 2))
            row.append(cell(figure(result, contender, "rss_mib"), 0))
            rows.append(row)
    head = ["", "part", *(title for _, title, _ in COLUMNS), "broker CPU s/GB", "CPU us/request", "CPUs of the rest",
            "RSS MiB"]
    return head, rows


def pictures(results):
    """The plots that the results allow, by name."""
    made = {}
    over_load = latency_series(results)
    if over_load:
        made["latency"] = plots.curves("Latency over load, open loop, from the intended time of sending", "MB/s", "ms",
                                       over_load)
    closed = {name: result for name, result in results.items() if "samples" in result}
    for name, title, unit, keys in (
            ("throughput", "Throughput", "MB/s", ("produce.mb_s", "consume.mb_s")),
            ("requests", "Requests", "requests/s", ("produce.requests_s", "consume.requests_s")),
            ("cpu", "CPU of the broker per GB", "CPU s/GB", ("cpu_s_per_gb",)),
            ("memory", "Resident memory of the broker", "MiB", ("rss_mib",))):
        groups = grouped(closed, keys)
        if groups:
            made[name] = plots.bars(title, unit, groups)
    return made


def grouped(closed, keys):
    """Spreads of the first of the figures that a workload has, by workload and contender."""
    groups = {}
    for name, result in closed.items():
        group = {}
        for contender in result["samples"]:
            found = [spread for spread in (figure(result, contender, key) for key in keys) if spread]
            # Contenders with a word behind their name are other loads, not other brokers.
            if found and " " not in contender:
                group[contender] = found[0]
        if group:
            groups[name] = group
    return groups


def latency_series(results):
    """Percentiles over MB/s: the held steps of the search for the knee, or better the rates of own-knee."""
    series = {}
    own = results.get("own-knee", {}).get("samples", {})
    for contender, samples in own.items():
        for percentile in plots.DASHES:
            values = [sample.get(f"produce.{percentile}_us") for sample in samples]
            if all(values):
                point = (statistics.median(s["produce.mb_s"] for s in samples), statistics.median(values) / 1000)
                series.setdefault((contender.split(" ")[0], percentile), []).append(point)
    if series:
        return series
    for contender, knee in results.get("knee", {}).get("knees", {}).items():
        for percentile in plots.DASHES:
            points = [(s["mb_s"], s[percentile] / 1000) for s in knee["steps"] if s["is_held"] and s[percentile]]
            if points:
                series[contender, percentile] = points
    return series
