"""How each kind of workload is run: alternating rounds, so that a pair sees the same machine."""

import time

from . import machine

# A p99.9 wants so many samples; open loops run longer where a rate gives fewer in a round.
P999_SAMPLES = 11_000
OPEN_SECONDS_MAX = 60
KNEE_SHARES = (0.25, 0.5, 0.75, 0.9)
CACHE_MIB = 1024
# durable-100-partitions has four requests in flight per partition on average, and a sync covers those of one file;
# four times that leaves room for partitions that get more at a time. Making the topic syncs a few hundred times.
COVERED_MAX = 16
TOOL_RECORDS = 1_000_000
REMOVAL_SECONDS = 3


class Measure:
    """Runs steps. `brokers` are started and stay so; `say` prints a line of progress."""

    def __init__(self, options, brokers, generator, tools, say):
        self.options, self.brokers, self.generator = options, brokers, generator
        self.tools, self.say = tools, say

    def step(self, step, known):
        """Runs one step; `known` holds the results of those before it."""
        return getattr(self, "_" + step.kind)(step, known)

    def _run(self, step, broker, extra=(), seconds=None):
        return self.generator.run(step.workload, broker, seconds or self.options.seconds, self.options.warm_up, extra)

    def _warm(self, step, extra=()):
        """A round that does not count, so that Kafka's compiler has seen what comes."""
        for broker in self.brokers:
            self.generator.run(step.workload, broker, self.options.warm_seconds, 0.5, extra)

    def _rounds(self, step, turns):
        """`turns`: name to function. Each runs once a round, in an order that turns from round to round."""
        samples = {name: [] for name in turns}
        for number in range(self.options.rounds):
            for name in order(list(turns), number):
                # Topics of the one before are removed a second after it; a disk that discards gigabytes answers nobody.
                time.sleep(REMOVAL_SECONDS)
                sample = turns[name]()
                samples[name].append(sample)
                self.say(f"{step.name} round {number + 1} {name}: {shown(sample)}")
        return samples

    def _closed(self, step, _known):
        self._warm(step)
        turns = {broker.name: lambda broker=broker: self._run(step, broker) for broker in self.brokers}
        turns.update(self._floor_turns(step, self.options.seconds))
        return {"samples": self._rounds(step, turns)}

    def _floor_turns(self, step, seconds, extra=()):
        return {f"floor-{engine}": lambda engine=engine: self.generator.floor(
            step.workload, engine, self.options.broker_cpu, seconds, self.options.warm_up, extra) for engine in step.floor}

    def _knee(self, step, _known):
        self._warm(step)
        knees = {}
        for broker in self.brokers:
            found = self.generator.knee(step.workload, broker, self.options.knee_minutes, 2)
            rate = found["knee_requests_per_second"]
            if rate is None:
                raise RuntimeError(f"{broker.name} held no rate within {self.options.knee_minutes} minutes")
            steps = [{"rate": s["rate"], "is_held": s["is_held"], "mb_s": s["run"]["parts"][0]["mb_per_second"],
                      **{p: s["run"]["parts"][0]["latency_us"][p] for p in ("p50", "p99", "p999")}}
                     for s in found["steps"]]
            knees[broker.name] = {"requests_s": rate, "mb_s": found["knee_mb_per_second"],
                                  "is_resolved": found["is_resolved"], "steps": steps}
            self.say(f"knee {broker.name}: {rate:.0f} requests/s, {found['knee_mb_per_second']:.1f} MB/s")
        return {"knees": knees}

    def _at_rate(self, step, broker, rate):
        return self._run(step, broker, at_rate(rate), self._open_seconds(rate))

    def _open_seconds(self, rate):
        return min(max(self.options.seconds, P999_SAMPLES / rate), OPEN_SECONDS_MAX)

    def _half_knee(self, step, known):
        rate = knee_of(known, "kafka") / 2
        turns = {broker.name: lambda broker=broker: self._at_rate(step, broker, rate) for broker in self.brokers}
        turns.update(self._floor_turns(step, self._open_seconds(rate), at_rate(rate)))
        return {"rate": rate, "samples": self._rounds(step, turns)}

    def _own_knee(self, step, known):
        turns = {}
        for broker in self.brokers:
            for share in KNEE_SHARES:
                rate = knee_of(known, broker.name) * share
                turns[f"{broker.name} at {share:.0%}"] = lambda b=broker, r=rate: self._at_rate(step, b, r)
        return {"samples": self._rounds(step, turns)}

    def _durable(self, step, _known):
        self._warm(step)
        checked = {broker.name: self._durability(step, broker) for broker in self.brokers}
        turns = {broker.name: lambda broker=broker: self._run(step, broker) for broker in self.brokers}
        return {"samples": self._rounds(step, turns), "checked": checked}

    def _durability(self, step, broker):
        """What a broker acknowledged and how often it asked the device in a round that does not count."""
        seen = {}

        def work():
            sample = self._run(step, broker)
            seen["acknowledged"] = sample["produce.requests_s"] * sample["seconds"]
        syncs = machine.syncs_during(broker.pid, self.options.folder, work)
        self.say(f"{step.name} {broker.name}: {syncs} syncs for {seen.get('acknowledged', 0):.0f} acknowledgements")
        return {"syncs": syncs, **seen} if seen else None

    def _cold(self, step, _known):
        limited = {broker.name: self._limit(broker) for broker in self.brokers}
        turns = {}
        for broker in self.brokers:
            keep = ("--keep-backlog", "--evict", broker.data)
            turns[f"{broker.name} with cold readers"] = lambda b=broker, k=keep: self._run(step, b, k)
            turns[f"{broker.name} without"] = lambda b=broker, k=keep: self._run(step, b, (*k, "--without-cold"))
        try:
            self._warm(step, ("--keep-backlog", "--without-cold"))
            return {"samples": self._rounds(step, turns), "method": cold_method(limited)}
        finally:
            for broker in self.brokers:
                broker.group.unlimit()
                # Without --keep-backlog a run takes it away.
                self.generator.run("lone-record", broker, 0.2, 0.1)

    def _limit(self, broker):
        """Bounds the page cache that a broker's files may take, whatever memory it has of its own."""
        return broker.group.limit(int(machine.status_mib(broker.pid, "RssAnon")) + CACHE_MIB)

    def _tools(self, step, _known):
        turns = {b.name: lambda b=b: self.tools.round(b, TOOL_RECORDS) for b in self.brokers}
        for turn in turns.values():
            turn()
        return {"samples": self._rounds(step, turns)}


def order(names, number):
    """Who begins changes from round to round, and who comes after whom: what one leaves behind meets all others."""
    turned = names[number % len(names):] + names[:number % len(names)]
    return turned if number % 2 == 0 else turned[:1] + turned[:0:-1]


def at_rate(rate):
    """Flags of an open loop. More in flight than a broker ever needs: the loop, not the window, sets the pace."""
    return ("--requests-per-second", rate, "--in-flight", 16)


def knee_of(known, name):
    """The rate that the search found before."""
    if "knee" not in known:
        raise RuntimeError("there is no knee to take a share of; see the step knee")
    return known["knee"]["knees"][name]["requests_s"]


def cold_method(limited):
    """How the backlog was made cold."""
    evicted = "the backlog was pushed out of the page cache before each round (fsync, POSIX_FADV_DONTNEED)"
    if all(limited.values()):
        return (f"each broker in a memory cgroup of its anonymous memory at that time plus {CACHE_MIB} MiB, a quarter "
                f"of the backlog, so that passes after the first are cold too; {evicted}")
    return (f"no memory cgroup could be had, so that passes after the first may be warm: {evicted}")


def is_durable(checked):
    """Whether a broker can have kept the promise, by the number of its syncs."""
    return checked["syncs"] * COVERED_MAX >= checked["acknowledged"]


def shown(sample):
    """A line about a sample."""
    words = []
    for key, unit in (("mb_s", "MB/s"), ("requests_s", "requests/s"), ("p99_us", "us p99"), ("p999_us", "us p99.9")):
        for name, value in sample.items():
            if name.endswith("." + key) and value is not None:
                words.append(f"{name.split('.')[0]} {value:.0f} {unit}")
    if sample.get("cpu_s_per_gb") is not None:
        words.append(f"broker {sample['cpu_s_per_gb']:.3f} CPU s/GB")
    return ", ".join(words)
