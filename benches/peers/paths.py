"""The paths that are measured: who is on each, by which limits, and how a request ends."""

from typing import NamedTuple

PEERS = ("nginx", "haproxy", "nginx-lua", "traefik", "weir")


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
    # Weir's CPU a request is to be at most this share of the peer's.
    bounds: dict = {}


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
)}
# Those that need neither Redis nor anything from PyPI.
USUAL = ("admitted", "refused")
