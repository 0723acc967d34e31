"""What was measured so far, on the disk, so that a comparison goes on where it was interrupted."""

import json
from pathlib import Path


class State:
    """Samples per workload and contender. A workload is kept once all its rounds are there."""

    def __init__(self, file, settings):
        self.file, self.settings, self.workloads = Path(file), settings, {}
        if self.file.exists():
            kept = json.loads(self.file.read_text())
            if kept["settings"] != settings:
                raise SystemExit(f"error: {self.file} is of other settings ({different(kept['settings'], settings)}); "
                                 "go on with those, or begin anew with --fresh")
            self.workloads = kept["workloads"]

    def has(self, name):
        """Whether the workload was measured."""
        return name in self.workloads

    def keep(self, name, result):
        """Keeps all of a workload at once: rounds of two runs are no pairs."""
        self.workloads[name] = result
        new = self.file.with_suffix(".new")
        new.write_text(json.dumps({"settings": self.settings, "workloads": self.workloads}, indent=1) + "\n")
        new.replace(self.file)


def different(a, b):
    """Names of the settings that differ."""
    return ", ".join(sorted(key for key in {*a, *b} if a.get(key) != b.get(key)))
