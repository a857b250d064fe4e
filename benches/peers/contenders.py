"""Who is measured: the origin and each peer, how it is configured, started and checked.

All peers get the same number of workers, keep-alive on both sides and no log. Without
Redis each has two limits, per address and global. With Redis the peers have one, per
address, and Weir has four, whatever its store is. They add no forwarding headers unless they always do, and no
rate headers unless they have them: where Weir does more work, it pays for it.
"""

import http.client
import re
import ssl
import time
from pathlib import Path

import certificate
import shared_redis
from install import MODULES
from paths import NARROW
from processes import Failure, Server, free_port

TEMPLATES = Path(__file__).resolve().parent / "templates"
BODY = '{"id":48211,"name":"a small answer","tags":["one","two","three"],"price":12.5,"stock":7,"active":true}'
STATUS_PATH = "/origin-status"

# The configuration first, then what it refers to.
FILES = {
    "origin": ["origin.conf"],
    "nginx": ["nginx.conf"],
    "haproxy": ["haproxy.cfg"],
    "nginx-lua": ["nginx-lua.conf"],
    "traefik": ["traefik.toml", "traefik-routes.toml"],
}

# A decision that Redis did not take must show as a failure, not pass as a quick one.
SHARED_STORE = """\
kind = "{kind}"
url = "redis://127.0.0.1:{redis.port}"
timeout = "1s"
on_error = "deny"
"""


# What a session costs is the same for both: one key exchange, one cipher, tickets.
NGINX_TLS = """\
ssl_certificate cert.pem;
        ssl_certificate_key key.pem;
        ssl_protocols TLSv1.3;
        ssl_session_cache shared:tls:10m;
        http2_max_concurrent_streams 128;"""


def start(name, program, directory, values, redis=None, path=None):
    """Starts one server on a port of its own and returns once it accepts. A Weir has the store of the path."""
    port = free_port()
    home = Path(directory, name)
    home.mkdir(parents=True)
    values = {"CONNECTIONS": 4096, **values, "PORT": port, "ADMIN_PORT": free_port(), "DIR": home, "LOG": home / "log",
              "MODULES": MODULES, "TEMPLATES": TEMPLATES, "REDIS_PORT": redis and redis.port}
    kind = path.store_of(name) if path else "memory"
    secured = bool(path and path.tls)
    if secured:
        certificate.make(home)
    values["NGINX_TLS"] = NGINX_TLS if secured else ""
    values["NGINX_LISTEN"] = " ssl http2" if secured else ""
    values["WEIR_TLS"] = 'tls = { cert = "cert.pem", key = "key.pem" }' if secured else ""
    values["STORE"] = SHARED_STORE.format(kind=kind, redis=redis) if redis else f'kind = "{kind}"'
    files = FILES.get(name) or ["weir-four-limits.toml" if path.redis else "weir.toml"]
    for file in files:
        (home / file).write_text(render((TEMPLATES / file).read_text(), values))
    config = home / files[0]
    nginx = [program, "-p", home, "-e", home / "log", "-c", config]
    command = {
        "origin": nginx,
        "nginx": nginx,
        "nginx-lua": nginx,
        "haproxy": [program, "-db", "-f", config],
        # A Go program has as many threads at work as this says.
        "traefik": ["env", f"GOMAXPROCS={values['WORKERS']}", program, f"--configFile={config}"],
    }.get(name) or [program, "run", "--config", config]
    server = Server(name, [str(part) for part in command], port, home / "log", redis, secured)
    return server.once_it_accepts()


def render(template, values):
    return re.sub(r"@([A-Z_]+)@", lambda found: str(values[found.group(1)]), template)


def answers(server, count, headers):
    """Statuses, bodies and openness of `count` requests sent over one connection."""
    connection = connect(server)
    seen = []
    try:
        for _ in range(count):
            connection.request("GET", "/item", headers=headers)
            response = connection.getresponse()
            seen.append((response.status, response.read().decode(errors="replace"), not response.will_close))
    except (OSError, http.client.HTTPException) as error:
        raise Failure(f"{server.name} does not answer: {error!r}\n{server.last_words()}") from error
    finally:
        connection.close()
    return seen


def connect(server):
    if not server.secured:
        return http.client.HTTPConnection("127.0.0.1", server.port, timeout=5)
    # The certificate is made for this run, and by nobody.
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    return http.client.HTTPSConnection("127.0.0.1", server.port, timeout=5, context=trusting)


def first_decision(server, headers, seconds=10):
    """The first status that a limit decided: routes and Redis may come after the port."""
    deadline = time.monotonic() + seconds
    while True:
        status, body, _ = answers(server, 1, headers)[0]
        if status in (200, 429):
            return status
        if time.monotonic() > deadline:
            raise Failure(f"{server.name} still answers {status}: {body[:200]!r}\n{server.last_words()}")
        time.sleep(0.02)


def check(server, path):
    """Stops the run if a peer does not do on this path what it is measured for."""
    first_decision(server, path.headers)
    # The first answers of a refusing path may still be admitted: that is the limit's one request.
    seen = answers(server, 6, path.headers)[2:]
    wanted = 200 if path.admits else 429
    for status, body, open_after in seen:
        if status != wanted:
            raise Failure(f"{server.name} answers {status} where the {path.name} path needs {wanted}: {body[:200]!r}")
        if path.admits and body != BODY:
            raise Failure(f"{server.name} does not pass the origin's body on: {body[:200]!r}")
        if not open_after:
            raise Failure(f"{server.name} closes the connection after a {status}: keep-alive is needed")


def check_sharing(name, path, programs, directory, values):
    """Stops the run unless what one process of a peer admits, another refuses by Redis.

    With one request an hour on both, the second can know of the first's only from there.
    """
    headers, started = path.headers, []
    try:
        redis = shared_redis.start(programs["redis-server"], Path(directory, "redis"))
        started.append(redis)
        settings = {**values, **NARROW}
        for part, wanted in (("one", 200), ("other", 429)):
            server = start(name, programs[name], Path(directory, part), settings, redis, path)
            started.append(server)
            status = first_decision(server, headers)
            if status != wanted:
                raise Failure(f"{name} does not share its limit by Redis: the {part} process answers {status}")
        if not shared_redis.keys(redis):
            raise Failure(f"{name} leaves no key in Redis")
    finally:
        for server in reversed(started):
            server.stop()


def origin_requests(origin):
    """How many requests the origin has served, by its own count."""
    connection = http.client.HTTPConnection("127.0.0.1", origin.port, timeout=5)
    try:
        connection.request("GET", STATUS_PATH)
        lines = connection.getresponse().read().decode().splitlines()
        return int(lines[2].split()[2])
    finally:
        connection.close()
