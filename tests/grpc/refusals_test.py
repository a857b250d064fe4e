"""What a gRPC client hears from Weir itself."""

import unittest

import grpc
from gateway import weir

LIMITED = """
[limits.per-ip]
key = "ip"
rate = "1/hour"
burst = 1
%s
[[routes]]
name = "free"
path = "/test.Free/*"
upstream = "echo"
[[routes]]
name = "calls"
path = "/test.Echo/*"
upstream = "%s"
limits = ["per-ip"]
"""
DEAD = '[upstreams.dead]\nservers = ["http://127.0.0.1:1"]\n'


class Refusals(unittest.TestCase):
    def failure(self, channel, method="/test.Echo/Unary"):
        with self.assertRaises(grpc.RpcError) as raised:
            channel.unary_unary(method)(b"hello", timeout=20)
        return raised.exception

    def test_refused_call_is_exhausted_and_says_when_to_retry(self):
        with weir(LIMITED % ("", "echo")) as channel:
            self.failure(channel)
            refused = self.failure(channel)
            self.assertEqual(refused.code(), grpc.StatusCode.RESOURCE_EXHAUSTED)
            self.assertRegex(refused.details(), r"^Too many requests. Please retry after \d+ seconds.$")
            told = dict(refused.trailing_metadata())
            self.assertIn(int(told["retry-after"]), range(3500, 3601))

    def test_message_of_a_limit_arrives_as_it_was_written(self):
        with weir(LIMITED % ('status = 503\nmessage = "Für heute 100% erreicht."', "echo")) as channel:
            self.failure(channel)
            refused = self.failure(channel)
            self.assertEqual(refused.code(), grpc.StatusCode.RESOURCE_EXHAUSTED)
            self.assertEqual(refused.details(), "Für heute 100% erreicht.")

    def test_dead_upstream_is_unavailable(self):
        with weir(DEAD + LIMITED % ("", "dead")) as channel:
            self.assertEqual(self.failure(channel).code(), grpc.StatusCode.UNAVAILABLE)

    def test_call_without_a_route_is_unimplemented(self):
        with weir(LIMITED % ("", "echo")) as channel:
            self.assertEqual(self.failure(channel, "/test.Other/Unary").code(), grpc.StatusCode.UNIMPLEMENTED)


if __name__ == "__main__":
    unittest.main()
