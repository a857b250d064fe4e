"""What Weir exports: metrics, their labels, and the values of those labels that it enumerates.

A `/metrics` page is the truth about names and labels. It shows no more than its configuration has,
so what it can say beyond that stands here, and a page that says otherwise is a fault.
"""

import difflib
import re

import promql

SAMPLE = re.compile(r"([a-zA-Z_:][\w:]*)(?:\{(.*)\})? \S+$")
PAIR = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
# What Prometheus adds to every series it scrapes.
TARGET = {"job", "instance"}

# There are no such series without an upstream other than echo, its `health`, `breaker` or `max_connections`,
# a listener with `tls`, a limit with a queue, a guard, users, the store `hybrid`, or a store that gateways share.
CONDITIONAL = {
    "weir_upstream_errors_total": {"upstream", "error"},
    "weir_upstream_seconds_bucket": {"upstream", "le"},
    "weir_upstream_seconds_count": {"upstream"},
    "weir_upstream_seconds_sum": {"upstream"},
    "weir_upstream_ejections_total": {"upstream", "server"},
    "weir_upstream_healthy": {"upstream", "server"},
    "weir_upstream_breaker_open": {"upstream"},
    "weir_upstream_pending": {"upstream", "server"},
    "weir_tls_certificate_expiry_seconds": {"certificate"},
    "weir_queue_depth": {"limit"},
    "weir_guard_detections_total": {"guard", "action"},
    "weir_trust_score_bucket": {"le"},
    "weir_leases": {"state"},
    "weir_overshoot_bound": {"limit"},
}
VALUES = {
    ("weir_decisions_total", "outcome"): {"allowed", "refused", "queued", "degraded", "shadow_allowed",
                                          "shadow_refused", "unchecked"},
    ("weir_store_errors_total", "reason"): {"timeout", "connection", "loading", "readonly", "busy", "oom", "cluster",
                                            "script", "reply", "denied", "other"},
    ("weir_tls_handshake_errors_total", "reason"): {"alert", "client_certificate", "crowded", "disconnected",
                                                    "incompatible", "malformed", "not_tls", "plain_http", "timeout"},
    ("weir_http2_floods_total", "reason"): {"codec", "frames", "streams"},
    ("weir_config_reloads_total", "result"): {"ok", "failed"},
    ("weir_upstream_errors_total", "error"): {"unreachable", "timeout", "broken", "cut_off", "status_5xx", "breaker_open", "saturated"},
    ("weir_access_total", "action"): {"allowed", "denied"},
    ("weir_leases", "state"): {"active", "dry"},
    ("weir_guard_detections_total", "action"): {"warned", "blocked", "refused",
                                                "shadow_warned", "shadow_blocked", "shadow_refused"},
    **{(f"weir_decision_seconds_{part}", "store"): {"memory", "redis", "hybrid", "local"}
       for part in ("bucket", "count", "sum")},
}


class Catalogue:
    """Metrics by name, from one or more `/metrics` pages in one text."""

    def __init__(self, page):
        self.metrics, self.known, self.faults = {}, dict(VALUES), []
        for line in page.splitlines():
            if not line.strip() or line.startswith("#"):
                continue
            match = SAMPLE.match(line.strip())
            if not match:
                self.faults.append(f"/metrics has a line that is no sample: {line!r}")
                continue
            name, pairs = match.group(1), PAIR.findall(match.group(2) or "")
            self.metrics.setdefault(name, set()).update(label for label, _ in pairs)
            for label, value in pairs:
                if value not in VALUES.get((name, label), {value}):
                    self.faults.append(f"/metrics has {name}{{{label}=\"{value}\"}}, which tests/panels/catalogue.py "
                                       "does not know")
        for name, labels in CONDITIONAL.items():
            if self.metrics.setdefault(name, labels) != labels:
                self.faults.append(f"/metrics has {name} with {promql.shown(self.metrics[name])}, "
                                   f"and tests/panels/catalogue.py with {promql.shown(labels)}")

    def add(self, name, labels, **values):
        """A series that is Prometheus's own, with all the values its labels can have."""
        self.metrics[name] = set(labels)
        for label, known in values.items():
            self.known[name, label] = set(known)

    def labels(self, metric):
        """All labels of a metric as Prometheus has it, or None if there is no such metric."""
        return self.metrics[metric] | TARGET if metric in self.metrics else None

    def values(self, metric, label, operator, value):
        """What is wrong with a matcher: each value it names must be one that there can be."""
        known = self.known.get((metric, label))
        if known is None:
            return []
        if operator in ("=", "!="):
            wrong = [] if value in known else [value]
        else:
            parts = [value] if "(" in value else value.split("|")
            wrong = [part for part in parts if not any(re.fullmatch(part, each) for each in known)]
        return [f"`{metric}` never has `{label}` {part!r}{nearest(part, known)}" for part in wrong]

    def nearest(self, metric):
        return nearest(metric, self.metrics)


def nearest(text, known):
    close = difflib.get_close_matches(text, sorted(known), n=1)
    return f"; did you mean `{close[0]}`?" if close else ""
