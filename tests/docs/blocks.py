"""The documents and the blocks of code in them.

A block's first line may say, after its language, how it is tested:

    toml                  a piece of a configuration: passes `weir check` with what it leaves out
    toml in=limits.NAME   the same, as lines of that table
    toml file=NAME        added to that file of the document, which has to pass as a whole
    console               its commands are run, and have to print what is shown
    console run=FILE      the same beside a fresh Weir that serves that file of the document, or
                          `run=default`: config/config.toml
    console with=FILE     the same, beside the Weir and in the shell of the block before it
    console docker        names services, profiles and files that exist; tests/docker runs them
    console tools         names programs and files of this repository that exist
    console start         is what the tests themselves begin with
"""

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent.parent
FENCE = re.compile(r"^```(\w*)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    document: Path
    line: int
    language: str
    options: dict
    text: str

    @property
    def where(self):
        return f"{self.document.relative_to(ROOT)}:{self.line}"

    def commands(self):
        """Each command with the lines that it is shown to print."""
        commands = []
        for line in self.text.splitlines():
            if line.startswith("$ "):
                commands.append((line[2:], []))
            elif not commands:
                raise ValueError(f"{self.where}: a console block begins with `$ ` and a command")
            else:
                commands[-1][1].append(line)
        return commands


def documents():
    return [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")] + sorted(ROOT.glob("docs/*.md"))


def blocks(document):
    text = document.read_text()
    for found in FENCE.finditer(text):
        language, options, body = found.groups()
        line = text.count("\n", 0, found.start()) + 1
        yield Block(document, line, language, dict(option.partition("=")[::2] for option in options.split()), body)
