"""The dashboard, the rules and what provisions them, as far as files alone can be wrong.

Grafana loads most of what is wrong here without a word, and shows an empty panel.
"""

import re
from itertools import combinations

VARIABLE = re.compile(r"\$\{?([A-Za-z_]\w*)")
COLUMNS = 24
# Where the compose file mounts the dashboards, and what it calls Prometheus.
DASHBOARDS = "/var/lib/grafana/dashboards"
PROMETHEUS = "http://prometheus:9090"


def faults(files):
    """Every error, each as a sentence with its location."""
    return [*of_dashboard(files), *of_provisioning(files), *of_rules(files), *of_texts(files), *of_metrics(files)]


def panels(dashboard):
    """All panels, those in collapsed rows as well, rows themselves left out."""
    for panel in dashboard["panels"]:
        yield from panel.get("panels", [])
        if panel["type"] != "row":
            yield panel


def variables(dashboard):
    return dashboard["templating"]["list"]


def name_of(panel):
    return f'panel {panel.get("id")} "{panel.get("title", "")}"'


def of_dashboard(files):
    dashboard = files.dashboard
    for key, value in (("uid", "weir"), ("title", "Weir"), ("refresh", "5s"), ("timezone", "browser")):
        if dashboard.get(key) != value:
            yield f"dashboard: `{key}` is {dashboard.get(key)!r}, not {value!r}"
    if dashboard.get("id") is not None:
        yield "dashboard: `id` is of another Grafana's database; leave it out"
    yield from twice("dashboard: panel id", [panel["id"] for panel in dashboard["panels"]]
                     + [inner["id"] for panel in dashboard["panels"] for inner in panel.get("panels", [])])
    yield from of_grid(dashboard)
    defined = {variable["name"] for variable in variables(dashboard)}
    for panel in panels(dashboard):
        yield from (f"{name_of(panel)}: {fault}" for fault in of_panel(panel, files, defined))
    for variable in variables(dashboard):
        query = variable["query"]["query"]
        if variable.get("definition") != query:
            yield f"variable {variable['name']}: `definition` is not its query"
        yield from (f"variable {variable['name']}: {fault}" for fault in of_source(variable, files))
    for annotation in dashboard["annotations"]["list"]:
        # Grafana has read them from either place, by its version.
        if annotation.get("builtIn") != 1 and annotation["expr"] != annotation["target"]["expr"]:
            yield f"annotation {annotation['name']}: `expr` and `target.expr` differ"


def of_grid(dashboard):
    places = [(panel, panel["gridPos"]) for panel in dashboard["panels"]]
    for panel, at in places:
        if at["x"] < 0 or at["y"] < 0 or at["w"] < 1 or at["h"] < 1 or at["x"] + at["w"] > COLUMNS:
            yield f"{name_of(panel)}: does not fit into {COLUMNS} columns"
    for (one, a), (other, b) in combinations(places, 2):
        if (a["x"] < b["x"] + b["w"] and b["x"] < a["x"] + a["w"]
                and a["y"] < b["y"] + b["h"] and b["y"] < a["y"] + a["h"]):
            yield f"{name_of(one)}: overlaps {name_of(other)}"


def of_panel(panel, files, defined):
    if not panel.get("title"):
        yield "has no title"
    if not panel.get("description", "").endswith("."):
        yield "has no description that is a sentence"
    yield from of_source(panel, files)
    defaults = panel["fieldConfig"]["defaults"]
    if not defaults.get("unit"):
        yield "has no unit"
    linear = defaults.get("custom", {}).get("scaleDistribution", {}).get("type") == "linear"
    if panel["type"] == "timeseries" and linear and defaults.get("min") != 0:
        yield "does not begin at 0"
    if panel["type"] == "timeseries" and not defaults.get("noValue"):
        yield "does not say what it means that it is empty"
    targets = panel.get("targets", [])
    if not targets:
        yield "asks nothing"
    yield from twice("refId", [target.get("refId") for target in targets])
    for target in targets:
        if not target.get("refId") or not target.get("expr"):
            yield "has a target without `refId` or `expr`"
        yield from of_source(target, files)
        if panel["type"] != "table" and not target.get("legendFormat"):
            yield f"has no legend for {target.get('refId')}"
        for variable in VARIABLE.findall(target.get("expr", "")):
            if variable not in defined and not variable.startswith("__"):
                yield f"uses ${variable}, which is not defined"


def of_names(panel, labels, values):
    """Columns and series that a panel arranges or paints, by name: a misspelt one has no effect.

    `labels` are those of all its queries' results, `values` what labels can be if that is known.
    """
    refs = [target["refId"] for target in panel["targets"]]
    steps = [step["options"] for step in panel.get("transformations", []) if step["id"] == "organize"]
    fields = labels | {"Time"} | ({f"Value #{ref}" for ref in refs} if len(refs) > 1 else {"Value"})
    for options in steps:
        for name in sorted({name for part in options.values() for name in part} - fields):
            yield f"arranges a column {name!r} that there is not"
    legends = [legend_pattern(target.get("legendFormat", ""), values) for target in panel["targets"]]
    if panel["type"] == "table":
        renamed = {old: new for options in steps for old, new in options["renameByName"].items()}
        legends = [re.escape(renamed.get(field, field)) for field in fields]
    matchers = [override["matcher"] for override in panel["fieldConfig"]["overrides"]]
    for matcher in matchers:
        if matcher["id"] == "byFrameRefID" and matcher["options"] not in refs:
            yield f"has something to say of query {matcher['options']}, which there is not"
    names = [matcher["options"] for matcher in matchers if matcher["id"] == "byName"]
    names += [order["displayName"] for order in panel["options"].get("sortBy", [])]
    for name in names:
        if not any(re.fullmatch(legend, name) for legend in legends):
            yield f"has something to say of {name!r}, and nothing is called so"


def legend_pattern(legend, values):
    parts = re.split(r"\{\{\s*(\w+)\s*\}\}", legend)
    def known(label):
        return f"({'|'.join(map(re.escape, sorted(values[label])))})" if label in values else ".+"
    return "".join(known(part) if at % 2 else re.escape(part) for at, part in enumerate(parts))


def of_source(owner, files):
    """Every query names a data source that is provisioned."""
    source = owner.get("datasource") or {}
    provisioned = {(each["type"], each["uid"]) for each in files.datasources["datasources"]}
    if (source.get("type"), source.get("uid")) not in provisioned:
        yield f"asks data source {source.get('uid')!r}, which is not provisioned"


def of_provisioning(files):
    for what, file in (("datasources", files.datasources), ("dashboards", files.providers)):
        if file.get("apiVersion") != 1:
            yield f"provisioning/{what}: apiVersion is not 1"
    sources = files.datasources["datasources"]
    for source in sources:
        if source.get("type") == "prometheus" and source.get("url") != PROMETHEUS:
            yield f"data source {source.get('name')}: url is not {PROMETHEUS}"
    if sum(source.get("isDefault", False) for source in sources) != 1:
        yield "data sources: one has to be the default"
    scrape = files.prometheus["global"]["scrape_interval"]
    if sources[0].get("jsonData", {}).get("timeInterval") != scrape:
        yield f"data source {sources[0].get('name')}: timeInterval is not the scrape interval, {scrape}"
    for provider in files.providers["providers"]:
        if provider.get("type") != "file" or provider.get("options", {}).get("path") != DASHBOARDS:
            yield f"provider {provider.get('name')}: does not read the files in {DASHBOARDS}"
    if "alerts.yml" not in (files.prometheus.get("rule_files") or []):
        yield "prometheus.yml: does not load alerts.yml"
    gateways = [job for job in files.prometheus["scrape_configs"] if job["job_name"] == "weir"]
    if [each for job in gateways for each in job.get("dns_sd_configs", [])][:1] != [
            {"names": ["gateways"], "type": "A", "port": 9090, "refresh_interval": "5s"}]:
        yield "prometheus.yml: job weir does not find the gateways by their name"


def of_rules(files):
    tested = {}
    for test in files.alert_tests:
        for case in test.get("promql_expr_test", []):
            for name in re.findall(r'alertname="(\w+)"', case["expr"]):
                tested.setdefault(name, set()).add(bool(case["exp_samples"]))
        for case in test.get("alert_rule_test", []):
            tested.setdefault(case["alertname"], set()).add(bool(case["exp_alerts"]))
    for rule in files.rules():
        name, annotations = rule["alert"], rule.get("annotations", {})
        if not re.fullmatch(r"Weir[A-Z]\w+", name):
            yield f"alert {name}: the dashboard shows those whose name begins with Weir"
        if rule.get("labels", {}).get("severity") not in ("warning", "critical"):
            yield f"alert {name}: severity is neither warning nor critical"
        if not annotations.get("summary") or not annotations.get("description", "").endswith("."):
            yield f"alert {name}: has no summary, or no description that is a sentence"
        if tested.get(name) != {True, False}:
            yield f"alert {name}: tests/panels/alerts does not show both when it fires and when it does not"
        sections = re.findall(r'docs/(\w+)\.md, "([^"]+)"', annotations.get("description", ""))
        if not sections:
            yield f"alert {name}: names no section of the documents"
        for document, section in sections:
            if f"\n## {section}\n" not in files.documents.get(document, ""):
                yield f"alert {name}: docs/{document}.md has no section {section!r}"
    yield from twice("alert", [rule["alert"] for rule in files.rules()])
    for name in sorted(set(tested) - {rule["alert"] for rule in files.rules()}):
        yield f"tests/panels/alerts: there is no alert {name}"


def of_texts(files):
    """docs/monitoring.md describes every panel and every alert."""
    for panel in panels(files.dashboard):
        if f"**{panel['title']}**" not in files.guide:
            yield f"docs/monitoring.md: does not tell of {name_of(panel)}"
    for rule in files.rules():
        if f"`{rule['alert']}`" not in files.guide:
            yield f"docs/monitoring.md: does not tell of alert {rule['alert']}"


def of_metrics(files):
    """The dashboard shows every metric that docs/metrics.md has."""
    asked = [target["expr"] for panel in panels(files.dashboard) for target in panel.get("targets", [])]
    asked += [each["expr"] for each in files.dashboard["annotations"]["list"] if "expr" in each]
    shown = {re.sub("_(bucket|count|sum)$", "", name) for expr in asked for name in re.findall(r"\bweir_\w+", expr)}
    rows = [line.split("|")[1] for line in files.documents["metrics"].splitlines() if line.startswith("| `weir_")]
    for name in (name for row in rows for name in re.findall(r"`(weir_\w+)", row)):
        if name not in shown:
            yield f"docs/metrics.md: the dashboard does not show {name}"


def twice(what, values):
    for value in sorted({each for each in values if values.count(each) > 1}, key=str):
        yield f"{what} {value} is there twice"
