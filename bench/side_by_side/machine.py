"""What the kernel says of processes, memory and disks, and where processes are put."""

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

CGROUP_ROOT = Path("/sys/fs/cgroup")
DIRTY_KIB_MAX = 64 * 1024
# Until strace has attached to all threads.
TRACER_SECONDS = 1.0
# More than such a part of the memory free: the page cache is filled again.
FREE_MEMORY_SHARE_MIN = 4
FREE_MIB_LEFT = 1024
DISK_MIB_LEFT = 24 * 1024


def status_mib(pid, key):
    """A memory field of /proc/PID/status, such as VmRSS, in MiB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"process {pid} has no {key}")


def cpu_seconds(pid):
    """User plus system time of all its threads, from /proc/PID/stat."""
    after_name = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(after_name[11]) + int(after_name[12])) / os.sysconf("SC_CLK_TCK")


def settle(at_most):
    """Waits until little is dirty, so that one run's writeback does not weigh on the next; so many seconds at most."""
    end = time.monotonic() + at_most
    while time.monotonic() < end:
        if meminfo_kib("Dirty") + meminfo_kib("Writeback") < DIRTY_KIB_MAX:
            return
        time.sleep(0.1)


class PageCache:
    """A file that fills the memory nobody uses. A machine that has run a broker for a while has no free pages: every page that
    is written takes the place of an older one. A virtual machine that was started a moment ago has to be given its
    pages by its host instead, which costs each broker several times as much, whichever happens to be first."""

    def __init__(self, file):
        self.file = Path(file)

    def fill(self):
        """Reads the file, and makes it longer where that is too little and the disk has room. Nothing where little memory is
        free. Returns MiB that were filled."""
        before = free_mib()
        if before * FREE_MEMORY_SHARE_MIN < meminfo_kib("MemTotal") // 1024:
            return 0
        chunk = bytearray(1 << 20)
        with self.file.open("a+b", buffering=0) as file:
            file.seek(0)
            while free_mib() > FREE_MIB_LEFT and file.readinto(chunk):
                pass
            file.seek(0, os.SEEK_END)
            room = shutil.disk_usage(self.file.parent).free // (1 << 20) - DISK_MIB_LEFT
            for _ in range(max(min(free_mib() - FREE_MIB_LEFT, room), 0)):
                file.write(bytes(1 << 20))
            os.fsync(file.fileno())
        return max(before - free_mib(), 0)

    def remove(self):
        """Removes the file."""
        self.file.unlink(missing_ok=True)


class FreePageReporting:
    """What has a virtual machine's host take free memory back (virtio-balloon): gigabytes, seconds after a topic is deleted.
    Whoever writes next has the host map it again, at ten times the cost of the write. For as long as this is held no block of
    free pages is large enough to be told of. `said` is how it went, for the report; tuning/guest-memory is the same for good."""

    LARGER_THAN_ANY = 11

    def __init__(self, order_file="/sys/module/page_reporting/parameters/page_reporting_order"):
        self.file = Path(order_file)
        self.order = None
        self.said = "not asked for by the host"

    def __enter__(self):
        try:
            order = int(self.file.read_text())
        except OSError:
            return self
        if order >= self.LARGER_THAN_ANY:
            return self
        try:
            self.file.write_text(str(self.LARGER_THAN_ANY))
            self.order = order
            self.said = f"off for this run (page_reporting_order {order} before)"
        except OSError as error:
            self.said = f"on (page_reporting_order {order}), which favours whoever writes where another has just freed: {error}"
        return self

    def __exit__(self, *_):
        if self.order is not None:
            self.file.write_text(str(self.order))


def free_mib():
    """Memory that is used for nothing, not for the page cache either."""
    return meminfo_kib("MemFree") // 1024


def meminfo_kib(key):
    """A field of /proc/meminfo, such as MemFree, in KiB."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1])
    raise RuntimeError(f"/proc/meminfo has no {key}")


def syncs_during(pid, folder, work):
    """Counts the fsync and fdatasync calls of all threads of a process while `work()` runs, by strace, which slows the
    process down. None where strace can not be had or may not look."""
    summary = Path(folder) / "strace.txt"
    command = ["strace", "-f", "-q", "-c", "-e", "trace=fsync,fdatasync", "-o", str(summary), "-p", str(pid)]
    try:
        tracer = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    except OSError:
        return None
    time.sleep(TRACER_SECONDS)
    try:
        if tracer.poll() is None:
            work()
            tracer.send_signal(signal.SIGINT)
    finally:
        tracer.wait(30)
    return calls_in(summary.read_text()) if summary.exists() else None


def calls_in(summary):
    """Calls in a summary of strace -c."""
    rows = [line.split() for line in summary.splitlines()]
    return sum(int(row[3]) for row in rows if row and row[-1] in ("fsync", "fdatasync"))


def on_cpu(cpu, command):
    """The command confined to one CPU; anywhere when cpu is None."""
    return command if cpu is None else ["taskset", "-c", str(cpu), *command]


def commit(root):
    """Commit of the checkout, with a plus when there are changes."""
    def git(*words):
        done = subprocess.run(["git", "-C", root, *words], capture_output=True, text=True)
        return done.stdout.strip()
    return git("rev-parse", "HEAD") + ("+" if git("status", "--porcelain") else "")


def description(root):
    """Commit, kernel, CPU and memory, for the report."""
    model = "unknown"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
            break
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // (1 << 20)
    return {
        "commit": commit(root),
        "kernel": os.uname().release,
        "cpu": model,
        "cpus": len(os.sched_getaffinity(0)),
        "memory_mib": memory,
    }


class MemoryGroup:
    """A memory cgroup of one broker, version 1 or 2. It bounds the page cache that the broker's files may take."""

    def __init__(self, name):
        self.folder, self.limit_file = None, None
        second = CGROUP_ROOT / "cgroup.controllers"
        try:
            if second.exists() and "memory" in second.read_text().split():
                (CGROUP_ROOT / "cgroup.subtree_control").write_text("+memory")
                self._make(CGROUP_ROOT / name, "memory.max", "max")
            elif (CGROUP_ROOT / "memory").is_dir():
                self._make(CGROUP_ROOT / "memory" / name, "memory.limit_in_bytes", "-1")
        except OSError:
            self.folder = None

    def _make(self, folder, limit_file, unlimited):
        folder.mkdir(exist_ok=True)
        self.folder, self.limit_file, self.unlimited = folder, folder / limit_file, unlimited

    def add(self, pid):
        """Puts a process into the group; what it has already stays charged elsewhere."""
        if self.folder is not None:
            (self.folder / "cgroup.procs").write_text(str(pid))

    def limit(self, mib):
        """Bounds the group; says whether that worked. Pages above the limit are dropped at once."""
        if self.folder is None:
            return False
        for _ in range(10):
            try:
                self.limit_file.write_text(str(mib << 20))
                return True
            except OSError:
                os.sync()  # dirty pages can not be dropped
        return False

    def unlimit(self):
        """Takes the bound away."""
        if self.folder is not None:
            self.limit_file.write_text(self.unlimited)

    def remove(self):
        """Removes the group after its processes have ended."""
        if self.folder is not None:
            try:
                self.folder.rmdir()
            except OSError:
                pass  # a process is still ending; the empty group does no harm
