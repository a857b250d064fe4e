"""Who is measured: the origin and each peer, how it is configured, started and checked.

All peers get the same number of workers, two limits (per address and global), keep-alive
on both sides and no log. They add no forwarding headers unless they always do, and no
rate headers unless they have them: where Weir does more work, it pays for it.
"""

import http.client
import os
import re
import shutil
import subprocess
from contextlib import contextmanager
from pathlib import Path

from processes import Failure, Server, free_port

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
BODY = '{"id":48211,"name":"a small answer","tags":["one","two","three"],"price":12.5,"stock":7,"active":true}'
STATUS_PATH = "/origin-status"
POLICY = "/usr/sbin/policy-rc.d"

# What each path's limits are called in each peer's own words.
PATHS = {
    "admitted": {
        "COUNT": "1000000",
        "NGINX_RATE": "1000000r/s",
        "NGINX_BURST": "burst=1000000 nodelay",
        "HAPROXY_PERIOD": "1s",
        "WEIR_RATE": "1000000/second",
    },
    "refused": {
        "COUNT": "1",
        "NGINX_RATE": "1r/m",
        "NGINX_BURST": "",
        "HAPROXY_PERIOD": "1h",
        "WEIR_RATE": "1/hour",
    },
}

PEERS = ("nginx", "haproxy", "weir")
TEMPLATES = {"nginx": "nginx.conf", "haproxy": "haproxy.cfg", "weir": "weir.toml", "origin": "origin.conf"}


def install(programs):
    """Installs the programs of Debian that are missing."""
    packages = {"nginx": "nginx-light", "haproxy": "haproxy", "wrk": "wrk", "strace": "strace"}
    missing = [packages[name] for name in programs if not find(name)]
    if not missing:
        return
    wish = "apt-get install --no-install-recommends " + " ".join(missing)
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise Failure(f"missing programs; install them first: {wish}")
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    with services_held_back():
        for command in (["apt-get", "update", "-q"], wish.split() + ["-y", "-q"]):
            done = subprocess.run(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            if done.returncode != 0:
                raise Failure(f"{' '.join(command)} failed:\n{done.stdout[-2000:]}")


@contextmanager
def services_held_back():
    """Keeps Debian from starting the service of a package at once, by the file it asks.

    A policy that is there already is the owner's and stays as it is.
    """
    try:
        descriptor = os.open(POLICY, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o755)
    except FileExistsError:
        yield
        return
    try:
        with open(descriptor, "w") as policy:
            policy.write("#!/bin/sh\nexit 101\n")
        yield
    finally:
        os.unlink(POLICY)


def find(program):
    # /usr/sbin is not on everyone's path.
    return shutil.which(program, path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")


def weir_binary():
    """$WEIR_BIN, or the release build of this checkout, brought up to date first."""
    given = os.environ.get("WEIR_BIN")
    if given:
        if not os.access(given, os.X_OK):
            raise Failure(f"WEIR_BIN={given} is not an executable file")
        return given
    if not shutil.which("cargo"):
        raise Failure("cargo is not installed: set WEIR_BIN, or leave Weir out with --only nginx,haproxy")
    if subprocess.run(["cargo", "build", "--release", "--quiet"], cwd=ROOT).returncode != 0:
        raise Failure("cargo build --release failed: set WEIR_BIN, or leave Weir out with --only nginx,haproxy")
    binary = Path(ROOT, os.environ.get("CARGO_TARGET_DIR", "target"), "release", "weir")
    if not binary.exists():
        raise Failure(f"cargo build --release left no {binary}")
    return str(binary)


def version_of(name, program):
    flag = {"nginx": "-v", "haproxy": "-v", "weir": "--version"}[name]
    done = subprocess.run([program, flag], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return (done.stdout.splitlines() or ["?"])[0]


def start(name, program, directory, values):
    """Starts one server on a port of its own and returns once it accepts."""
    port = free_port()
    home = Path(directory, name)
    home.mkdir(parents=True)
    values = {**values, "PORT": port, "ADMIN_PORT": free_port(), "DIR": home, "LOG": home / "log"}
    config = home / TEMPLATES[name]
    config.write_text(render((HERE / "templates" / TEMPLATES[name]).read_text(), values))
    command = {
        "origin": [program, "-p", home, "-e", home / "log", "-c", config],
        "nginx": [program, "-p", home, "-e", home / "log", "-c", config],
        "haproxy": [program, "-db", "-f", config],
        "weir": [program, "run", "--config", config],
    }[name]
    server = Server(name, [str(part) for part in command], port, home / "log")
    try:
        server.wait_until_it_accepts()
    except BaseException:
        server.stop()
        raise
    return server


def render(template, values):
    return re.sub(r"@([A-Z_]+)@", lambda found: str(values[found.group(1)]), template)


def answers(server, count):
    """Statuses, bodies and openness of `count` requests sent over one connection."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=5)
    seen = []
    try:
        for _ in range(count):
            connection.request("GET", "/item")
            response = connection.getresponse()
            seen.append((response.status, response.read().decode(errors="replace"), not response.will_close))
    except (OSError, http.client.HTTPException) as error:
        raise Failure(f"{server.name} does not answer: {error!r}\n{server.last_words()}") from error
    finally:
        connection.close()
    return seen


def check(server, path):
    """Stops the run if a peer does not do on this path what it is measured for."""
    # The first answers of the refused path may still be admitted: that is the limit's one request.
    seen = answers(server, 6)[2:]
    wanted = 200 if path == "admitted" else 429
    for status, body, open_after in seen:
        if status != wanted:
            raise Failure(f"{server.name} answers {status} where the {path} path needs {wanted}: {body[:200]!r}")
        if path == "admitted" and body != BODY:
            raise Failure(f"{server.name} does not pass the origin's body on: {body[:200]!r}")
        if not open_after:
            raise Failure(f"{server.name} closes the connection after a {status}: keep-alive is needed")


def origin_requests(origin):
    """How many requests the origin has served, by its own count."""
    connection = http.client.HTTPConnection("127.0.0.1", origin.port, timeout=5)
    try:
        connection.request("GET", STATUS_PATH)
        lines = connection.getresponse().read().decode().splitlines()
        return int(lines[2].split()[2])
    finally:
        connection.close()
