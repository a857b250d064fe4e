#!/usr/bin/env python3
"""What the tests in alerts/ hold: each number of each rule is changed, and promtool has to notice.

  tests/panels/rules_test.py
"""

import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))

import panels  # noqa: E402


@unittest.skipUnless(shutil.which("promtool"), "promtool is not installed")
class AlertTests(unittest.TestCase):
    # Of each alert: thresholds, times and conditions, and what is put in their place.
    CHANGES = {
        "WeirNoGateway": [("for: 1m", "for: 0s"), ("critical", "warning"), (" == 1", "")],
        "WeirGatewayDown": [("for: 1m", "for: 0s"), ('{job="weir"}', ""), ("== 0", "== 2")],
        "WeirGatewayMissing": [("quantile_over_time(0.5,", "max_over_time("), ("for: 2m", "for: 0s"),
                               ("[1h:1m]", "[3h:1m]")],
        "WeirRefusals": [("> 0.01", "> 0.005"), ("> 0.01", "> 0.03"), (">= 10", ">= 1"), (">= 10", ">= 30"),
                         ("for: 5m", "for: 1m"), ("refused|degraded", "refused"), ("|degraded", "|degraded|unchecked"),
                         ('outcome="refused"', 'outcome=~".*refused"'), ("by (limit)", "by (limit, instance)"),
                         ("unless on (limit) weir:refusals_expected", "")],
        "WeirRouteRefusals": [("> 0.01", "> 0.005"), ("> 0.01", "> 0.03"), (">= 10", ">= 1"), ("for: 5m", "for: 1m"),
                              ('{status="429"}', ""), ("by (route)", "by (route, instance)"),
                              ("unless on (route) weir:refusals_expected", "")],
        "WeirFlood": [(">= 10", ">= 5"), (">= 10", ">= 40"), ("[10m]", "[30m]"), ('action="blocked"', 'action="warned"'),
                      ('action="blocked"', 'action=~".*blocked"'), ("by (guard)", "by (guard, instance)")],
        "WeirStoreDegraded": [("for: 2m", "for: 1m"),
                              ("max_over_time(weir_store_degraded[1m])", "weir_store_degraded")],
        "WeirUnchecked": [("and on (limit)", "or on (limit)"), ("for: 2m", "for: 1m"), ("critical", "warning"),
                          ("> 0.01", "> 0.004"), ("> 0.01", "> 0.6")],
        "WeirUpstreamFailing": [(">= 5", ">= 1"), ("> 0.05", "> 0.03"), ("> 0.05", "> 0.2"), ("for: 1m", "for: 0s"),
                                ("!~", "=~"), ("|cut_off", ""), ("status_5xx|", ""),
                                ("by (upstream)", "by (upstream, instance)")],
        "WeirUpstreamWithoutServers": [("for: 1m", "for: 0s"), ("critical", "warning"), ("max by", "min by"),
                                       ("== 0", "== 1"), ("by (upstream, instance)", "by (upstream)")],
        "WeirServerUnhealthy": [("for: 5m", "for: 3m"), ("for: 5m", "for: 10m"), ("== 0", "== 1"),
                                ("by (upstream, server)", "by (upstream)")],
        "WeirBreakerOpen": [("max_over_time(weir_upstream_breaker_open[1m])", "weir_upstream_breaker_open"),
                            ("for: 2m", "for: 0s"), ("[1m]", "[10m]"), ("== 1", "== 0"),
                            ('error="breaker_open"', 'error=~".*"'), ("and on (", "or on ("),
                            ("count by (upstream)", "count by (upstream, instance)")],
        "WeirReloadFailed": [("for: 1m", "for: 0s"), ("== 0", "== 1")],
        "WeirMemoryFull": [("for: 1m", "for: 0s"), ("> 0", "> 100"), ("weir_buckets_overflow", "weir_buckets")],
        "WeirTurnedAway": [("[5m]", "[15m]"), ("> 0", "> 5"),
                           ("increase(weir_connections_turned_away_total[5m])", "weir_connections_turned_away_total")],
        "WeirHandshakesCrowded": [("[5m]", "[15m]"), ("> 0", "> 5"), ('reason="crowded"', 'reason=~".*"')],
        "WeirCertificateExpires": [("14 * 86400", "13 * 86400"), ("14 * 86400", "15 * 86400"),
                                   ("14 * 86400", "30 * 86400"), ("warning", "critical"), (" - time()", "")],
        "WeirCertificateLastDays": [("2 * 86400", "1 * 86400"), ("2 * 86400", "3 * 86400"), ("critical", "warning"),
                                    ("lt $value", "gt $value")],
    }

    def test_pass(self):
        self.assertEqual([(what, said) for what, state, said in panels.promtool() if state != "passed"], [])

    def test_hold_every_number_of_every_rule(self):
        """In each round one thing is changed in each alert, and the tests of each have to fail."""
        head, *rules = re.split(r"(?=\n      - alert: )", (panels.ROOT / "config/prometheus/alerts.yml").read_text())
        names = [re.search(r"alert: (\w+)", rule).group(1) for rule in rules]
        self.assertEqual(names, list(self.CHANGES))
        turns = []
        for turn in range(max(map(len, self.CHANGES.values()))):
            changed = {name: self.CHANGES[name][turn] for name in names if turn < len(self.CHANGES[name])}
            for name, rule in zip(names, rules):
                self.assertIn(changed.get(name, ("",))[0], rule)
            turns.append((changed, head + "".join(
                rule.replace(*changed[name]) if name in changed else rule for name, rule in zip(names, rules))))
        with ThreadPoolExecutor() as pool:
            for (changed, _), said in zip(turns, pool.map(self.run_with, [rules for _, rules in turns])):
                for name, change in changed.items():
                    with self.subTest(alert=name, change=change):
                        # In the query of a test, or in the title of one that holds what an alert says.
                        self.assertRegex(said, rf'alertname(=\\"|: ){name}\b')

    def test_worst_limit_is_none_that_is_meant_to_refuse(self):
        """The first line of the dashboard is not red for what operators have said is expected."""
        (query,) = [expr for where, expr in panels.queries() if "Refused, worst limit" in where]
        series = [f'weir_decisions_total{{limit="{limit}", outcome="{outcome}"}}'
                  for limit in ("meant", "other") for outcome in ("allowed", "refused")]
        values = ["0+50x80", "0+50x80", "0+99x80", "0+1x80"]
        inputs = "".join(f"      - series: '{name}'\n        values: {value}\n"
                         for name, value in zip(series, values))
        test = f"""evaluation_interval: 15s
tests:
  - interval: 15s
    input_series:
{inputs}      - series: weir:refusals_expected{{limit="meant"}}
        values: 1x80
      - series: weir:refusals_expected{{route="login"}}
        values: 1x80
    promql_expr_test:
      - expr: '{query}'
        eval_time: 10m
        exp_samples:
          - labels: '{{limit="other"}}'
            value: 0.01
"""
        with tempfile.TemporaryDirectory() as directory:
            file = Path(directory) / "test.yml"
            file.write_text(test)
            told = subprocess.run(["promtool", "test", "rules", file], capture_output=True, text=True, check=False)
        self.assertEqual(told.returncode, 0, told.stdout + told.stderr)

    def run_with(self, rules):
        with tempfile.TemporaryDirectory() as directory:
            root = Path(directory)
            texts = {file: (panels.ROOT / file).read_text() for file in panels.ALERT_TESTS}
            for file, text in {**texts, "config/prometheus/alerts.yml": rules}.items():
                (root / file).parent.mkdir(parents=True, exist_ok=True)
                (root / file).write_text(text)
            return panels.promtool(root, panels.PROMTOOL[-1:])[0][2]


if __name__ == "__main__":
    unittest.main()
