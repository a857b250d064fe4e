"""Requests by HTTP/2: h2load, with several streams on each connection."""

import os
import re
import subprocess
import tempfile
from statistics import quantiles

from install import find
from processes import Failure

# Streams on each connection at a time.
STREAMS = 10


def load(server, path, seconds, connections):
    """Runs h2load once. Returns what wrk's summary has, and the CPU seconds it took itself."""
    with tempfile.NamedTemporaryFile("r") as log:
        command = [find("h2load"), "-t1", f"-c{connections}", f"-m{STREAMS}", f"-D{seconds}", f"--log-file={log.name}"]
        for name, value in path.headers.items():
            command += ["-H", f"{name}: {value}"]
        command += [f"https://127.0.0.1:{server.port}/item"]
        before = os.times()
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        after = os.times()
        # A line a request: when it began, its status, how long it took, in microseconds.
        rows = [line.split() for line in log.read().splitlines()]
    said = done.stdout
    counts = re.search(r"^requests: .* (\d+) done, (\d+) succeeded, (\d+) failed, (\d+) errored, (\d+) timeout", said, re.M)
    if done.returncode != 0 or not counts or not rows:
        raise Failure(f"h2load failed against {server.name}:\n{said[-2000:]}")
    if "Application protocol: h2" not in said:
        raise Failure(f"{server.name} does not speak HTTP/2:\n{said[:2000]}")
    finished, succeeded, _failed, errored, timed_out = map(int, counts.groups())
    spent = after.children_user + after.children_system - before.children_user - before.children_system
    percentiles = quantiles((int(row[2]) for row in rows), n=100)
    # What was under way when the time was up counts as errored.
    in_flight = connections * STREAMS
    return {
        "requests": finished,
        "duration_us": seconds * 1_000_000,
        "p50_us": percentiles[49],
        "p99_us": percentiles[98],
        "refused_or_failed": finished - succeeded,
        "socket_errors": max(0, errored + timed_out - in_flight),
    }, spent
