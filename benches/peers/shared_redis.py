"""The Redis behind a peer: a process of its own, and what it says about the work it had.

Each peer has its own, so that whatever Redis spent in a round was spent for that peer.
"""

import socket

from processes import Failure, Server, free_port

# EVAL and FCALL count as well: how a peer calls its script is its own business.
SCRIPT_CALLS = ("eval", "evalsha", "eval_ro", "evalsha_ro", "fcall", "fcall_ro")


def start(program, directory):
    """A Redis that keeps nothing on disk, and answers."""
    port = free_port()
    directory.mkdir(parents=True)
    command = [program, "--bind", "127.0.0.1", "--port", str(port), "--save", "", "--appendonly", "no",
               "--dir", str(directory)]
    redis = Server("redis-server", command, port, directory / "log")
    return redis.once_it_accepts()


def ask(redis, command):
    """The answer to one command: a line, or the text it announces."""
    with socket.create_connection(("127.0.0.1", redis.port), timeout=5) as connection:
        connection.sendall(command.encode() + b"\r\n")
        answer = connection.makefile("rb")
        line = answer.readline().decode().rstrip()
        if line.startswith("-") or not line:
            raise Failure(f"redis-server answers {line!r} to {command}")
        if line.startswith("$"):
            return answer.read(int(line[1:])).decode()
        return line[1:]


def keys(redis):
    return int(ask(redis, "DBSIZE"))


def commands(redis):
    """{name: calls} so far, without these questions. What scripts call is counted too."""
    calls = {}
    for line in ask(redis, "INFO commandstats").splitlines():
        if line.startswith("cmdstat_"):
            name, _, rest = line.removeprefix("cmdstat_").partition(":calls=")
            calls[name] = int(rest.partition(",")[0])
    for own in ("info", "dbsize"):
        calls.pop(own, None)
    return calls


def calls_since(redis, before):
    """(script calls, commands of any kind) since `before`."""
    now = commands(redis)
    scripts = sum(now.get(name, 0) - before.get(name, 0) for name in SCRIPT_CALLS)
    return scripts, sum(now.values()) - sum(before.values())
