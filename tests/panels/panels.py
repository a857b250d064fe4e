#!/usr/bin/env python3
"""Whether the dashboard and the alerts query what Weir exports.

Without arguments: the dashboard, the rules and what provisions them are held against each other,
and promtool runs over the rules if it is there. With a Prometheus and a `/metrics` page, every
query of every panel, variable, annotation and alert is also asked, and every metric, label and
label value in it has to be one that Weir has:

  tests/panels/panels.py
  tests/panels/panels.py --prometheus http://localhost:9091 --metrics http://localhost:9090/metrics

Let the gateway answer a request before: routes are no series until then. Several `--metrics` are
taken together. A query that is right and has no answer is said to be empty, which is no fault.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import NamedTuple

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))

import promql  # noqa: E402
import structure  # noqa: E402
import yml  # noqa: E402
from catalogue import Catalogue  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent.parent
# What Grafana puts in place of its own names; $instance and the like stand in regular expressions.
MACROS = {"__rate_interval": "1m", "__interval": "15s", "__range": "15m", "__range_s": "900"}
LEGEND = re.compile(r"\{\{\s*(\w+)\s*\}\}")
LABEL = re.compile(r"\$labels\.(\w+)")
# When the alerts fire, and what is close to it and must not. Each query there lists all that fires
# of one alert at that time. Series are samples 15 s apart, and what they are is in their labels:
# `limit: shadow`, `instance: blip`.
ALERT_TESTS = tuple(sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("tests/panels/alerts/*.yml")))
PROMTOOL = (("check", "config", "config/prometheus/prometheus.yml"),
            ("check", "rules", "config/prometheus/alerts.yml"),
            ("test", "rules", *ALERT_TESTS))


class Files:
    """All files of one folder, read. Tests change them in memory."""

    def __init__(self, root=ROOT):
        def yaml(path):
            try:
                return yml.read((root / path).read_text())
            except yml.Fault as fault:
                raise yml.Fault(f"{path}: {fault}") from None

        grafana = root / "config/grafana"
        self.dashboard = json.loads((grafana / "dashboards/weir.json").read_text())
        self.datasources = yaml("config/grafana/provisioning/datasources/prometheus.yml")
        self.providers = yaml("config/grafana/provisioning/dashboards/weir.yml")
        self.prometheus = yaml("config/prometheus/prometheus.yml")
        self.alerts = yaml("config/prometheus/alerts.yml")
        self.alert_tests = [test for path in ALERT_TESTS for test in yaml(path)["tests"]]
        self.documents = {path.stem: path.read_text() for path in (root / "docs").glob("*.md")}
        self.guide = self.documents["monitoring"]

    def rules(self):
        return [rule for group in self.alerts["groups"] for rule in group["rules"] if "alert" in rule]


class Query(NamedTuple):
    where: str
    expr: str
    # What the texts beside it say of its labels: legends, titles, annotations of alerts.
    named: frozenset = frozenset()


class Answer(NamedTuple):
    """What came of one query."""
    where: str
    expr: str
    faults: list
    # How many series Prometheus answered with that have a value; None if it was not asked.
    series: int | None


def every_query(files):
    """All queries as Prometheus would get them, with the labels that are named beside them."""
    for panel in structure.panels(files.dashboard):
        for target in panel.get("targets", []):
            yield Query(f"{structure.name_of(panel)} {target['refId']}", filled(target["expr"]),
                        frozenset(LEGEND.findall(target.get("legendFormat", ""))))
    for variable in structure.variables(files.dashboard):
        yield Query(f"variable {variable['name']}", of_variable(variable["query"]["query"]))
    for annotation in files.dashboard["annotations"]["list"]:
        if "expr" in annotation:
            texts = annotation.get("titleFormat", "") + annotation.get("textFormat", "")
            yield Query(f"annotation {annotation['name']}", filled(annotation["expr"]),
                        frozenset(LEGEND.findall(texts)))
    for rule in files.rules():
        texts = " ".join(rule.get("annotations", {}).values())
        yield Query(f"alert {rule['alert']}", rule["expr"], frozenset(LABEL.findall(texts)))


def queries(files=None):
    """(where, expr) of everything that is asked, with Grafana's names filled in."""
    for query in every_query(files or Files()):
        yield query.where, query.expr


def filled(expr):
    def value(match):
        name = match.group(1) or match.group(2)
        # $1 is a group of a regular expression.
        return match.group() if name.isdigit() else MACROS.get(name, ".*")
    return re.sub(r"\$(?:(\w+)|\{(\w+)(?::\w+)?\})", value, expr)


def of_variable(query):
    """Grafana's `label_values(metric, label)` as a query."""
    match = re.fullmatch(r"label_values\((.+),\s*(\w+)\)", query)
    return f"group by ({match.group(2)}) ({filled(match.group(1))})" if match else filled(query)


def catalogue_of(page, files):
    """What Weir has, by its page, and what Prometheus has by itself."""
    catalogue = Catalogue(page)
    catalogue.add("up", set(), job=[job["job_name"] for job in files.prometheus["scrape_configs"]])
    # An alert has the labels that its query leaves.
    labels = set().union(*(promql.read(rule["expr"], catalogue)[0] or () for rule in files.rules()))
    severities = {rule["labels"]["severity"] for rule in files.rules()}
    known = {"alertname": [rule["alert"] for rule in files.rules()], "severity": severities}
    # What operators say in config/prometheus/expected.yml.
    catalogue.add("weir:refusals_expected", {"limit", "route"})
    catalogue.add("ALERTS_FOR_STATE", labels | {"alertname", "severity"}, **known)
    catalogue.add("ALERTS", labels | {"alertname", "severity", "alertstate"}, alertstate=["firing", "pending"], **known)
    return catalogue


def examine(query, catalogue):
    """What is wrong with a query without asking anybody."""
    labels, faults = promql.read(query.expr, catalogue)
    if faults:
        return faults
    return [f"names `{name}` beside it, and its result has only {promql.shown(labels or ())}"
            for name in sorted(query.named - (labels or set()))]


def names(files, catalogue):
    """What is wrong with the names of columns and series in the panels, by panel."""
    values = {}
    for (_, label), known in catalogue.known.items():
        values.setdefault(label, set()).update(known)
    for panel in structure.panels(files.dashboard):
        results = [promql.read(filled(target["expr"]), catalogue)[0] or () for target in panel["targets"]]
        faults = list(structure.of_names(panel, set().union(*results), values))
        if faults:
            yield structure.name_of(panel), faults


def check(prometheus, page, files=None):
    """An Answer for each query, asked of the Prometheus at that URL.

    `page` is the text of `/metrics`, or of several gateways one after another. `prometheus` may be
    None: then nobody is asked.
    """
    files = files or Files()
    catalogue = catalogue_of(page, files)
    answers = [Answer("/metrics", "", catalogue.faults, None)] if catalogue.faults else []
    answers += [Answer(where, "", faults, None) for where, faults in names(files, catalogue)]
    for query in every_query(files):
        faults, series = examine(query, catalogue), None
        if prometheus:
            series, fault = ask(prometheus, query.expr)
            faults = faults + ([fault] if fault else [])
        answers.append(Answer(query.where, query.expr, faults, series))
    return answers


def ask(prometheus, expr):
    """(series with a value, None), or (None, why Prometheus does not answer)."""
    data, fault = got(prometheus, "query", query=expr)
    if fault:
        return None, fault
    if data["resultType"] != "vector":
        return None, f"is a {data['resultType']}, and no series"
    return sum(series["value"][1] != "NaN" for series in data["result"]), None


def unloaded(prometheus, files=None):
    """Alerts that this Prometheus does not have, or cannot work out, each with the reason."""
    data, fault = got(prometheus, "rules")
    if fault:
        return [fault]
    rules = {rule["name"]: rule for group in data["groups"] for rule in group["rules"]}
    names = [rule["alert"] for rule in (files or Files()).rules()]
    return ([f"alert {name}: Prometheus has not loaded it" for name in names if name not in rules]
            + [f"alert {name}: Prometheus says {rules[name].get('lastError')}" for name in names
               if name in rules and rules[name]["health"] == "err"])


def got(prometheus, path, **parameters):
    """(the data of an answer, None), or (None, why there is none)."""
    url = f"{prometheus.rstrip('/')}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
    try:
        with urllib.request.urlopen(url, timeout=10) as response:
            answer = json.load(response)
    except urllib.error.HTTPError as error:
        return None, f"Prometheus says {error.code}: {error.read().decode(errors='replace')[:300]}"
    except (OSError, ValueError) as error:
        return None, f"Prometheus does not answer: {error}"
    if answer.get("status") != "success":
        return None, f"Prometheus says {answer.get('error')}"
    return answer["data"], None


def promtool(root=ROOT, runs=PROMTOOL):
    """[(what was run, `passed` or `failed` or `skipped`, what it said)]."""
    results = []
    for arguments in runs:
        what = " ".join(("promtool", *arguments))
        if not shutil.which("promtool"):
            results.append((what, "skipped", "promtool is not installed"))
            continue
        done = subprocess.run(["promtool", *arguments], cwd=root, capture_output=True, text=True, timeout=120)
        results.append((what, "passed" if done.returncode == 0 else "failed", done.stdout + done.stderr))
    return results


def report(answers):
    """Prints a line for each query, and returns how many have faults."""
    for answer in answers:
        state = "FAULT" if answer.faults else "right" if answer.series is None else "data" if answer.series else "empty"
        print(f"{state:5}  {answer.where}" + (f": {answer.series} series" if answer.series else ""))
        for fault in answer.faults:
            print(f"       {fault}")
        if answer.faults and answer.expr:
            print(f"       {answer.expr}")
    counts = [sum(bool(answer.faults) for answer in answers),
              sum(bool(answer.series) for answer in answers if not answer.faults),
              sum(answer.series == 0 for answer in answers if not answer.faults)]
    print("{} queries: {} with faults, {} with data, {} empty".format(len(answers), *counts))
    return counts[0]


def text_of(place):
    """A page from a URL or a file."""
    if place.startswith(("http://", "https://")):
        with urllib.request.urlopen(place, timeout=10) as response:
            return response.read().decode()
    return Path(place).read_text()


def main():
    parser = argparse.ArgumentParser(prog="tests/panels/panels.py", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prometheus", metavar="URL", help="where to ask the queries")
    parser.add_argument("--metrics", metavar="URL|FILE", action="append", default=[], help="/metrics of a gateway")
    options = parser.parse_args()
    if options.prometheus and not options.metrics:
        parser.error("--prometheus needs --metrics")
    try:
        files = Files()
    except (yml.Fault, ValueError, OSError) as error:
        sys.exit(f"panels: {error}")
    faults = structure.faults(files)
    if options.prometheus:
        faults += unloaded(options.prometheus, files)
    for fault in faults:
        print(f"FAULT  {fault}")
    failed = len(faults)
    for what, state, said in promtool():
        print(f"{state}  {what}" + (f"\n{said}" if state == "failed" else ""))
        failed += state == "failed"
    if options.metrics:
        try:
            page = "\n".join(map(text_of, options.metrics))
        except OSError as error:
            sys.exit(f"panels: /metrics cannot be read: {error}")
        failed += report(check(options.prometheus, page, files))
    print(f"{failed} faults" if failed else "all is well")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
