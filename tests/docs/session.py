"""A shell in which the commands of a document are run, beside a Weir of its own."""

import os
import re
import shutil
import signal
import subprocess
import time
import urllib.error
import urllib.request
import uuid

from blocks import ROOT

TOKEN = "a-token-of-the-documents"
# What differs from run to run, and what takes its place in both texts.
VARYING = [
    (re.compile(r"^Date: .*", re.MULTILINE), "Date: …"),
    (re.compile(r"^Content-Length: \d+", re.MULTILINE), "Content-Length: …"),
    (re.compile(r"\b1[789]\d{8}(\.\d+)?\b"), "SECONDS"),
    (re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z"), "TIME"),
    (re.compile(r"weir-[0-9a-f]{8}"), "weir-NODE"),
    (re.compile(r"curl/[\w.]+"), "curl/…"),
    (re.compile(r'"retry_after_ms":\d+'), '"retry_after_ms":…'),
    (re.compile(r"weir_[0-9A-Za-z]{4}…|weir_[0-9A-Za-z_-]{20,}"), "KEY"),
    (re.compile(r"sha256:[0-9a-f]{64}|sha256:[0-9a-f]{4}…"), "HASH"),
]


# What a Weir in the background writes to the terminal of its shell.
LOGGED = re.compile(r'^(?:\d{4}-\d\d-\d\dT[\d:.]+Z |\{"time":).*\n?', re.MULTILINE)


def same(shown, printed):
    """Whether a document shows what was printed, apart from logs, times and names that are drawn."""
    shown, printed = LOGGED.sub("", shown), LOGGED.sub("", printed)
    for pattern, stand_in in VARYING:
        shown, printed = pattern.sub(stand_in, shown), pattern.sub(stand_in, printed)
    return shown.strip() == printed.strip()


class Session:
    """Ends with everything that was started in it: `run` has it in namespaces of its own."""

    def __init__(self, weir, folder, served=None):
        self.folder, self.gateway = folder, None
        for name in ("config", "docker-compose.yml"):
            if not (folder / name).exists():
                os.symlink(ROOT / name, folder / name)
        # Replaced and not overwritten: one of the session before may still be about to end.
        shutil.copy(weir, folder / "weir.new")
        os.replace(folder / "weir.new", folder / "weir")
        # curl shows its progress where its output is no terminal's.
        (folder / ".curlrc").write_text("silent\nshow-error\n")
        self.environment = {**os.environ, "HOME": str(folder), "PATH": f"{folder}:{os.environ['PATH']}", "WEIR_ADMIN_TOKEN": TOKEN,
                            "WEIR_REDIS_PASSWORD": "secret", "WEIR_DOCS_SECRET": "s" * 32, "WEIR_LOG": "error"}
        self.environment.pop("WEIR_CONFIG", None)
        if served:
            with open(folder / "weir.log", "w") as log:
                self.gateway = subprocess.Popen([folder / "weir", "--config", served], cwd=folder, env=self.environment, stderr=log)
            await_gateway(self.gateway, folder / "weir.log")
        self.shell = subprocess.Popen(["bash"], cwd=folder, env=self.environment, text=True, start_new_session=True,
                                      stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def run(self, command):
        """What a command prints."""
        end = f"end-{uuid.uuid4()}"
        self.shell.stdin.write(f"{command}\necho; echo {end}\n")
        self.shell.stdin.flush()
        lines = []
        for line in self.shell.stdout:
            if line.rstrip("\n") == end:
                break
            lines.append(line)
        return "".join(lines)

    def close(self):
        os.killpg(self.shell.pid, signal.SIGKILL)
        self.shell.wait()
        if self.gateway:
            self.gateway.kill()
            self.gateway.wait()
        # Started in this session and left its process group: a server that made itself a daemon.
        subprocess.run(["redis-cli", "shutdown", "nosave"], capture_output=True)


def await_gateway(process, log, seconds=30):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and process.poll() is None:
        try:
            urllib.request.urlopen("http://127.0.0.1:9090/readyz").close()
            return
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.05)
    raise RuntimeError(f"weir is not ready after {seconds} s, exit code {process.poll()}:\n{log.read_text()}")
