"""A compose project of the test's own: a copy of the checkout, a name, ports and an image."""

import json
import os
import re
import secrets
import shutil
import socket
import subprocess
import time
from pathlib import Path

from report import Failure, progress
from standins import carry_out, docker

ROOT = Path(__file__).resolve().parent.parent.parent
PORTS = ("WEIR_PORT", "WEIR_ADMIN_PORT", "WEIR_CLUSTER_PORT", "PROMETHEUS_PORT", "GRAFANA_PORT")


def program():
    """`docker compose`, or the older program of that name; None if there is neither."""
    for command in (["docker", "compose"], ["docker-compose"]):
        if shutil.which(command[0]) is None:
            continue
        asked = subprocess.run([*command, "version"], stdin=subprocess.DEVNULL, capture_output=True)
        if asked.returncode == 0:
            return command
    return None


def is_local():
    """Whether the engine sees the folders of this machine."""
    host = os.environ.get("DOCKER_HOST", "")
    return not host or host.startswith("unix:")


def images(folder, environment=None):
    """The image of each service that is started without a profile; None for Weir's own."""
    asked = subprocess.run([*program(), "config"], cwd=folder, env=environment, stdin=subprocess.DEVNULL,
                           capture_output=True, text=True)
    if asked.returncode != 0:
        raise Failure(f"docker-compose.yml is not understood:\n{asked.stderr.strip()}")
    services = re.search(r"^services:\n((?:  .*\n)+)", asked.stdout, re.MULTILINE).group(1)
    found, built = {}, set()
    for service in re.split(r"^(?=  \S)", services, flags=re.MULTILINE):
        image = re.search(r"^    image: (\S+)$", service, re.MULTILINE)
        if image and "\n    profiles:" not in service:
            found[service.split(":")[0].strip()] = image.group(1)
        if image and "\n    build:" in service:
            built.add(image.group(1))
    return {service: None if image in built else image for service, image in found.items()}


class Project:
    """One deployment. Nothing of it is shared with another one, but for what was built."""

    def __init__(self, folder):
        self.command = program()
        self.folder = Path(folder) / "weir"
        self.name = f"weir-test-{secrets.token_hex(4)}"
        self.image = f"{self.name}:latest"
        copy_checkout(self.folder)
        # On loopback, whatever the defaults are: this machine may be reached by others.
        self.ports = dict(zip(PORTS, free_ports(len(PORTS))))
        self.secrets = {}
        foreign = ("WEIR_", "COMPOSE_", "REDIS_", "GRAFANA_", "PROMETHEUS_")
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(foreign)},
            **{name: f"127.0.0.1:{port}" for name, port in self.ports.items()},
            "WEIR_IMAGE": self.image,
        }

    def images(self):
        return images(self.folder, self.environment)

    def run(self, *arguments, profile=None, check=True, timeout=300):
        """Runs one command of compose, and answers what it printed."""
        chosen = ["--profile", profile] if profile else []
        command = [*self.command, "-p", self.name, *chosen, *arguments]
        environment = {**self.environment, **self.secrets}
        done = subprocess.run(
            command, cwd=self.folder, env=environment, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, errors="replace", timeout=timeout,
        )
        if check and done.returncode != 0:
            shown = " ".join(arguments)
            raise Failure(f"`compose {shown}` failed:\n{(done.stdout + done.stderr)[-4000:].strip()}\n{self.last_words()}")
        return done.stdout

    def container(self, service):
        """The id of a service's container."""
        found = self.run("ps", "-aq", service, profile="cluster").split()
        if not found:
            raise Failure(f"{service} has no container")
        return found[0]

    def state(self, service):
        return json.loads(carry_out("docker", "inspect", "--format", "{{json .State}}", self.container(service)))

    def becomes_healthy(self, *services, within=90):
        """Waits until Docker finds them all healthy."""
        for service in services:
            def healthy():
                return self.state(service).get("Health", {}).get("Status") == "healthy"

            wait_for(healthy, f"{service} to be healthy", within, self.last_words)

    def last_words(self):
        """The end of every log, to find out what went wrong."""
        return self.run("logs", "--no-color", "--tail", "15", profile="cluster", check=False)[-8000:]

    def remove(self):
        progress("removing containers, networks and volumes")
        self.run("down", "--volumes", "--remove-orphans", "--timeout", "2", profile="cluster", check=False)
        # Its layers stay, for the next run.
        docker("image", "rm", "--no-prune", self.image, quiet=True)


def copy_checkout(folder):
    """What a clone would have: the files that git knows, as they are now."""
    listed = subprocess.run(["git", "ls-files", "-z", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True)
    if listed.returncode != 0:
        raise Failure(f"git does not say which files belong to the checkout: {listed.stderr.decode().strip()}")
    for name in listed.stdout.decode().split("\0"):
        source = ROOT / name
        if name and source.is_file():
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)


def free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [it.getsockname()[1] for it in sockets]
    for it in sockets:
        it.close()
    return ports


def wait_for(condition, what, within=30, explain=lambda: ""):
    """Waits until something is so, and answers what the condition did; fails if it never is."""
    until = time.monotonic() + within
    last = None
    while time.monotonic() < until:
        try:
            found = condition()
            if found:
                return found
        except (OSError, ValueError, KeyError) as error:
            last = error
        time.sleep(0.1)
    because = f" ({last})" if last else ""
    raise Failure(f"waited {within} s for {what}{because}\n{explain()}".strip())
