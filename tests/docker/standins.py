"""Images for where none can be pulled: made of Debian's packages and the installed Rust.

A stand-in has the same programs at the same places as the image it stands for, and the same entry
point, so that the Dockerfile and docker-compose.yml are used as they are. It is kept under a name of
its own, weir-stand-in/…, and has the name of the other only while it is needed.
"""

import fcntl
import io
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

from report import Failure, progress

LABEL = "weir.stand-in"
OWN = "weir-stand-in/"
# The one on which the others stand: what `debian` is on a registry.
BASE = OWN + "debian:bookworm"

SECRET = re.compile(r"\s*(token|\S*password|credential)")

REDIS = """
RUN apt-get update -q && apt-get install -y -q --no-install-recommends redis-server \\
    && rm -rf /var/lib/apt/lists/* && mkdir /data && chown redis:redis /data
COPY redis-entry /usr/local/bin/docker-entrypoint.sh
VOLUME /data
WORKDIR /data
EXPOSE 6379
ENTRYPOINT ["docker-entrypoint.sh"]
CMD ["redis-server"]
"""

# As the image of that name does: the server is not root, and asks no password of its network.
REDIS_ENTRY = """#!/bin/sh
set -e
if [ "$1" = redis-server ]; then
    chown -R redis:redis /data
    exec setpriv --reuid redis --regid redis --clear-groups -- "$@" --protected-mode no
fi
exec "$@"
"""

PROMETHEUS = """
RUN apt-get update -q && apt-get install -y -q --no-install-recommends prometheus wget \\
    && rm -rf /var/lib/apt/lists/* && mkdir -p /etc/prometheus /prometheus \\
    && chown nobody:nogroup /prometheus
USER nobody
VOLUME /prometheus
WORKDIR /prometheus
EXPOSE 9090
ENTRYPOINT ["/bin/prometheus"]
CMD ["--config.file=/etc/prometheus/prometheus.yml", "--storage.tsdb.path=/prometheus"]
"""

RUST = """
RUN apt-get update -q && apt-get install -y -q --no-install-recommends gcc libc6-dev \\
    && rm -rf /var/lib/apt/lists/*
ENV CARGO_HOME=/usr/local/cargo PATH=/usr/local/cargo/bin:/usr/local/rust/bin:/usr/sbin:/usr/bin:/sbin:/bin
COPY rust /usr/local/rust
COPY cargo /usr/local/cargo
"""


def engine_answers():
    return shutil.which("docker") is not None and docker("info", quiet=True).returncode == 0


class Images:
    """The images of one run. Names that were lent to stand-ins are taken back at its end.

    Another run may be using them: whoever is the last takes them back.
    """

    def __init__(self):
        self.lent = []
        self.using = open(Path(tempfile.gettempdir()) / f"weir-stand-ins-{os.getuid()}.lock", "w")
        fcntl.flock(self.using, fcntl.LOCK_SH)

    def have(self, image):
        """Whether the image is there, was pulled, or could be replaced by a stand-in."""
        if exists(image) and not is_stand_in(image):
            return True
        progress(f"pulling {image}")
        if docker("pull", "-q", image, quiet=True).returncode == 0:
            return True
        if not (exists(OWN + image) or make(image)):
            return False
        progress(f"a stand-in serves as {image}")
        docker("tag", OWN + image, image)
        self.lent.append(image)
        return True

    def give_back(self):
        try:
            fcntl.flock(self.using, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        for image in self.lent:
            docker("image", "rm", "--no-prune", image, quiet=True)


def exists(image):
    return docker("image", "inspect", image, quiet=True).returncode == 0


def is_stand_in(image):
    return LABEL in docker("image", "inspect", "--format", "{{json .Config.Labels}}", image).stdout


def remove():
    """Takes away all stand-ins, and what was built on them."""
    # Children first: an image on which another stands would only lose its name.
    for _ in range(8):
        listed = docker("images", "-aq", "--no-trunc", "--filter", f"label={LABEL}").stdout.split()
        if not listed:
            return
        for image in dict.fromkeys(listed):
            docker("image", "rm", "-f", image, quiet=True)
    progress("some stand-ins are in use by containers and stay")


def make(image):
    """Makes the stand-in for an image; returns whether there is one."""
    name = image.split(":")[0]
    if name == "rust":
        build(image, RUST, toolchain)
    elif name == "redis":
        build(image, REDIS, lambda tar: put(tar, "redis-entry", REDIS_ENTRY, 0o755))
    elif name == "prom/prometheus":
        build(image, PROMETHEUS, lambda tar: None)
    else:
        return False
    return True


def build(image, steps, fill):
    """Builds on the base, from a folder that only ever exists as a stream."""
    base()
    progress(f"making a stand-in for {image}")
    command = ["docker", "build", "-q", "-t", OWN + image, "-"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as builder:
        try:
            with tarfile.open(fileobj=builder.stdin, mode="w|") as tar:
                put(tar, "Dockerfile", f"FROM {BASE}\nLABEL {LABEL}={name_of(image)}\n{steps}")
                fill(tar)
            builder.stdin.close()
        except BrokenPipeError:
            pass  # What it says is the reason.
        said = builder.stdout.read().decode(errors="replace")
    if builder.returncode != 0:
        raise Failure(f"cannot make a stand-in for {image}:\n{said.strip()}")


def base():
    """Debian's smallest system, with the certificates of this machine."""
    if exists(BASE):
        return
    need("debootstrap")
    progress("making a Debian with debootstrap")
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "root"
        carry_out("debootstrap", "--variant=minbase", "--include=ca-certificates", "bookworm", root)
        certificates = Path("/etc/ssl/certs/ca-certificates.crt")
        if certificates.exists():
            shutil.copy(certificates, root / "etc/ssl/certs")
        packed = Path(folder) / "root.tar"
        carry_out("tar", "-C", root, "--exclude=./var/cache/apt/archives/*.deb", "-cf", packed, ".")
        carry_out("docker", "import", "--change", f"LABEL {LABEL}=debian", packed, BASE)


def toolchain(tar):
    """The Rust that is installed here, and how its Cargo finds packages."""
    sysroot = subprocess.run(["rustc", "--print", "sysroot"], capture_output=True, text=True, check=True)
    for part in ("bin", "lib", "libexec"):
        found = Path(sysroot.stdout.strip()) / part
        if found.exists():
            tar.add(found, f"rust/{part}")
    home = Path(os.environ.get("CARGO_HOME", Path.home() / ".cargo"))
    settings = next((home / name for name in ("config.toml", "config") if (home / name).exists()), None)
    lines = settings.read_text().splitlines(keepends=True) if settings else []
    # What it takes to log in somewhere is not for an image.
    put(tar, "cargo/config.toml", "".join(line for line in lines if not SECRET.match(line)))


def put(tar, name, text, mode=0o644):
    data = text.encode()
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(data), mode
    tar.addfile(entry, io.BytesIO(data))


def need(program):
    if shutil.which(program):
        return
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise Failure(f"images cannot be pulled, and {program} to make them is not installed")
    carry_out("apt-get", "update", "-q")
    carry_out("apt-get", "install", "-y", "-q", "--no-install-recommends", program)


def carry_out(*command):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace")
    if done.returncode != 0:
        shown = " ".join(str(part) for part in command)
        raise Failure(f"`{shown}` failed:\n{(done.stdout + done.stderr)[-2000:].strip()}")
    return done.stdout


def docker(*arguments, quiet=False):
    done = subprocess.run(["docker", *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if not quiet and done.returncode != 0:
        raise Failure(f"docker {' '.join(arguments)}: {done.stderr.strip()}")
    return done


def name_of(image):
    return image.split(":")[0].replace("/", "-")
