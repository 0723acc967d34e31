"""Peers that are asked for and may not be able to run the workloads."""

import os
import subprocess
import time
from pathlib import Path

from .brokers import api_versions, free_port

NOIDA_VERSION = "0.2.3"
# What the load generator sends: Produce 12 and Fetch 12, which Kafka has had since 3.9 and 2.7.
NEEDED = {0: ("Produce", 12), 1: ("Fetch", 12)}


def noida_db(folder):
    """Why noida-db has no column, found out by starting it."""
    name = f"noida-db {NOIDA_VERSION} (PyPI; keeps its data in memory and saves it to disk as it changes, another promise)"
    try:
        offered = noida_versions(Path(folder) / "noida-db")
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:
        return f"{name}: could not be had or did not start here: {error}"
    lacking = [f"{api} {version} (it offers {offered.get(key, 'none')})"
               for key, (api, version) in NEEDED.items() if offered.get(key, -1) < version]
    if lacking:
        return f"{name}: lacks {', '.join(lacking)}, which the load generator sends"
    return f"{name}: offers what the load generator sends, but its promise is no page-cache acknowledgement of a log on disk"


def noida_versions(folder):
    """Installs it into a folder of its own, starts it, and asks for the versions that it offers."""
    if not (folder / "bin/noida-db").exists():
        subprocess.run(["python3", "-m", "venv", folder], check=True, capture_output=True, timeout=120)
        subprocess.run([folder / "bin/pip", "--quiet", "--disable-pip-version-check", "install",
                        f"noida-db=={NOIDA_VERSION}"], check=True, capture_output=True, timeout=120)
    port = free_port()
    home = {**os.environ, "HOME": str(folder)}
    process = subprocess.Popen([folder / "bin/noida-db", "start", "--only", "kafka", "--kafka-port", str(port),
                                "--data-dir", folder / "data"], env=home, stdin=subprocess.DEVNULL,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        for _ in range(100):
            try:
                return api_versions(port)
            except OSError:
                time.sleep(0.1)
        raise RuntimeError("it does not answer")
    finally:
        os.killpg(process.pid, 15)
        process.wait(10)
