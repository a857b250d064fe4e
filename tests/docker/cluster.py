"""Claims about the profile `cluster`: three gateways behind one address, with secrets."""

import itertools
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from client import Load, ask, at_once, outcome, query
from compose import wait_for
from deployment import PARTNER_BURST, edited, quota
from report import holds

NODES = ("node-1", "node-2", "node-3")
SECRETS = {"WEIR_ADMIN_TOKEN": "a-token-of-the-test", "WEIR_REDIS_PASSWORD": "a password of the test"}
# For keys that have asked for nothing yet.
NAMES = itertools.count()


def three_gateways_come_up_behind_one_address(project):
    project.secrets = SECRETS
    project.run("up", "-d", "gateway", "prometheus", "balancer", *NODES, profile="cluster")
    project.becomes_healthy("balancer", "gateway", "prometheus", *NODES)
    names = gateways_behind(project.ports["WEIR_CLUSTER_PORT"])
    holds(len(names) == 3, names)


def the_token_and_the_password_of_the_environment_are_asked_for(project):
    admin = project.ports["WEIR_ADMIN_PORT"]
    holds(ask(admin, "/v1/overrides").status == 401)
    right = {"authorization": f"Bearer {SECRETS['WEIR_ADMIN_TOKEN']}"}
    holds(ask(admin, "/v1/overrides", headers=right).status == 200)
    holds(ask(admin, "/metrics").status == 200, "metrics take no token")
    holds(ask(admin, "/readyz").json()["status"] == "ready", "the gateway has logged in to Redis")
    said = project.run("exec", "-T", "-e", "REDISCLI_AUTH=", "redis", "redis-cli", "get", "x", check=False)
    holds("NOAUTH" in said, said)


def a_burst_is_shared_exactly_over_the_gateways(project):
    port = project.ports["WEIR_CLUSTER_PORT"]
    for name in ("one", "two", "three"):
        key = {"x-api-key": f"exact-{name}"}
        with ThreadPoolExecutor(24) as pool:
            answers = list(pool.map(lambda _: ask(port, "/partners/", headers=key), range(300)))
        seen = Counter(answer.status for answer in answers)
        holds(seen == {200: PARTNER_BURST, 429: 200}, seen)
        admitted = Counter(gateway_of(answer) for answer in answers if answer.status == 200)
        holds(len(admitted) == 3, admitted)
        # And the one that stands by itself knows of it.
        holds(outcome(project.ports["WEIR_PORT"], "/partners/", headers=key) == 429)


def callers_are_told_apart_behind_the_balancer_and_cannot_pass_for_others(project):
    port = project.ports["WEIR_CLUSTER_PORT"]
    at_once(40, port)
    forged = [outcome(port, headers={"x-forwarded-for": f"198.51.100.{n}"}) for n in range(12)]
    holds(forged.count(429) >= 9, forged)
    said = project.run("exec", "-T", "prometheus", "wget", "-q", "-O", "-", "http://balancer:8080/", profile="cluster")
    holds('"path": "/"' in said, said)


def one_edit_changes_all_gateways(project):
    port = project.ports["WEIR_CLUSTER_PORT"]
    with edited(project, "burst = 100", "burst = 40"):
        wait_for(lambda: {quota(port) for _ in range(9)} == {40}, "all to follow", explain=project.last_words)
    wait_for(lambda: {quota(port) for _ in range(9)} == {PARTNER_BURST}, "all to follow back")


def killing_a_gateway_fails_nobody_and_gives_nobody_more(project):
    port, key = project.ports["WEIR_CLUSTER_PORT"], {"x-api-key": "killed"}
    with Load(port, "/partners/", headers=key) as load:
        wait_for(lambda: outcome(port, "/partners/", headers=key) == 429, "the burst to be spent")
        project.run("kill", "node-2", profile="cluster")
        time.sleep(4)
    holds(set(load.seen) == {200, 429}, load.seen)
    holds(load.seen[200] <= PARTNER_BURST, load.seen)
    answers = at_once(300, port, "/partners/", headers={"x-api-key": "two-left"})
    holds(answers == {200: PARTNER_BURST, 429: 200}, answers)
    project.run("up", "-d", "node-2", profile="cluster")
    project.becomes_healthy("node-2")


def restarting_redis_fails_nobody(project):
    port, key = project.ports["WEIR_CLUSTER_PORT"], {"x-api-key": "restarted"}
    # Without Redis a gateway has its share of a key that it has not heard of: each has to hear of this
    # one. The balancer leaves a gateway out for some seconds after it was killed.
    wait_for(lambda: len(gateways_behind(port)) == 3, "the balancer to ask all three", within=60)
    holds(at_once(150, port, "/partners/", headers=key)[200] == PARTNER_BURST)
    with Load(port, "/partners/", headers=key) as load:
        project.run("restart", "redis")
        project.becomes_healthy("redis")
        time.sleep(2)
    holds(set(load.seen) == {429}, load.seen)
    prometheus = project.ports["PROMETHEUS_PORT"]
    wait_for(lambda: query(prometheus, "count(weir_store_degraded == 0) == 4"), "all gateways to be back", within=60)


def prometheus_sees_every_gateway(project):
    prometheus = project.ports["PROMETHEUS_PORT"]
    wait_for(lambda: query(prometheus, 'count(up{job="weir"} == 1) == 4'), "four gateways up", within=60)
    wait_for(lambda: query(prometheus, "min(weir_store_nodes) == 4"), "each to know of the others", within=60)


def stopping_ends_every_gateway_well(project):
    project.run("stop", profile="cluster")
    codes = {service: project.state(service)["ExitCode"] for service in ("gateway", "balancer", *NODES)}
    holds(set(codes.values()) == {0}, codes)


def gateways_behind(port):
    """The gateways that thirty requests go through, each with a key of its own."""
    keys = ({"x-api-key": f"name-{next(NAMES)}"} for _ in range(30))
    return {gateway_of(ask(port, "/partners/", headers=key)) for key in keys}


def gateway_of(answer):
    """Which gateway a request went through: behind the balancer, before the upstream."""
    _balancer, gateway, _upstream = answer.json()["headers"]["via"].split(", ")
    return gateway


CLAIMS = [
    three_gateways_come_up_behind_one_address,
    the_token_and_the_password_of_the_environment_are_asked_for,
    a_burst_is_shared_exactly_over_the_gateways,
    callers_are_told_apart_behind_the_balancer_and_cannot_pass_for_others,
    one_edit_changes_all_gateways,
    killing_a_gateway_fails_nobody_and_gives_nobody_more,
    restarting_redis_fails_nobody,
    prometheus_sees_every_gateway,
    stopping_ends_every_gateway_well,
]
