"""The paths that are measured: who is on each, by which limits, and how a request ends."""

from typing import NamedTuple

PEERS = ("nginx", "haproxy", "nginx-lua", "traefik", "weir", "weir-memory", "weir-redis", "weir-hybrid")
# Weir beside itself, with one configuration and three stores.
STORES = {"weir-memory": "memory", "weir-redis": "redis", "weir-hybrid": "hybrid"}


def is_weir(peer):
    return peer == "weir" or peer in STORES


class Path(NamedTuple):
    name: str
    peers: tuple
    # The limits in each peer's own words, for the templates.
    limits: dict
    admits: bool
    # Whether a Redis decides, or the peer by itself.
    redis: bool
    # What all requests carry.
    headers: dict = {}
    # How clients speak to the peers: in the clear, over TLS 1.3, or by HTTP/2 over it.
    protocol: str = "http"
    # The Weir that is compared, and its store.
    subject: str = "weir"
    # Its CPU a request is to be at most this share of the peer's.
    bounds: dict = {}
    # It is to make at most so many script calls a request.
    calls_bound: float | None = None

    def store_of(self, peer):
        """Which kind of store a Weir on this path has."""
        return STORES.get(peer, "redis" if self.redis else "memory")

    @property
    def tls(self):
        return self.protocol != "http"

    def weirs(self):
        return [peer for peer in self.peers if is_weir(peer)]

    def has_redis(self, peer):
        return self.redis and self.store_of(peer) != "memory"


WIDE = {
    "COUNT": "1000000",
    "SECONDS": "1",
    "NGINX_RATE": "1000000r/s",
    "NGINX_BURST": "burst=1000000 nodelay",
    "HAPROXY_PERIOD": "1s",
    "WEIR_RATE": "1000000/second",
}
NARROW = {
    "COUNT": "1",
    "SECONDS": "3600",
    "NGINX_RATE": "1r/m",
    "NGINX_BURST": "",
    "HAPROXY_PERIOD": "1h",
    "WEIR_RATE": "1/hour",
}
ALONE = ("nginx", "haproxy", "weir")
SHARING = ("nginx-lua", "traefik", "weir")
# One of Weir's four limits over Redis counts by it.
CALLER = {"X-Api-Key": "peers"}

PATHS = {path.name: path for path in (
    Path("admitted", ALONE, WIDE, admits=True, redis=False),
    Path("refused", ALONE, NARROW, admits=False, redis=False),
    Path("redis", SHARING, WIDE, admits=True, redis=True, headers=CALLER, bounds={"nginx-lua": 0.8, "traefik": 0.3}),
    Path("redis-refused", SHARING, NARROW, admits=False, redis=True, headers=CALLER),
    Path("hybrid", tuple(STORES), WIDE, admits=True, redis=True, headers=CALLER, subject="weir-hybrid",
         bounds={"weir-memory": 1.05, "weir-redis": 0.5}, calls_bound=0.02),
    Path("tls", ("nginx", "weir"), WIDE, admits=True, redis=False, protocol="tls", bounds={"nginx": 1.1}),
    Path("http2", ("nginx", "weir"), WIDE, admits=True, redis=False, protocol="http2", bounds={"nginx": 1.2}),
)}
# Those that need neither Redis nor anything from PyPI.
USUAL = ("admitted", "refused")
