"""Reads the little of YAML that the files here are written in.

Python has no YAML of its own. Mappings, lists, plain and quoted scalars, `[a, b]` and block
scalars are understood; whatever else is a fault with its line, and not guessed at.
"""

import json
import re

KEY = re.compile(r"([A-Za-z_][\w.-]*):(?:\s+(.*))?$")
NUMBER = re.compile(r"-?\d+(\.\d+)?$")
# What begins with one of these means something else in YAML than it says.
SPECIAL = tuple("&*!{}]|>%@`,?#")


class Fault(Exception):
    """The file is not YAML, or more of it than this reads."""


def read(text):
    """The file as dicts, lists and scalars."""
    reader = Reader(text.splitlines())
    value = reader.block(0)
    if reader.peek() is not None:
        raise reader.fault("is indented otherwise than what stands before it")
    return value


class Reader:
    def __init__(self, lines):
        self.lines, self.at = lines, 0

    def fault(self, what):
        line = self.lines[self.at].strip() if self.at < len(self.lines) else "the end"
        return Fault(f"line {self.at + 1} {what}: {line!r}")

    def peek(self):
        """(indent, content) of the next line that says something, or None at the end."""
        while self.at < len(self.lines):
            line = without_comment(self.lines[self.at])
            if "\t" in line:
                raise self.fault("has a tab")
            if line.strip() and line.strip() != "---":
                return len(line) - len(line.lstrip()), line.strip()
            self.at += 1
        return None

    def block(self, least):
        """The mapping or list that begins at the next line, indented by at least so much."""
        line = self.peek()
        if line is None or line[0] < least:
            return None
        indent, content = line
        return self.list(indent) if is_item(content) else self.mapping(indent)

    def list(self, indent):
        items = []
        while (line := self.peek()) and line[0] == indent and is_item(line[1]):
            rest = line[1][1:].lstrip()
            if not rest:
                self.at += 1
                items.append(self.block(indent + 1))
            elif KEY.match(rest):
                # What follows the dash is the first line of a mapping that stands that much further in.
                inner = indent + len(line[1]) - len(rest)
                self.lines[self.at] = " " * inner + rest
                items.append(self.mapping(inner))
            else:
                items.append(self.scalar(rest))
                self.at += 1
        return items

    def mapping(self, indent):
        pairs = {}
        while (line := self.peek()) and line[0] == indent and not is_item(line[1]):
            match = KEY.match(line[1])
            if not match:
                raise self.fault("is no `key: value`")
            key, rest = match.groups()
            if key in pairs:
                raise self.fault("has a key for the second time")
            if rest and rest[0] in "|>":
                pairs[key] = self.text(rest, indent)
            elif rest:
                pairs[key] = self.scalar(rest)
                self.at += 1
            else:
                self.at += 1
                pairs[key] = self.below(indent)
        return pairs

    def below(self, indent):
        """What belongs to a key with nothing behind it. A list may stand right under its key."""
        line = self.peek()
        if line and line[0] == indent and is_item(line[1]):
            return self.list(indent)
        return self.block(indent + 1)

    def text(self, style, indent):
        """A block scalar: `|` keeps line ends, `>` folds them; `-` leaves out the last one."""
        if style not in ("|", "|-", ">", ">-"):
            raise self.fault("has a block scalar of a kind that is not read here")
        self.at += 1
        lines = []
        while self.at < len(self.lines):
            line = self.lines[self.at]
            if line.strip() and len(line) - len(line.lstrip()) <= indent:
                break
            lines.append(line)
            self.at += 1
        while lines and not lines[-1].strip():
            lines.pop()
        if not lines:
            return ""
        inner = len(lines[0]) - len(lines[0].lstrip())
        if style[0] == ">" and any(line.strip() == "" or line[inner:inner + 1] == " " for line in lines):
            raise self.fault("follows a folded text with lines that would not be folded")
        joined = (" " if style[0] == ">" else "\n").join(line[inner:].rstrip() for line in lines)
        return joined + ("" if style.endswith("-") else "\n")

    def scalar(self, text):
        if text.startswith('"'):
            try:
                return json.loads(text)
            except ValueError:
                raise self.fault("has a quoted text that does not end, or with an unknown escape") from None
        if text.startswith("'"):
            if not re.fullmatch(r"'([^']|'')*'", text):
                raise self.fault("has a quoted text that does not end")
            return text[1:-1].replace("''", "'")
        if text.startswith("["):
            inner = text[1:-1].strip()
            if not text.endswith("]") or "[" in inner:
                raise self.fault("has a list that is not read here")
            return [self.scalar(item.strip()) for item in inner.split(",")] if inner else []
        if text.startswith(SPECIAL) or ": " in text:
            raise self.fault("has what is not read here; quote it")
        if text in ("true", "false"):
            return text == "true"
        if text in ("null", "~"):
            return None
        if NUMBER.match(text):
            return float(text) if "." in text else int(text)
        return text


def is_item(content):
    return content == "-" or content.startswith("- ")


def without_comment(line):
    """The line up to a `#` that begins it or follows a space, outside of quotes."""
    quote = None
    for at, letter in enumerate(line):
        if quote:
            quote = None if letter == quote else quote
        elif letter in "\"'" and starts_scalar(line, at):
            quote = letter
        elif letter == "#" and (at == 0 or line[at - 1] == " "):
            return line[:at].rstrip()
    return line.rstrip()


def starts_scalar(line, at):
    """Whether a quote there begins a scalar, and is not a letter within one."""
    before = line[:at].rstrip()
    return not before or before[-1] in ":-[,"
