"""Claims about the image by itself: what is in it, and that it runs locked down."""

import json
import re
import tarfile
import subprocess
import tempfile
from pathlib import Path

from client import ask, at_once
from compose import free_ports, wait_for
from report import Failure, figure, holds
from standins import carry_out

# What an empty image has as well: the places where an engine puts things into a container.
ENGINE = re.compile(r"(\.dockerenv|dev|proc|sys|etc/(hostname|hosts|mtab|resolv\.conf))(/.*)?")

BURST_OF_TWO = """
[limits.two]
key = "global"
rate = "1/hour"
burst = 2
[[routes]]
name = "all"
path = "/*"
upstream = "echo"
limits = ["two"]
"""


def the_image_holds_the_binary_a_configuration_and_certificates(image):
    container = carry_out("docker", "create", image).strip()
    try:
        with tempfile.TemporaryFile() as packed:
            subprocess.run(["docker", "export", container], stdout=packed, check=True)
            packed.seek(0)
            with tarfile.open(fileobj=packed) as content:
                files = {it.name for it in content if not it.isdir() and not ENGINE.fullmatch(it.name)}
    finally:
        carry_out("docker", "rm", container)
    holds(files == {"usr/bin/weir", "etc/weir/config.toml", "etc/ssl/certs/ca-certificates.crt"}, files)
    size = int(carry_out("docker", "image", "inspect", "--format", "{{.Size}}", image))
    figure("size of the image", f"{size / 1e6:.1f} MB")
    holds(size < 20e6, size)


def the_image_is_no_root_and_says_how_it_is_stopped_and_asked(image):
    settings = json.loads(carry_out("docker", "image", "inspect", "--format", "{{json .Config}}", image))
    holds(settings["User"] == "65532:65532", settings["User"])
    holds(settings["StopSignal"] == "SIGTERM", settings["StopSignal"])
    holds(settings["Healthcheck"]["Test"] == ["CMD", "weir", "health"], settings["Healthcheck"])
    holds("WEIR_CONFIG=/etc/weir/config.toml" in settings["Env"], settings["Env"])


def it_serves_what_is_inside_on_a_read_only_file_system_without_privileges(image):
    with Container(image) as it:
        it.becomes_healthy()
        answers = at_once(20, it.port)
        holds(set(answers) == {200, 429} and answers[200] >= 5, answers)
        holds("weir_requests_total" in ask(it.admin, "/metrics").body)
        holds(ask(it.admin, "/v1/overrides").status == 404, "there is no /v1 without a token")
        holds(it.stop() == 0, "an end by `docker stop` is a good one")


def a_configuration_mounted_over_the_one_inside_is_served(image):
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        file = Path(folder) / "config.toml"
        file.write_text(BURST_OF_TWO)
        with Container(image, "-v", f"{file}:/etc/weir/config.toml:ro") as it:
            it.becomes_healthy()
            answers = at_once(10, it.port)
            holds(answers == {200: 2, 429: 8}, answers)


def a_configuration_with_faults_ends_it_with_their_places(image):
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        file = Path(folder) / "config.toml"
        file.write_text(BURST_OF_TWO.replace("burst", "brust"))
        command = ["docker", "run", "--rm", "-v", f"{file}:/etc/weir/config.toml:ro", image]
        ended = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        holds(ended.returncode == 2, ended)
        holds("config.toml:5:1" in ended.stderr and "burst" in ended.stderr, ended.stderr)


def a_volume_keeps_a_snapshot_over_containers(image):
    """The folder for it belongs to the user of the image, and so does a volume that is put there."""
    volume = carry_out("docker", "volume", "create").strip()
    try:
        with tempfile.TemporaryDirectory() as folder:
            Path(folder).chmod(0o755)
            file = Path(folder) / "config.toml"
            file.write_text(BURST_OF_TWO + '[store]\nsnapshot = "weir.snapshot"\n')
            mounts = ["-v", f"{file}:/etc/weir/config.toml:ro", "-v", f"{volume}:/var/lib/weir"]
            with Container(image, *mounts) as it:
                it.becomes_healthy()
                holds(at_once(4, it.port) == {200: 2, 429: 2})
                holds(it.stop() == 0)
            with Container(image, *mounts) as it:
                it.becomes_healthy()
                answers = at_once(4, it.port)
                holds(answers == {429: 4}, answers)
    finally:
        carry_out("docker", "volume", "rm", volume)


CLAIMS = [
    the_image_holds_the_binary_a_configuration_and_certificates,
    the_image_is_no_root_and_says_how_it_is_stopped_and_asked,
    it_serves_what_is_inside_on_a_read_only_file_system_without_privileges,
    a_configuration_mounted_over_the_one_inside_is_served,
    a_configuration_with_faults_ends_it_with_their_places,
    a_volume_keeps_a_snapshot_over_containers,
]


class Container:
    """The image as `docker run` has it, locked down as far as Docker can."""

    def __init__(self, image, *options):
        self.port, self.admin = free_ports(2)
        published = [f"127.0.0.1:{self.port}:8080", f"127.0.0.1:{self.admin}:9090"]
        locked = ["--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"]
        ports = [part for port in published for part in ("-p", port)]
        self.id = carry_out("docker", "create", *locked, *ports, *options, image).strip()

    def __enter__(self):
        try:
            carry_out("docker", "start", self.id)
        except Failure:
            self.__exit__()
            raise
        return self

    def becomes_healthy(self):
        def healthy():
            return self.state()["Health"]["Status"] == "healthy"

        wait_for(healthy, "the container to be healthy", explain=lambda: carry_out("docker", "logs", self.id))

    def state(self):
        return json.loads(carry_out("docker", "inspect", "--format", "{{json .State}}", self.id))

    def stop(self):
        """Ends it as Docker does; answers the code it ended with."""
        carry_out("docker", "stop", "-t", "35", self.id)
        return self.state()["ExitCode"]

    def __exit__(self, *_):
        carry_out("docker", "rm", "-fv", self.id)
