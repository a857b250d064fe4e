"""Callers: plain HTTP over loopback, one connection a request."""

import http.client
import json
import socket
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import panels


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    def json(self):
        return json.loads(self.body)


def ask(port, path="/", method="GET", headers=None, body=None, timeout=20):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        connection.request(method, path, body=body, headers=headers or {})
        response = connection.getresponse()
        return Answer(response.status, response.headers, response.read().decode(errors="replace"))
    finally:
        connection.close()


def outcome(port, path="/", **how):
    """The status of an answer, or the error that came instead."""
    try:
        return ask(port, path, **how).status
    except (OSError, http.client.HTTPException) as error:
        return type(error).__name__


def at_once(count, port, path="/", threads=16, **how):
    """So many requests from several callers at a time: how many ended how."""
    with ThreadPoolExecutor(threads) as pool:
        return Counter(pool.map(lambda _: outcome(port, path, **how), range(count)))


def query(port, expression):
    """What Prometheus answers to a query now."""
    data, fault = panels.got(f"http://127.0.0.1:{port}", "query", query=expression)
    if fault:
        raise ValueError(f"{expression}: {fault}")
    return data["result"]


class Load:
    """Requests at a steady pace for as long as something else happens."""

    def __init__(self, port, path, pace=0.02, threads=4, **how):
        self.port, self.path, self.pace, self.threads, self.how = port, path, pace, threads, how
        self.seen = Counter()

    def __enter__(self):
        self.until = time.monotonic() + 120
        self.pool = ThreadPoolExecutor(self.threads)
        self.tasks = [self.pool.submit(self.send) for _ in range(self.threads)]
        return self

    def send(self):
        seen = Counter()
        while time.monotonic() < self.until:
            seen[outcome(self.port, self.path, **self.how)] += 1
            time.sleep(self.pace)
        return seen

    def __exit__(self, *_):
        self.until = 0
        for task in self.tasks:
            self.seen += task.result()
        self.pool.shutdown()


class SlowUpload:
    """A request whose body arrives piece by piece, so that it is in flight for as long as it takes."""

    def __init__(self, port, pieces=8):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        self.left = pieces
        head = f"POST /slow HTTP/1.1\r\nHost: localhost\r\nContent-Length: {pieces}\r\n\r\n"
        self.socket.sendall(head.encode())
        self.piece()

    def piece(self):
        self.socket.sendall(b"x")
        self.left -= 1

    def finish(self):
        while self.left:
            self.piece()
            time.sleep(0.3)
        response = http.client.HTTPResponse(self.socket)
        response.begin()
        answer = Answer(response.status, response.headers, response.read().decode(errors="replace"))
        self.socket.close()
        return answer
