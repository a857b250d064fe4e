"""Progress, figures and the final count of the run."""

import time
import traceback

START = time.monotonic()
FIGURES = {}


class Failure(Exception):
    """A check that failed, and why."""


class Skipped(Exception):
    """A check that cannot run here, and why."""


def progress(text):
    print(f"{time.monotonic() - START:6.1f} s  {text}", flush=True)


def figure(name, value):
    """A number that is worth telling at the end."""
    FIGURES[name] = value


def holds(condition, seen=""):
    """Fails the claim that is being tried unless the condition is so."""
    if not condition:
        raise Failure(f"seen: {seen}" if seen != "" else "it is not so")


class Tally:
    """The claims, one after the other; one that fails does not keep the next from being tried."""

    def __init__(self):
        self.passed = self.failed = 0

    def try_all(self, claims, *about):
        for claim in claims:
            self.attempt(claim.__name__, claim, *about)

    def attempt(self, name, claim, *about):
        try:
            claim(*about)
        except Skipped as why:
            # As `tests/run` counts it.
            print(f"skipped: {name}: {why}", flush=True)
        except Exception as error:  # Whatever it is, the claim does not hold.
            self.failed += 1
            where = traceback.extract_tb(error.__traceback__)[1:2] or traceback.extract_tb(error.__traceback__)
            line = f"{where[0].filename}:{where[0].lineno}: {where[0].line}"
            progress(f"FAILED  {name}\n{line}\n{type(error).__name__}: {error}")
        else:
            self.passed += 1
            progress(f"ok      {name}")

    def close(self):
        """Ends with the figures and the counts; answers the exit code."""
        for name, value in FIGURES.items():
            print(f"{name}: {value}")
        # In the form of `cargo test`, so that counts can be added up.
        verdict = "FAILED" if self.failed else "ok"
        print(f"test result: {verdict}. {self.passed} passed; {self.failed} failed;")
        return 1 if self.failed else 0
