"""One round: wrk or h2load against one server, with the CPU time that server's tree spent on it."""

import json
import os
import re
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import contenders
import h2load
import shared_redis
from install import find
from processes import Failure, cpu_of, machine_busy, memory_of

SUMMARY = Path(__file__).resolve().parent / "summary.lua"


def load(server, path, seconds, connections):
    """Runs the client once. Returns its summary and the CPU seconds it took itself."""
    if path.protocol == "http2":
        return h2load.load(server, path, seconds, connections)
    scheme = "https" if path.tls else "http"
    command = [find("wrk"), "-t1", f"-c{connections}", f"-d{seconds}s", "--latency"]
    for name, value in path.headers.items():
        command += ["-H", f"{name}: {value}"]
    command += ["-s", str(SUMMARY), f"{scheme}://127.0.0.1:{server.port}/item"]
    before = os.times()
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    after = os.times()
    summary = re.search(r"^SUMMARY (.*)$", done.stdout, re.MULTILINE)
    if done.returncode != 0 or not summary:
        raise Failure(f"wrk failed against {server.name}:\n{done.stdout[-2000:]}")
    spent = after.children_user + after.children_system - before.children_user - before.children_system
    return json.loads(summary.group(1)), spent


def round_of(server, origin, path, seconds, connections):
    """Measures one round and checks that all of it was of this path."""
    served = contenders.origin_requests(origin)
    pids, origin_pids = server.tree(), origin.tree()
    redis_pids = server.redis.tree() if server.redis else []
    redis_before = shared_redis.commands(server.redis) if server.redis else None
    busy, began = machine_busy(), time.monotonic()
    cpu, origin_cpu, redis_cpu = cpu_of(pids), sum(cpu_of(origin_pids)), sum(cpu_of(redis_pids))
    wrk, wrk_cpu = load(server, path, seconds, connections)
    user, system = (after - before for after, before in zip(cpu_of(pids), cpu))
    origin_spent = sum(cpu_of(origin_pids)) - origin_cpu
    redis_spent = sum(cpu_of(redis_pids)) - redis_cpu
    elapsed, busy = time.monotonic() - began, machine_busy() - busy
    # The question itself is one of the requests the origin counts.
    served = contenders.origin_requests(origin) - served - 1
    verify(server, path, wrk, served, connections)

    requests = wrk["requests"]
    ours = user + system + wrk_cpu + redis_spent + (0 if server is origin else origin_spent)
    memory, measure = memory_of(pids)
    figures = {
        "cpu_us": (user + system) * 1e6 / requests,
        "user_us": user * 1e6 / requests,
        "system_us": system * 1e6 / requests,
        "rps": requests * 1e6 / wrk["duration_us"],
        "p50_ms": wrk["p50_us"] / 1e3,
        "p99_ms": wrk["p99_us"] / 1e3,
        "memory_mib": memory,
        "memory_measure": measure,
        "requests": requests,
        "refused_or_failed": wrk["refused_or_failed"],
        "socket_errors": wrk["socket_errors"],
        "origin_requests": served,
        "origin_cpu_us": origin_spent * 1e6 / requests,
        "wrk_cpu_us": wrk_cpu * 1e6 / requests,
        # What the machine did meanwhile that was none of this run's business.
        "foreign_share": max(0.0, (busy - ours) / (elapsed * os.cpu_count())),
    }
    if server.redis:
        scripts, commands = shared_redis.calls_since(server.redis, redis_before)
        if path.admits and not scripts:
            raise Failure(f"{server.name} admitted {requests} requests without asking Redis")
        figures |= {
            "redis_us": redis_spent * 1e6 / requests,
            "both_us": (user + system + redis_spent) * 1e6 / requests,
            "redis_us_call": redis_spent * 1e6 / scripts if scripts else 0.0,
            "redis_calls": scripts / requests,
            "redis_commands": commands / requests,
        }
    return figures


def verify(server, path, wrk, served, connections):
    requests, other = wrk["requests"], wrk["refused_or_failed"]
    if not requests:
        raise Failure(f"{server.name} answered nothing")
    if wrk["socket_errors"]:
        raise Failure(f"{server.name}: {wrk['socket_errors']} socket errors in {requests} requests")
    if path.admits:
        if other:
            raise Failure(f"{server.name}: {other} of {requests} answers on the {path.name} path were not 2xx")
        # What was in flight when wrk stopped reached the origin and not wrk.
        if not requests <= served <= requests + 2 * connections * h2load.STREAMS:
            raise Failure(f"{server.name}: the origin served {served} requests, wrk counted {requests}")
    else:
        if other < requests * 0.999:
            raise Failure(f"{server.name}: only {other} of {requests} answers on the {path.name} path were refusals")
        if served > requests * 0.001 + 1:
            raise Failure(f"{server.name}: {served} of {requests} requests on the {path.name} path reached the origin")


def syscalls(server, path, seconds, connections):
    """System calls a request, by strace: {name: calls a request}, most frequent first.

    Tracing slows the server down, so that it finds more work at each wake-up than it
    would in a measured round: take the figures as an order, not to the decimal.
    """
    with tempfile.NamedTemporaryFile("r") as table:
        command = [find("strace"), "-c", "-f", "-o", table.name]
        for pid in server.tree():
            command += ["-p", str(pid)]
        strace = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
        try:
            # strace says so once for each process it has attached to.
            for _ in server.tree():
                if "attached" not in strace.stderr.readline():
                    raise Failure(f"strace could not attach to {server.name}")
            wrk, _ = load(server, path, seconds, connections)
        finally:
            strace.send_signal(signal.SIGINT)
            strace.communicate()
        rows = [line.split() for line in table.read().splitlines()]
    calls = {row[-1]: int(row[3]) for row in rows if len(row) >= 5 and row[3].isdigit() and row[-1] != "total"}
    return {name: count / wrk["requests"] for name, count in sorted(calls.items(), key=lambda item: -item[1])}
