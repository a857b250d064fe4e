"""A Weir of its own, and a gRPC server behind it."""

import contextlib
import os
import re
import subprocess
import tempfile
from concurrent import futures
from pathlib import Path

import grpc

SERVICE = "test.Echo"


class Calls(grpc.GenericRpcHandler):
    """One method of each kind, on plain bytes, so that nothing has to be compiled."""

    def service(self, call):
        methods = {
            f"/{SERVICE}/Unary": grpc.unary_unary_rpc_method_handler(self.unary),
            f"/{SERVICE}/Down": grpc.unary_stream_rpc_method_handler(self.down),
            f"/{SERVICE}/Up": grpc.stream_unary_rpc_method_handler(self.up),
            f"/{SERVICE}/Both": grpc.stream_stream_rpc_method_handler(self.both),
        }
        return methods.get(call.method)

    def unary(self, message, context):
        context.set_trailing_metadata([("x-length", str(len(message)))])
        if message == b"not this one":
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, "as you said")
        return message[::-1]

    def down(self, message, _context):
        for number in range(int(message)):
            yield str(number).encode()

    def up(self, messages, _context):
        return str(sum(len(message) for message in messages)).encode()

    def both(self, messages, _context):
        for message in messages:
            yield message.upper()


@contextlib.contextmanager
def server():
    """The port of a server, until the end of the block."""
    serving = grpc.server(futures.ThreadPoolExecutor(8), handlers=[Calls()])
    port = serving.add_insecure_port("127.0.0.1:0")
    serving.start()
    try:
        yield port
    finally:
        serving.stop(None).wait()


@contextlib.contextmanager
def weir(configuration):
    """A channel to a gateway with this configuration besides its listeners."""
    with tempfile.TemporaryDirectory() as folder:
        file, log = Path(folder, "weir.toml"), Path(folder, "log")
        listeners = '[server]\nlisten = "127.0.0.1:0"\n[admin]\nlisten = "127.0.0.1:0"\n'
        file.write_text(listeners + configuration)
        with open(log, "w") as output:
            process = subprocess.Popen([os.environ["WEIR_BIN"], "--config", file], stderr=output, stdout=output)
        try:
            address = listening(process, log)
            with grpc.insecure_channel(address) as channel:
                yield channel
        finally:
            process.terminate()
            process.wait(20)


def listening(process, log):
    """Where it listens, once it does."""
    for _ in range(2000):
        found = re.search(r"listening on http://(\S+)", log.read_text())
        if found:
            return found[1]
        try:
            process.wait(0.01)
        except subprocess.TimeoutExpired:
            continue
        break
    raise AssertionError(f"no gateway: {log.read_text()}")


def unary(channel, message, timeout=20):
    """The answer to one call, and its trailers."""
    answer, call = channel.unary_unary(f"/{SERVICE}/Unary").with_call(message, timeout=timeout)
    return answer, dict(call.trailing_metadata())
