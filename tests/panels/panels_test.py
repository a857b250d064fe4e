#!/usr/bin/env python3
"""What panels.py catches: each test spoils a copy of the real files and sees it found.

  tests/panels/panels_test.py
"""

import copy
import json
import sys
import threading
import unittest
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))

import catalogue  # noqa: E402
import panels  # noqa: E402
import promql  # noqa: E402
import structure  # noqa: E402
import yml  # noqa: E402


def histogram(name, labels):
    return [f'{name}_bucket{{{labels},le="0.1"}} 1', f'{name}_bucket{{{labels},le="+Inf"}} 1',
            f"{name}_sum{{{labels}}} 0.01", f"{name}_count{{{labels}}} 1"]


# A gateway with a limit of each strategy, a certificate, an upstream with all it can have, and a request behind it.
PAGE = "\n".join([
    "# HELP weir_requests_total Requests answered.", "# TYPE weir_requests_total counter",
    'weir_requests_total{route="all",status="200"} 5',
    *(f'weir_decisions_total{{limit="per-ip",outcome="{outcome}"}} 0'
      for outcome in ("allowed", "refused", "queued", "degraded", "unchecked")),
    'weir_decisions_total{limit="per-ip:candidate",outcome="shadow_refused"} 0',
    *(f'weir_access_total{{action="{action}"}} 0' for action in ("allowed", "denied")),
    *(f'weir_config_reloads_total{{result="{result}"}} 0' for result in ("ok", "failed")),
    *(f'weir_store_errors_total{{reason="{reason}"}} 0' for reason in ("timeout", "connection")),
    *(f'weir_upstream_errors_total{{upstream="api",error="{error}"}} 0' for error in ("timeout", "status_5xx")),
    'weir_upstream_healthy{upstream="api",server="http://10.0.0.1"} 1', 'weir_upstream_breaker_open{upstream="api"} 0',
    *(f'weir_upstream_{name}{{upstream="api",server="http://10.0.0.1"}} 0' for name in ("ejections_total", "pending")),
    *(f'weir_tls_handshake_errors_total{{reason="{reason}"}} 0' for reason in ("crowded", "not_tls")),
    *(f'weir_http2_floods_total{{reason="{reason}"}} 0' for reason in ("frames", "streams")),
    'weir_tls_certificate_expiry_seconds{certificate="/etc/weir/server.pem"} 1800000000',
    *histogram("weir_decision_seconds", 'store="memory"'), *histogram("weir_request_seconds", 'route="all"'),
    *histogram("weir_upstream_seconds", 'upstream="api"'), 'weir_queue_depth{limit="per-ip"} 0',
    'weir_build_info{node="weir-1",version="0.1.0"} 1', "weir_config_last_reload_successful 1",
    *(f"weir_{name} 0" for name in ("audit_dropped_total", "buckets", "buckets_overflow", "connections",
                                    "connections_turned_away_total", "connections_turned_away_per_ip_total",
                                    "lease_tokens", "proxy_header_errors_total", "store_calls_total", "store_degraded",
                                    "store_nodes", "trace_spans_dropped_total")),
])
FILES = panels.Files()


def faults_of(files, page=PAGE):
    """All that is found without a Prometheus, as one text."""
    asked = [f"{answer.where}: {fault}" for answer in panels.check(None, page, files) for fault in answer.faults]
    return "\n".join(structure.faults(files) + asked)


def spoilt(change):
    files = copy.deepcopy(FILES)
    change(files)
    return faults_of(files)


def replaced(old, new, part="dashboard"):
    """What is found once a text is another wherever it stands in one of the files."""
    def exchange(value):
        if isinstance(value, dict):
            return {exchange(key): exchange(each) for key, each in value.items()}
        if isinstance(value, list):
            return [exchange(each) for each in value]
        return value.replace(old, new) if isinstance(value, str) else value

    def change(files):
        before = getattr(files, part)
        setattr(files, part, exchange(before))
        assert getattr(files, part) != before, f"{old!r} is not in {part}"
    return spoilt(change)


def panel(files, title):
    return next(each for each in structure.panels(files.dashboard) if each["title"] == title)


def matcher(files, title):
    return panel(files, title)["fieldConfig"]["overrides"][0]["matcher"]


class TheFiles(unittest.TestCase):
    def test_are_right(self):
        self.assertEqual(faults_of(FILES), "")

    def test_are_asked_whole(self):
        asked = [where for where, _ in panels.queries()]
        targets = sum(len(each["targets"]) for each in structure.panels(FILES.dashboard))
        self.assertEqual(len(asked), targets + 3 + 2 + len(FILES.rules()))
        self.assertEqual(len(set(asked)), len(asked))

    def test_leave_nothing_of_grafana_in_a_query(self):
        for where, expr in panels.queries():
            self.assertNotRegex(expr.replace("${1}", "").replace('"$1"', ""), r"\$", where)


class Misspelt(unittest.TestCase):
    def test_metrics_are_caught(self):
        for part, old, new in (
            ("dashboard", "rate(weir_requests_total{", "rate(weir_request_total{"),
            ("dashboard", "weir_decision_seconds_bucket", "weir_decision_seconds"),
            ("dashboard", "label_values(weir_decisions_total", "label_values(weir_decision_total"),
            ("dashboard", "changes(weir_config_reloads_total", "changes(weir_config_reload_total"),
            ("dashboard", "max(weir_store_degraded)", "max(weir_store_degrade)"),
            ("alerts", "weir_buckets_overflow", "weir_bucket_overflow"),
            ("dashboard", "weir_upstream_pending{", "weir_upstream_waiting{"),
            ("alerts", "count(up{", "count(ups{"),
            ("alerts", "weir_tls_certificate_expiry_seconds", "weir_tls_certificate_expiry"),
        ):
            self.assertIn("there is no metric", replaced(old, new, part), new)

    def test_labels_are_caught(self):
        for part, old, new in (
            ("dashboard", 'outcome="refused"', 'outcom="refused"'),
            ("dashboard", 'instance=~"$instance"', 'instanse=~"$instance"'),
            ("dashboard", "sum by (route)", "sum by (rout)"),
            ("dashboard", "sum by (le, store)", "sum by (le, stores)"),
            ("dashboard", "sum by (le, store)", "sum by (store)"),
            ("dashboard", '"status", "(.)..', '"state", "(.)..'),
            ("dashboard", "ignoring (alertstate)", "ignoring (alertstat)"),
            ("dashboard", "label_values(weir_requests_total, route)", "label_values(weir_requests_total, rout)"),
            ("alerts", "by (limit)", "by (limits)"),
            ("alerts", "and on (limit)", "and on (limits)"),
            ("alerts", "by (upstream, server)", "by (upstream, host)"),
        ):
            self.assertRegex(replaced(old, new, part), "no such label|has no label|without `le`", new)

    def test_values_are_caught(self):
        for part, old, new in (
            ("dashboard", 'outcome="refused"', 'outcome="rejected"'),
            ("dashboard", 'outcome="shadow_refused"', 'outcome="shadow-refused"'),
            ("dashboard", 'outcome=~"allowed|refused|degraded"', 'outcome=~"allowed|refused|degrade"'),
            ("dashboard", 'outcome!~"queued|shadow_.*"', 'outcome!~"queue|shadow_.*"'),
            ("dashboard", 'store=~"redis|hybrid"', 'store=~"redis|valkey"'),
            ("dashboard", 'error!~"status_5xx|cut_off"', 'error!~"status_5xx|cutoff"'),
            ("dashboard", 'alertstate="firing"', 'alertstate="fires"'),
            ("dashboard", 'alertname=~"Weir.*"', 'alertname=~"Wier.*"'),
            ("dashboard", 'up{job="weir"}', 'up{job="gateways"}'),
            ("alerts", 'outcome="unchecked"', 'outcome="uncheckd"'),
            ("alerts", 'reason="crowded"', 'reason="full"'),
        ):
            self.assertIn("never has", replaced(old, new, part), new)

    def test_names_beside_a_query_are_caught(self):
        self.assertIn("names `rout` beside it", replaced("{{route}}", "{{rout}}"))
        self.assertIn("names `limits` beside it", replaced("$labels.limit ", "$labels.limits ", "alerts"))
        self.assertIn("names `results` beside it", replaced("{{result}}", "{{results}}"))
        self.assertIn("arranges a column 'Value #Z'", replaced("Value #C", "Value #Z"))
        for title in ("Outcomes", "Alerts"):
            found = spoilt(lambda files: matcher(files, title).update(options="stat"))
            self.assertIn("nothing is called so", found)
        found = spoilt(lambda files: matcher(files, "Upstream time").update(options="C"))
        self.assertIn("of query C, which there is not", found)

    def test_sides_that_never_match_are_caught(self):
        found = replaced("/ sum by (limit) (rate(", "/ sum by (outcome) (rate(", "alerts")
        self.assertIn("the sides of `/` never match: {limit} and {outcome}", found)

    def test_queries_are_caught(self):
        self.assertIn("where", replaced("max(weir_store_degraded)", "max(weir_store_degraded"))


class Broken(unittest.TestCase):
    def test_places_are_caught(self):
        self.assertIn("overlaps", spoilt(lambda files: panel(files, "Outcomes")["gridPos"].update(w=13)))
        self.assertIn("does not fit", spoilt(lambda files: panel(files, "Guards")["gridPos"].update(w=9)))
        self.assertIn("panel id 3 is there twice", spoilt(lambda files: panel(files, "Store").update(id=3)))

    def test_what_a_panel_lacks_is_caught(self):
        for key, said in (("title", "has no title"), ("description", "has no description"),
                          ("datasource", "not provisioned"), ("targets", "asks nothing")):
            def empty(files):
                panel(files, "Connections")[key] = type(panel(files, "Connections")[key])()
            self.assertIn(said, spoilt(empty), key)
        for key, said in (("unit", "has no unit"), ("min", "does not begin at 0"), ("noValue", "that it is empty")):
            found = spoilt(lambda files: panel(files, "Connections")["fieldConfig"]["defaults"].pop(key))
            self.assertIn(said, found, key)

    def test_targets_are_caught(self):
        for change, said in (
            ({"refId": "B"}, "refId B is there twice"),
            ({"legendFormat": ""}, "has no legend for A"),
            ({"expr": "sum(up{instance=~\"$gateway\"})"}, "uses $gateway, which is not defined"),
            ({"datasource": {"type": "prometheus", "uid": "mine"}}, "'mine', which is not provisioned"),
        ):
            self.assertIn(said, spoilt(lambda files: panel(files, "Decision time")["targets"][0].update(change)))

    def test_provisioning_is_caught(self):
        for part, old, new, said in (
            ("datasources", "prometheus", "prom", "which is not provisioned"),
            ("datasources", "http://prometheus:9090", "http://localhost:9090", "url is not"),
            ("datasources", "5s", "15s", "is not the scrape interval"),
            ("providers", "/var/lib/grafana/dashboards", "/etc/grafana/dashboards", "does not read the files in"),
            ("prometheus", "alerts.yml", "rules.yml", "does not load alerts.yml"),
            ("prometheus", "gateways", "gateway", "does not find the gateways"),
        ):
            self.assertIn(said, replaced(old, new, part), new)

    def test_annotations_that_disagree_are_caught(self):
        def change(files):
            files.dashboard["annotations"]["list"][1]["target"]["expr"] = "ALERTS"
        self.assertIn("`expr` and `target.expr` differ", spoilt(change))

    def test_alerts_are_caught(self):
        for change, said in (
            (lambda rule: rule["labels"].update(severity="page"), "neither warning nor critical"),
            (lambda rule: rule.update(alert="Refusals"), "begins with Weir"),
            (lambda rule: rule.update(alert="WeirRefusal"), "does not show both"),
            (lambda rule: rule.update(alert="WeirUnchecked"), "alert WeirUnchecked is there twice"),
            (lambda rule: rule["annotations"].update(description='See docs/limits.md, "Limits".'), "no section 'Limits'"),
            (lambda rule: rule["annotations"].pop("summary"), "has no summary"),
        ):
            self.assertIn(said, spoilt(lambda files: change(files.rules()[3])), said)

    def test_an_untold_panel_is_caught(self):
        self.assertIn("does not tell of panel", spoilt(lambda files: panel(files, "Buckets").update(title="Pails")))

    def test_a_metric_that_no_panel_shows_is_caught(self):
        found = replaced("| `weir_buckets`, ", "| `weir_buckets`, `weir_pails{kind}`, ", "documents")
        self.assertEqual(found, "docs/metrics.md: the dashboard does not show weir_pails")

    def test_a_page_that_says_otherwise_is_caught(self):
        for old, new, said in (('outcome="queued"', 'outcome="delayed"', "does not know"),
                               ('weir_queue_depth{limit=', 'weir_queue_depth{queue=', "with {limit}"),
                               ("weir_store_nodes 0", "weir_store_peers 0", "there is no metric `weir_store_nodes`"),
                               ("weir_connections 0", "weir_connections", "no sample")):
            self.assertIn(said, faults_of(FILES, PAGE.replace(old, new)), new)

    def test_what_a_gateway_need_not_have_is_known(self):
        short = "\n".join(line for line in PAGE.splitlines()
                          if not line.startswith(("weir_upstream", "weir_queue", "weir_tls_certificate")))
        self.assertEqual(faults_of(FILES, short), "")


class PromQL(unittest.TestCase):
    def read(self, query):
        known = catalogue.Catalogue(PAGE)
        known.add("up", set(), job=["weir"])
        return promql.read(query, known)

    def test_every_clause_leaves_its_labels(self):
        metric = "weir_decisions_total"
        for query, labels in (
            (metric, {"limit", "outcome", "job", "instance"}),
            (f"sum({metric})", set()),
            (f"sum by (limit) ({metric})", {"limit"}),
            (f"sum({metric}) by (limit, outcome)", {"limit", "outcome"}),
            (f"sum without (job, instance) ({metric})", {"limit", "outcome"}),
            (f"topk(3, sum by (limit) (rate({metric}[5m] offset 1h)))", {"limit"}),
            (f"topk by (limit) (1, {metric})", {"limit", "outcome", "job", "instance"}),
            (f"max_over_time(sum by (limit) ({metric})[30m:1m])", {"limit"}),
            ('histogram_quantile(0.9, sum by (le, store) (rate(weir_decision_seconds_bucket[5m])))', {"store"}),
            (f'sum by (kind) (label_replace({metric}, "kind", "$1", "outcome", "(.).*"))', {"kind"}),
            ("sum by (instance) (weir_connections) * on (instance) group_left (version) weir_build_info",
             {"instance", "version"}),
            ("weir_build_info * on (instance) group_right (version) sum by (instance, limit) (weir_queue_depth)",
             {"instance", "limit", "version"}),
            ("sum by (limit) (weir_queue_depth) > 0 and on (limit) weir_decisions_total", {"limit"}),
            ("absent(up == 1) or vector(0)", set()),
            ("-sum by (limit) (weir_queue_depth) ^ 2 / 1e3 + 0.5", {"limit"}),
            ("up{job='weir'} @ 1600000000 # a comment", {"job", "instance"}),
        ):
            self.assertEqual(self.read(query), (labels, []), query)
        self.assertEqual(self.read("time() - 5"), (None, []))

    def test_every_clause_is_looked_at(self):
        for query, said in (
            ("sum by (limt) (weir_queue_depth)", "by (limt)"),
            ("sum(weir_queue_depth) by (limt)", "by (limt)"),
            ("sum without (limt) (weir_queue_depth)", "without (limt)"),
            ("sum(sum by (job) (weir_queue_depth)) by (limit)", "by (limit)"),
            ("weir_queue_depth + on (limt) weir_queue_depth", "on (limt)"),
            ("weir_queue_depth + ignoring (limt) weir_queue_depth", "ignoring (limt)"),
            ("weir_connections * on (instance) group_left (versio) weir_build_info", "group_left (versio)"),
            ("weir_connections / weir_queue_depth", "never match"),
            ("histogram_quantile(0.9, weir_connections)", "without `le`"),
            ('label_replace(up, "a", "$1", "limit", "(.*)")', "reads `limit`"),
            ("sum(weir_queue_dept)", "did you mean `weir_queue_depth`?"),
            ('{__name__="up"}', "where a metric"),
            ("up{job}", "no matcher"),
            ("up up", "goes on"),
            ("sum(up", "should be"),
            ("rate(5)", "of no series"),
        ):
            self.assertIn(said, "\n".join(self.read(query)[1]), query)


class Asked(unittest.TestCase):
    """With a Prometheus of scripted answers."""

    def setUp(self):
        test = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                status, answer = test.answer(parse_qs(urlsplit(self.path).query).get("query", [""])[0])
                self.send_response(status)
                self.end_headers()
                self.wfile.write(json.dumps(answer).encode())

            def log_message(self, *_):
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.addCleanup(self.server.server_close)
        self.addCleanup(self.server.shutdown)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def series(self, *values):
        result = [{"metric": {}, "value": [0, value]} for value in values]
        return 200, {"status": "success", "data": {"resultType": "vector", "result": result}}

    def test_data_and_emptiness_are_told_apart(self):
        self.answer = lambda query: self.series("1", "NaN") if "up{" in query else self.series("NaN")
        answers = {answer.where: answer for answer in panels.check(self.url, PAGE)}
        self.assertEqual(answers["alert WeirGatewayDown"].series, 1)
        self.assertEqual(answers["alert WeirRefusals"].series, 0)
        self.assertFalse(any(answer.faults for answer in answers.values()))

    def test_a_refusal_is_a_fault_of_the_query(self):
        refusal = 400, {"status": "error", "error": "parse error"}
        self.answer = lambda query: refusal if "topk" in query else self.series()
        wrong = [answer.where for answer in panels.check(self.url, PAGE) if answer.faults]
        self.assertEqual(wrong, ['panel 3 "Refused, worst limit" A', 'panel 4 "Upstream errors, worst" A'])

    def test_rules_that_are_not_loaded_are_told(self):
        rules = [{"name": rule["alert"], "health": "ok"} for rule in FILES.rules()[1:]]
        rules[0].update(health="err", lastError="many-to-many matching")
        self.answer = lambda _: (200, {"status": "success", "data": {"groups": [{"rules": rules}]}})
        self.assertEqual(panels.unloaded(self.url), [
            "alert WeirNoGateway: Prometheus has not loaded it",
            "alert WeirGatewayDown: Prometheus says many-to-many matching"])

    def test_nobody_there_is_a_fault(self):
        self.assertIn("does not answer", panels.ask("http://127.0.0.1:1", "up")[1])


class Yaml(unittest.TestCase):
    TEXT = """a: 1 # one
b:
- x: "y # z"
  t: true
- [1, "2", p]
c: >-
  d: e
  f
g: |
  h

   i
j:
  - k
  - l: 'm''n'
"""

    def test_is_read(self):
        self.assertEqual(yml.read(self.TEXT), {
            "a": 1, "b": [{"x": "y # z", "t": True}, [1, "2", "p"]], "c": "d: e f", "g": "h\n\n i\n",
            "j": ["k", {"l": "m'n"}]})

    def test_is_read_as_others_do(self):
        try:
            import yaml
        except ImportError:
            self.skipTest("PyYAML is not installed")
        files = [*panels.ROOT.glob("config/**/*.yml"), *panels.ROOT.glob("tests/panels/*.yml")]
        for text in [self.TEXT, *(file.read_text() for file in files)]:
            self.assertEqual(yml.read(text), yaml.safe_load(text))

    def test_what_is_not_read_is_a_fault(self):
        for text in ("a: &b 1", "a: {b: 1}", "a: b: c", "a: 1\na: 2", "a:\n\t- 1", "a: 'b", "  a: 1\n b: 2", "a b",
                     "a: >-\n  b\n\n  c"):
            with self.assertRaises(yml.Fault, msg=text):
                yml.read(text)


if __name__ == "__main__":
    unittest.main()
