"""What a PromQL query asks for, held against what there is.

Prometheus answers a misspelt metric, label or label value with nothing, and nothing looks like all
being well. So queries are read here, operator by operator, and each part knows the labels it ends
up with: those of a selector, those that `by` leaves, those that `label_replace` adds.
"""

import re
from typing import NamedTuple

TOKEN = re.compile(r"""
    (?P<space>\s+|\#[^\n]*)
  | (?P<string>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|`[^`]*`)
  | (?P<duration>(?:\d+(?:ms|[smhdwy]))+)(?![\w.])
  | (?P<number>(?:\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+|0[xX][0-9a-fA-F]+)|(?:inf|nan)\b)
  | (?P<name>[a-zA-Z_][a-zA-Z0-9_:]*)
  | (?P<sign>=~|!~|==|!=|>=|<=|[-+*/%^(){}\[\],=<>@:])
""", re.VERBOSE)

AGGREGATIONS = {"sum", "min", "max", "avg", "group", "stddev", "stdvar", "count", "count_values", "bottomk", "topk",
                "quantile", "limitk", "limit_ratio"}
# These keep the series as they are; the others leave what `by` says.
CHOOSING = {"topk", "bottomk", "limitk", "limit_ratio"}
SCALARS = {"time", "pi", "scalar", "minute", "hour", "month", "year", "day_of_month", "day_of_week"}
PRECEDENCE = {"or": 1, "and": 2, "unless": 2, "==": 3, "!=": 3, ">": 3, "<": 3, ">=": 3, "<=": 3,
              "+": 4, "-": 4, "*": 5, "/": 5, "%": 5, "atan2": 5, "^": 6}
SETS = {"and", "or", "unless"}


class Token(NamedTuple):
    kind: str
    text: str


class Unreadable(Exception):
    """The query is no PromQL, or more of it than this reads."""


def tokens(query):
    found, at = [], 0
    while at < len(query):
        match = TOKEN.match(query, at)
        if not match:
            raise Unreadable(f"cannot be read from {query[at:at + 20]!r} on")
        if match.lastgroup != "space":
            found.append(Token(match.lastgroup, match.group()))
        at = match.end()
    return found


def read(query, catalogue):
    """(the labels of the result, or None for a number; what is wrong with it)."""
    reader = Reader(query, catalogue)
    try:
        labels = reader.expression()
        if reader.at < len(reader.tokens):
            raise Unreadable(f"goes on after its end: {reader.tokens[reader.at].text!r}")
    except Unreadable as fault:
        return None, reader.faults + [str(fault)]
    return labels, reader.faults


class Reader:
    def __init__(self, query, catalogue):
        self.tokens, self.at, self.catalogue, self.faults = tokens(query), 0, catalogue, []

    def next(self, kind=None, text=None):
        """Takes the next token, which has to be of that kind or text."""
        token = self.tokens[self.at] if self.at < len(self.tokens) else Token("end", "its end")
        if kind not in (None, token.kind) or text not in (None, token.text):
            raise Unreadable(f"has {token.text!r} where {text or kind} should be")
        self.at += 1
        return token

    def sees(self, *texts):
        """Whether the next token, which is no string, is one of them."""
        token = self.tokens[self.at] if self.at < len(self.tokens) else Token("end", "")
        return token.kind != "string" and token.text in texts

    def takes(self, text):
        if self.sees(text):
            self.at += 1
            return True
        return False

    def expression(self, least=1):
        left = self.operand()
        while self.sees(*PRECEDENCE):
            operator = self.tokens[self.at].text
            if PRECEDENCE[operator] < least:
                break
            self.at += 1
            self.takes("bool")
            matching = self.matching()
            right = self.expression(PRECEDENCE[operator] + (operator != "^"))
            left = self.joined(operator, left, matching, right)
        return left

    def matching(self):
        """(`on` or `ignoring` or None, its labels, `group_left` or `group_right` or None, its labels)."""
        how = group = None
        labels, extra = set(), set()
        if self.sees("on", "ignoring"):
            how = self.next().text
            labels = self.labels()
        if self.sees("group_left", "group_right"):
            group = self.next().text
            extra = self.labels() if self.sees("(") else set()
        return how, labels, group, extra

    def labels(self):
        """The names in a list such as `(limit, outcome)`."""
        names = set()
        self.next(text="(")
        while not self.sees(")"):
            names.add(self.next("name").text)
            if not self.takes(","):
                break
        self.next(text=")")
        return names

    def joined(self, operator, left, matching, right):
        """The labels that an operator between two parts leaves."""
        if left is None or right is None:
            return right if left is None else left
        how, labels, group, extra = matching
        for name in sorted(labels):
            if name not in (left & right if how == "on" else left | right):
                self.faults.append(f"`{how} ({name})`: there is no such label on {shown(left)} and {shown(right)}")
        keys = (frozenset(labels),) * 2 if how == "on" else (left - labels, right - labels)
        if operator != "or" and keys[0] != keys[1]:
            self.faults.append(f"the sides of `{operator}` never match: {shown(keys[0])} and {shown(keys[1])}")
        many, one = (right, left) if group == "group_right" else (left, right)
        for name in sorted(extra - one):
            self.faults.append(f"`{group} ({name})`: there is no such label on the other side")
        if operator == "or":
            return left | right
        if operator in SETS:
            return left
        return many | extra if group else keys[0]

    def operand(self):
        if self.sees("-", "+"):
            self.at += 1
            return self.operand()
        token = self.next()
        if token.kind in ("number", "duration"):
            return None
        if token.text == "(" and token.kind == "sign":
            labels = self.expression()
            self.next(text=")")
        elif token.kind == "name" and token.text in AGGREGATIONS and self.sees("(", "by", "without"):
            labels = self.aggregation(token.text)
        elif token.kind == "name" and self.sees("("):
            labels = self.call(token.text)
        elif token.kind == "name":
            labels = self.selector(token.text)
        else:
            raise Unreadable(f"has {token.text!r} where a metric, a function or a number should be")
        self.when()
        return labels

    def when(self):
        """A range, a subquery, `offset`, `@`: which samples are meant changes no label."""
        while self.sees("[", "offset", "@"):
            if self.next().text != "[":
                self.takes("-")
                self.next()
                continue
            self.next("duration")
            if self.takes(":") and not self.sees("]"):
                self.next("duration")
            self.next(text="]")

    def aggregation(self, name):
        clause = self.clause()
        labels = next((each for each in self.arguments() if isinstance(each, frozenset)), frozenset())
        clause = clause or self.clause()
        if name in CHOOSING or not clause:
            kept = labels if name in CHOOSING else frozenset()
        else:
            kept = clause[1] if clause[0] == "by" else labels - clause[1]
        for label in sorted(clause[1] - labels if clause else ()):
            self.faults.append(f"`{clause[0]} ({label})`: there is no such label on what {name} is of: {shown(labels)}")
        return frozenset(kept)

    def clause(self):
        """`by (…)` or `without (…)`, which stands before or after what is aggregated."""
        return (self.next().text, self.labels()) if self.sees("by", "without") else None

    def arguments(self):
        """Of a function: label sets, None for numbers, and texts."""
        found = []
        self.next(text="(")
        while not self.sees(")"):
            if self.at < len(self.tokens) and self.tokens[self.at].kind == "string":
                found.append(unquoted(self.next().text))
            else:
                found.append(self.expression())
            if not self.takes(","):
                break
        self.next(text=")")
        return found

    def call(self, name):
        arguments = self.arguments()
        labels = next((each for each in arguments if isinstance(each, frozenset)), None)
        if name in SCALARS:
            return None
        if name in ("vector", "absent", "absent_over_time"):
            return frozenset()
        if labels is None:
            raise Unreadable(f"has `{name}` of no series")
        if name == "histogram_quantile":
            if "le" not in labels:
                self.faults.append("histogram_quantile is of series without `le`")
            return labels - {"le"}
        if name in ("label_replace", "label_join"):
            texts = [each for each in arguments if isinstance(each, str)]
            sources = texts[2:3] if name == "label_replace" else texts[2:]
            for label in sources:
                if label not in labels:
                    self.faults.append(f"`{name}` reads `{label}`: there is no such label")
            return labels | set(texts[:1])
        return labels

    def selector(self, metric):
        known = self.catalogue.labels(metric)
        if known is None:
            self.faults.append(f"there is no metric `{metric}`{self.catalogue.nearest(metric)}")
        matchers = self.matchers() if self.takes("{") else []
        for label, operator, value in matchers:
            if known is not None and label not in known:
                self.faults.append(f"`{metric}` has no label `{label}`, only {shown(known)}")
            elif known is not None:
                self.faults += self.catalogue.values(metric, label, operator, value)
        return frozenset(known or ())

    def matchers(self):
        found = []
        while not self.sees("}"):
            label = self.next("name").text
            if not self.sees("=", "!=", "=~", "!~"):
                raise Unreadable(f"has no matcher behind `{label}`")
            found.append((label, self.next().text, unquoted(self.next("string").text)))
            if not self.takes(","):
                break
        self.next(text="}")
        return found


def unquoted(text):
    return text[1:-1] if text[0] == "`" else re.sub(r"\\(.)", r"\1", text[1:-1])


def shown(labels):
    return "{" + ", ".join(sorted(labels)) + "}"
