"""Calls of each kind through Weir to a server of gRPC."""

import queue
import unittest

import grpc
from gateway import SERVICE, server, unary, weir

FORWARDED = """
[upstreams.calls]
servers = ["http://127.0.0.1:%d"]
http2 = true
[limits.per-ip]
key = "ip"
rate = "1/hour"
burst = %d
[[routes]]
name = "calls"
path = "/*"
upstream = "calls"
limits = ["per-ip"]
"""


class Calls(unittest.TestCase):
    def test_messages_and_trailers_pass_both_ways(self):
        with server() as port, weir(FORWARDED % (port, 100)) as channel:
            self.assertEqual(unary(channel, b"hello"), (b"olleh", {"x-length": "5"}))
            large = b"x" * 3_000_000
            self.assertEqual(unary(channel, large)[0], large)

    def test_status_of_the_server_is_passed_on(self):
        with server() as port, weir(FORWARDED % (port, 100)) as channel:
            with self.assertRaises(grpc.RpcError) as raised:
                unary(channel, b"not this one")
            self.assertEqual(raised.exception.code(), grpc.StatusCode.FAILED_PRECONDITION)
            self.assertEqual(raised.exception.details(), "as you said")

    def test_streams_pass_in_either_direction(self):
        with server() as port, weir(FORWARDED % (port, 100)) as channel:
            down = channel.unary_stream(f"/{SERVICE}/Down")(b"500", timeout=20)
            self.assertEqual([int(number) for number in down], list(range(500)))
            up = channel.stream_unary(f"/{SERVICE}/Up")
            self.assertEqual(up((b"x" * 1000 for _ in range(500)), timeout=20), b"500000")

    def test_messages_of_both_sides_take_turns(self):
        with server() as port, weir(FORWARDED % (port, 100)) as channel:
            both = channel.stream_stream(f"/{SERVICE}/Both")
            words = queue.SimpleQueue()
            answers = both(iter(words.get, None), timeout=20)
            for word in [b"one", b"two", b"three"]:
                words.put(word)
                self.assertEqual(next(answers), word.upper())
            words.put(None)
            self.assertEqual(list(answers), [])

    def test_calls_beyond_the_burst_are_refused_on_one_connection(self):
        with server() as port, weir(FORWARDED % (port, 20)) as channel:
            calls = [channel.unary_unary(f"/{SERVICE}/Unary").future(b"x", timeout=20) for _ in range(50)]
            codes = [call.code() for call in calls]
            self.assertEqual(codes.count(grpc.StatusCode.OK), 20)
            self.assertEqual(codes.count(grpc.StatusCode.RESOURCE_EXHAUSTED), 30)

    def test_calls_that_are_left_after_a_message_end_no_other(self):
        with server() as port, weir(FORWARDED % (port, 5000)) as channel:
            words = queue.SimpleQueue()
            kept = channel.stream_stream(f"/{SERVICE}/Both")(iter(words.get, None))
            words.put(b"one")
            self.assertEqual(next(kept), b"ONE")
            for _ in range(1000):
                left = channel.unary_stream(f"/{SERVICE}/Down")(b"1000000", timeout=20)
                self.assertEqual(next(left), b"0")
                left.cancel()
            words.put(b"two")
            self.assertEqual(next(kept), b"TWO")
            words.put(None)


if __name__ == "__main__":
    unittest.main()
