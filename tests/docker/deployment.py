"""Claims about `docker compose up` as it is: one gateway, Redis, an API, Prometheus."""

import os
import re
import subprocess
import sys
import threading
import time
from base64 import b64encode
from contextlib import contextmanager

import panels
from client import Load, SlowUpload, ask, at_once, outcome, query
from compose import wait_for
from report import Skipped, figure, holds
from standins import carry_out

PARTNER_BURST = 100
# Panels of what does not happen here: alerts, limits that queue, degrade or only watch, guards, adaptive limits,
# failures, probes of servers, TLS.
NOTHING_TO_SHOW = (
    '"Alerts" A', '"Outcomes" B', *(f'"Outcomes by limit" {part}' for part in "CDFG"), '"On trial: would be refused" A',
    '"Guards" A', '"Leases" A', '"Violations" B', *(f'"Trust" {part}' for part in "ABC"),
    '"Waiting in queues" A', '"Upstream failures" A', *(f'"Connections not taken" {part}' for part in "ABC"),
    '"Health of servers" A', '"Breakers" A', '"Servers left out" A', '"Waiting for a connection" A',
    '"Certificates" A', '"Failed handshakes" A', '"HTTP/2 floods" A', '"Lost records" A', '"Lost records" B',
)


def it_comes_up_by_itself_and_limits(project, services):
    started = time.monotonic()
    project.run("up", "-d", *services)
    port = project.ports["WEIR_PORT"]
    limited = wait_for(lambda: outcome(port) == 429, "a limited answer", within=120, explain=project.last_words)
    holds(limited)
    figure("from `docker compose up` to the first limited answer", f"{time.monotonic() - started:.1f} s")
    project.becomes_healthy(*services)


def requests_pass_to_the_upstream_until_the_burst_is_spent(project, _):
    port = project.ports["WEIR_PORT"]
    key = {"x-api-key": "first"}
    answer = ask(port, "/partners/hello?a=1", headers=key)
    holds(answer.status == 200, answer.body)
    echoed = answer.json()
    holds(echoed["path"] == "/partners/hello", echoed)
    holds(len(set(echoed["headers"]["via"].split(", "))) == 2, "the gateway and its upstream are two")
    holds(len(echoed["headers"]["x-forwarded-for"].split(", ")) == 2, "it is told of the caller and the gateway")
    answers = at_once(300, port, "/partners/", headers=key)
    holds(answers == {200: PARTNER_BURST - 1, 429: 201}, answers)
    refused = ask(port, "/partners/", headers=key)
    holds(refused.json()["limit"] == "per-partner", refused.body)
    holds(int(refused.headers["Retry-After"]) > 0, refused.headers)


def without_a_token_the_admin_listener_has_no_v1(project, _):
    admin = project.ports["WEIR_ADMIN_PORT"]
    holds(ask(admin, "/readyz").json() == {"status": "ready", "store": "redis"})
    holds(ask(admin, "/v1/overrides").status == 404)
    holds(ask(admin, "/v1/overrides", headers={"authorization": "Bearer "}).status == 404)
    holds("weir_requests_total" not in ask(project.ports["WEIR_PORT"], "/metrics").body, "the data port has metrics")


def a_limit_is_changed_without_a_restart(project, _):
    port = project.ports["WEIR_PORT"]
    before = project.state("gateway")["StartedAt"]
    with edited(project, "burst = 100", "burst = 7"):
        wait_for(lambda: quota(port) == 7, "the new limit", explain=project.last_words)
        holds(at_once(20, port, "/partners/", headers={"x-api-key": "changed"}) == {200: 7, 429: 13})
    wait_for(lambda: quota(port) == PARTNER_BURST, "the old limit", explain=project.last_words)
    holds(project.state("gateway")["StartedAt"] == before, "it was restarted")


def a_bad_file_is_refused_and_the_old_one_serves_on(project, _):
    port, admin = project.ports["WEIR_PORT"], project.ports["WEIR_ADMIN_PORT"]
    with edited(project, "burst = 100", "burst = many"):
        wait_for(lambda: sample(admin, "weir_config_last_reload_successful") == 0, "the reload to fail")
        answers = at_once(150, port, "/partners/", headers={"x-api-key": "meanwhile"})
        holds(answers == {200: PARTNER_BURST, 429: 50}, answers)
        holds("ready" in project.run("exec", "-T", "gateway", "weir", "health"), "it is healthy all the same")
    wait_for(lambda: sample(admin, "weir_config_last_reload_successful") == 1, "the reload to succeed")


def what_was_spent_stays_spent_over_a_restart_of_redis(project, _):
    port, admin = project.ports["WEIR_PORT"], project.ports["WEIR_ADMIN_PORT"]
    key = {"x-api-key": "spent"}
    holds(at_once(150, port, "/partners/", headers=key)[200] == PARTNER_BURST)
    with Load(port, "/partners/", headers=key) as load:
        project.run("restart", "redis")
        project.becomes_healthy("redis")
        wait_for(lambda: sample(admin, "weir_store_degraded") == 0, "the store to be back")
        time.sleep(1)
    holds(set(load.seen) == {429}, load.seen)


def without_redis_the_gateway_limits_by_itself_and_is_healthy(project, _):
    port, admin = project.ports["WEIR_PORT"], project.ports["WEIR_ADMIN_PORT"]
    project.run("stop", "redis")
    try:
        # The first few requests find out.
        wait_for(lambda: outcome(port) and sample(admin, "weir_store_degraded") == 1, "the store to be missed")
        answers = at_once(300, port, "/partners/", headers={"x-api-key": "alone"})
        holds(answers == {200: PARTNER_BURST, 429: 200}, answers)
        holds("degraded" in project.run("exec", "-T", "gateway", "weir", "health"))
    finally:
        project.run("start", "redis")
    project.becomes_healthy("redis")
    wait_for(lambda: sample(admin, "weir_store_degraded") == 0, "the store to be back")


def prometheus_has_the_gateways_series(project, _):
    prometheus = project.ports["PROMETHEUS_PORT"]
    wait_for(lambda: query(prometheus, 'up{job="weir"} == 1'), "Prometheus to see the gateway")
    refused = 'sum(weir_decisions_total{limit="per-partner",outcome="refused"})'

    wait_for(lambda: query(prometheus, f"{refused} > 0"), "Prometheus to count refusals")


def every_query_of_the_panels_and_alerts_is_answered(project, _):
    port = project.ports["PROMETHEUS_PORT"]
    prometheus = f"http://127.0.0.1:{port}"
    # Rates take two scrapes, between which something happened.
    with Load(project.ports["WEIR_PORT"], "/", pace=0.2):
        wait_for(lambda: query(port, "sum(rate(weir_upstream_seconds_count[1m])) > 0"), "rates")
    page = ask(project.ports["WEIR_ADMIN_PORT"], "/metrics").body
    holds(not (faults := panels.unloaded(prometheus)), faults)
    answers = panels.check(prometheus, page)
    faults = [f"{answer.where}: {fault}" for answer in answers for fault in answer.faults]
    holds(not faults, "\n".join(faults))
    without = [answer.where for answer in answers if not answer.series and not answer.where.endswith(NOTHING_TO_SHOW)]
    holds(all(where.startswith(("alert ", "annotation ")) for where in without), without)
    data = sum(bool(answer.series) for answer in answers)
    figure("queries of the dashboard and the alerts", f"{data} with data, {len(answers) - data} valid and empty")


def grafana_has_the_dashboard_and_its_source(project, services):
    if "grafana" not in services:
        raise Skipped("there is no image of Grafana")
    port = project.ports["GRAFANA_PORT"]
    # Without a login: reading is allowed to everyone.
    found = ask(port, "/api/dashboards/uid/weir")
    holds(found.status == 200 and found.json()["dashboard"]["title"] == "Weir", found.body)
    admin = {"authorization": "Basic " + b64encode(b"admin:admin").decode()}
    source = ask(port, "/api/datasources/uid/prometheus/health", headers=admin)
    holds(source.status == 200 and source.json()["status"] == "OK", source.body)


def the_alerts_pass_their_tests(project, _):
    """By the promtool of the image, so that none has to be installed."""
    if sys.platform != "linux":
        raise Skipped("the promtool of the image runs on Linux only")
    tools = project.folder.parent / "tools"
    tools.mkdir()
    image = project.images()["prometheus"]
    container = carry_out("docker", "create", image).strip()
    try:
        carry_out("docker", "cp", "-L", f"{container}:/bin/promtool", tools / "promtool")
    finally:
        carry_out("docker", "rm", "-v", container)
    environment = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"}
    tried = subprocess.run(
        [project.folder / "tests/panels/rules_test.py"], env=environment, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=300,
    )
    said = tried.stdout + tried.stderr
    holds(tried.returncode == 0 and "skipped" not in said, said)


def stopping_lets_requests_in_flight_end(project, _):
    """The whole project is stopped: the gateway first, while its upstream and Redis are there."""
    port, admin = project.ports["WEIR_PORT"], project.ports["WEIR_ADMIN_PORT"]
    wait_for(lambda: int(ask(port).headers["X-RateLimit-Remaining"]) > 0, "room for a request")
    upload = SlowUpload(port)

    def drains():
        ready = outcome(admin, "/readyz")
        return ready == 503 or isinstance(ready, str)

    stopping = threading.Thread(target=project.run, args=("stop",))
    stopping.start()
    try:
        wait_for(drains, "the drain")
        answer = upload.finish()
        holds(answer.status == 200, answer.body)
    finally:
        stopping.join()
    ended = project.state("gateway")
    holds(ended["ExitCode"] == 0, ended)


@contextmanager
def edited(project, old, new):
    """The gateways' file with another text in it, as it was afterwards."""
    file = project.folder / "config/compose/gateway/config.toml"
    before = file.read_text()
    holds(old in before, before)
    save_as_editors_do(file, before.replace(old, new))
    try:
        yield
    finally:
        save_as_editors_do(file, before)


def save_as_editors_do(file, text):
    """Replaces a file by another one, by rename."""
    other = file.with_suffix(".new")
    other.write_text(text)
    os.replace(other, file)


def quota(port):
    """The burst of a partner, by the answer of one of the gateways."""
    answer = ask(port, "/partners/", headers={"x-api-key": f"nobody {time.monotonic()}"})
    return int(re.search(r'"per-partner";q=(\d+)', answer.headers["RateLimit-Policy"]).group(1))


def sample(admin, name):
    """The value of a metric without labels."""
    found = re.search(rf"^{name} (\S+)$", ask(admin, "/metrics").body, re.MULTILINE)
    return float(found.group(1)) if found else None


CLAIMS = [
    it_comes_up_by_itself_and_limits,
    requests_pass_to_the_upstream_until_the_burst_is_spent,
    without_a_token_the_admin_listener_has_no_v1,
    a_limit_is_changed_without_a_restart,
    a_bad_file_is_refused_and_the_old_one_serves_on,
    what_was_spent_stays_spent_over_a_restart_of_redis,
    without_redis_the_gateway_limits_by_itself_and_is_healthy,
    prometheus_has_the_gateways_series,
    every_query_of_the_panels_and_alerts_is_answered,
    grafana_has_the_dashboard_and_its_source,
    the_alerts_pass_their_tests,
    stopping_lets_requests_in_flight_end,
]
