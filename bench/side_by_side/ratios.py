"""Ratios of paired rounds: medians with their spread, and what the issue asks of them."""

import statistics

from .measure import is_durable


class Missing(Exception):
    """Why a ratio can not be had."""


# What each ratio should reach: a bound, and whether it is a least or a most.
TARGETS = {
    "produce_mb_s_vs_kafka": (">=", 3.0),
    "one_record_req_s_vs_kafka": (">=", 5.0),
    "produce_cpu_per_gb_vs_kafka": ("<=", 0.25),
    "produce_p999_at_half_knee_vs_kafka": ("<=", 0.1),
    "floor_p999_at_half_knee_vs_kafka": (None, None),
    "produce_p999_at_half_knee_vs_floor": (None, None),
    "consume_cpu_per_gb_vs_kafka": (None, None),
    "rss_vs_kafka": ("<=", 0.05),
    "durable_acks_vs_kafka": (">=", 3.0),
    "floor_mb_s_vs_kafka": (None, None),
    "produce_vs_floor": (">=", 0.9),
    "produce_cpu_per_gb_vs_floor": ("<=", 1.15),
    "fetch_vs_floor": ("<=", 1.1),
    "generator_req_s_vs_thalweg": (">=", 1.0),
    "hot_p999_with_cold_readers": ("<=", 1.5),
    "hot_p999_with_cold_readers_of_kafka": (None, None),
}


def values(results, step, contender, figure):
    """A figure of each round."""
    if step not in results:
        raise Missing(f"{step} was not run")
    if "failed" in results[step]:
        raise Missing(f"{step} failed: {results[step]['failed']}")
    found = [sample.get(figure) for sample in results[step]["samples"][contender]]
    if any(value is None for value in found):
        raise Missing(f"{step}: {contender} has no {figure} in some round (p99.9 wants 10,000 samples)")
    return found


def floor(results, step, figure, best):
    """The figure of whichever engine of the floor has the better median."""
    samples = results.get(step, {}).get("samples", ())
    engines = [values(results, step, name, figure) for name in samples if name.startswith("floor-")]
    if not engines:
        raise Missing(f"the floor did not run {step}")
    return best(engines, key=statistics.median)


def quotients(above, below):
    """Round by round."""
    return [a / b for a, b in zip(above, below, strict=True)]


def durable(results):
    """Durable acknowledgements per second; only where both can have kept the promise."""
    rates = {name: values(results, "durable-acks", name, "produce.requests_s") for name in ("thalweg", "kafka")}
    for name in rates:
        checked = results["durable-acks"]["checked"][name]
        if checked is None or checked["syncs"] is None:
            raise Missing("strace can not be had or may not look, so that nobody can say who kept the promise")
        if not is_durable(checked):
            raise Missing(f"{name} does not keep the promise of flush.messages=1: {checked['syncs']} calls of fsync and "
                          f"fdatasync for {checked['acknowledged']:.0f} acknowledgements; unequal promises are not compared")
    return quotients(rates["thalweg"], rates["kafka"])


def with_cold(results, name):
    """p99.9 of the hot producers with cold readers, over that without, in the same round."""
    figure = "produce.p999_us"
    return quotients(values(results, "catch-up", f"{name} with cold readers", figure),
                     values(results, "catch-up", f"{name} without", figure))


def versus_kafka(step, figure):
    """Thalweg over Kafka."""
    return lambda r: quotients(values(r, step, "thalweg", figure), values(r, step, "kafka", figure))


def versus_floor(step, figure, best):
    """Thalweg over the floor."""
    return lambda r: quotients(values(r, step, "thalweg", figure), floor(r, step, figure, best))


FORMULAS = {
    "produce_mb_s_vs_kafka": versus_kafka("bulk-produce", "produce.mb_s"),
    "one_record_req_s_vs_kafka": versus_kafka("one-record", "produce.requests_s"),
    "produce_cpu_per_gb_vs_kafka": versus_kafka("bulk-produce", "cpu_s_per_gb"),
    "produce_p999_at_half_knee_vs_kafka": versus_kafka("half-knee", "produce.p999_us"),
    # What the machine itself can do there: the ceiling of the ratio before.
    "floor_p999_at_half_knee_vs_kafka": lambda r: quotients(floor(r, "half-knee", "produce.p999_us", min),
                                                            values(r, "half-knee", "kafka", "produce.p999_us")),
    "produce_p999_at_half_knee_vs_floor": versus_floor("half-knee", "produce.p999_us", min),
    "consume_cpu_per_gb_vs_kafka": versus_kafka("hot-consume", "cpu_s_per_gb"),
    "rss_vs_kafka": versus_kafka("bulk-produce", "rss_mib"),
    "durable_acks_vs_kafka": durable,
    "floor_mb_s_vs_kafka": lambda r: quotients(floor(r, "bulk-produce", "produce.mb_s", max),
                                               values(r, "bulk-produce", "kafka", "produce.mb_s")),
    "produce_vs_floor": versus_floor("bulk-produce", "produce.mb_s", max),
    "produce_cpu_per_gb_vs_floor": versus_floor("bulk-produce", "cpu_s_per_gb", min),
    "fetch_vs_floor": versus_floor("hot-consume", "cpu_s_per_gb", min),
    # What the generator can drive at least: it did, against the floor.
    "generator_req_s_vs_thalweg": lambda r: quotients(floor(r, "one-record", "produce.requests_s", max),
                                                      values(r, "one-record", "thalweg", "produce.requests_s")),
    "hot_p999_with_cold_readers": lambda r: with_cold(r, "thalweg"),
    "hot_p999_with_cold_readers_of_kafka": lambda r: with_cold(r, "kafka"),
}


def of(results):
    """(ratios, absent): each ratio's median beside its spread and rounds, and why others can not be had."""
    ratios, absent = {}, {}
    for name, formula in FORMULAS.items():
        try:
            rounds = formula(results)
        except Missing as reason:
            absent[name] = str(reason)
            continue
        ratios[name] = statistics.median(rounds)
        ratios[name + "_spread"] = [min(rounds), max(rounds)]
        ratios[name + "_rounds"] = rounds
    return ratios, absent


def verdict(name, median):
    """`met`, `missed`, or nothing where no bound was set."""
    sign, bound = TARGETS[name]
    if sign is None:
        return ""
    return "met" if (median >= bound if sign == ">=" else median <= bound) else "missed"


def target(name):
    """The bound as text."""
    sign, bound = TARGETS[name]
    return "" if sign is None else f"{sign} {bound:g}"
