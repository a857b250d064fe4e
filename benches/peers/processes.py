"""Servers as child processes, and what /proc says about each one's whole tree.

Everything started here runs in the foreground of its own session and is ended by
its process id, together with its children, however the run ends.
"""

import os
import signal
import socket
import subprocess
import time

TICK = os.sysconf("SC_CLK_TCK")


class Failure(Exception):
    """A reason to stop the run, worded for whoever started it."""


class Server:
    """A running server: one command, one log file, one port to wait for, perhaps a Redis behind it, perhaps TLS."""

    def __init__(self, name, command, port, log, redis=None, secured=False):
        self.name, self.port, self.log, self.redis, self.secured = name, port, log, redis, secured
        with open(log, "ab") as out:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
            )

    def once_it_accepts(self):
        """The server itself, or none that is left running."""
        try:
            self.wait_until_it_accepts()
        except BaseException:
            self.stop()
            raise
        return self

    def wait_until_it_accepts(self, seconds=15):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise Failure(f"{self.name} ended with {self.process.returncode} at start\n{self.last_words()}")
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return
            except OSError:
                time.sleep(0.02)
        raise Failure(f"{self.name} did not accept within {seconds} s\n{self.last_words()}")

    def last_words(self):
        with open(self.log, "rb") as log:
            return log.read().decode(errors="replace")[-2000:].strip()

    def tree(self):
        return tree_of(self.process.pid)

    def stop(self):
        if self.process.poll() is not None:
            return
        pids = self.tree()
        self.process.terminate()
        try:
            self.process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            # The parent goes first, or it would start its workers again.
            for pid in pids:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            self.process.wait()


def stat_of(pid):
    """Fields of /proc/<pid>/stat after the name, or None once the process is gone."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            # The name is in parentheses and may itself hold spaces and parentheses.
            return stat.read().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None


def tree_of(root):
    """The process and all its live descendants, parents before children."""
    children = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            stat = stat_of(entry)
            if stat:
                children.setdefault(int(stat[1]), []).append(int(entry))
    pids, at = [root], 0
    while at < len(pids):
        pids += children.get(pids[at], [])
        at += 1
    return pids


def cpu_of(pids):
    """(user, system) seconds spent so far.

    /proc/<pid>/stat covers all threads of a process. The time of children that were
    waited for is added, so that one which ends in between is not lost.
    """
    user = system = 0
    for pid in pids:
        stat = stat_of(pid)
        if stat:
            user += int(stat[11]) + int(stat[13])
            system += int(stat[12]) + int(stat[14])
    return user / TICK, system / TICK


def machine_busy():
    """Seconds all cores together spent on anything but idling, stolen time included."""
    with open("/proc/stat") as stat:
        user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, stat.readline().split()[1:9])
    return (user + nice + system + irq + softirq + steal) / TICK


def memory_of(pids):
    """(MiB, "Pss" or "RSS") of a tree. Pss counts what workers share once."""
    for measure, file, name in (("Pss", "smaps_rollup", "Pss:"), ("RSS", "status", "VmRSS:")):
        try:
            kib = 0
            for pid in pids:
                with open(f"/proc/{pid}/{file}") as lines:
                    kib += sum(int(line.split()[1]) for line in lines if line.startswith(name))
            return kib / 1024, measure
        except OSError:
            continue
    raise Failure("neither smaps_rollup nor status can be read in /proc")


def free_port():
    """A loopback port that was free a moment ago; nginx and HAProxy cannot report port 0."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
