"""Which workloads are compared, and how each is run."""

from dataclasses import dataclass


INLINE = ("inline",)
BOTH = ("inline", "ring")


@dataclass(frozen=True)
class Step:
    """One workload of the comparison."""

    name: str
    # closed: alternating rounds at full speed. knee: the highest rate each holds, and its latencies on the way.
    # half_knee: all, the floor too, at half of Kafka's knee. own_knee: at shares of each one's own knee. cold: with and without
    # readers of a backlog. durable: like closed, and the device must have seen what was acknowledged.
    # tools: Kafka's own performance tools.
    kind: str
    workload: str
    # Engines of the floor that take part; both in the workloads of the quick comparison that write files in large pieces.
    floor: tuple = ()
    quick: bool = False


STEPS = (
    Step("bulk-produce", "closed", "bulk-produce", floor=BOTH, quick=True),
    Step("one-record", "closed", "one-record", floor=INLINE, quick=True),
    Step("hot-consume", "closed", "hot-consume", floor=INLINE, quick=True),
    Step("knee", "knee", "bulk-produce", quick=True),
    Step("half-knee", "half_knee", "bulk-produce", floor=BOTH, quick=True),
    Step("durable-acks", "durable", "durable-100-partitions", quick=True),
    Step("catch-up", "cold", "catch-up", quick=True),
    Step("kafka-tools", "tools", ""),
    Step("own-knee", "own_knee", "bulk-produce"),
    Step("headline-1-producer", "closed", "headline-1-producer", floor=INLINE),
    Step("headline-3-producers", "closed", "headline-3-producers", floor=INLINE),
    Step("headline-10-producers", "closed", "headline-10-producers", floor=INLINE),
    Step("headline-1-producer-acks-0", "closed", "headline-1-producer-acks-0"),
    Step("headline-3-producers-acks-0", "closed", "headline-3-producers-acks-0"),
    Step("headline-10-producers-acks-0", "closed", "headline-10-producers-acks-0"),
    Step("two-million-writes", "closed", "two-million-writes", floor=INLINE),
    Step("bulk-1-partition", "closed", "bulk-1-partition", floor=INLINE),
    Step("bulk-256-partitions", "closed", "bulk-256-partitions", floor=INLINE),
    Step("bulk-2000-partitions", "closed", "bulk-2000-partitions", floor=INLINE),
    Step("bulk-10000-partitions", "closed", "bulk-10000-partitions"),
    Step("lone-record", "closed", "lone-record", floor=INLINE),
    Step("one-record-1000", "closed", "one-record-1000", floor=INLINE),
    Step("keyed-100-producers", "closed", "keyed-100-producers"),
    Step("bulk-lz4", "closed", "bulk-lz4"),
    Step("bulk-zstd", "closed", "bulk-zstd"),
    Step("mixed", "closed", "mixed"),
    Step("fan-out-1", "closed", "fan-out-1"),
    Step("fan-out-5", "closed", "fan-out-5"),
    Step("fan-out-20", "closed", "fan-out-20"),
)


def chosen(quick, only):
    """The steps of a comparison: those of `only`, else those of the quick or the whole one."""
    unknown = set(only) - {step.name for step in STEPS}
    if unknown:
        names = ", ".join(step.name for step in STEPS)
        raise SystemExit(f"error: no workload {', '.join(sorted(unknown))}; there are {names}")
    if only:
        # A share of a knee needs the knee.
        needs_knee = any(step.name in only and step.kind in ("half_knee", "own_knee") for step in STEPS)
        return [step for step in STEPS if step.name in only or needs_knee and step.kind == "knee"]
    return [step for step in STEPS if step.quick or not quick]


def left_out(run):
    """What the report does not hold, in words; `run` are the names that it holds."""
    missing = [step.name for step in STEPS if step.name not in run]
    lines = ["an hour past retention: `thalweg-bench run past-retention --set log.retention.check.interval.ms=30000 "
             "--set log.segment.delete.delay.ms=1000`, in pieces of five minutes, run once by hand"]
    return lines + ([f"not in this run: {', '.join(missing)}"] if missing else [])
