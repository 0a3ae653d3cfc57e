"""External validators for our files, downloaded into a cache by package clients without installing them.

`promtool` comes in Debian's package of Prometheus. Compose files are read by the loader of their
specification's authors, the one in `docker compose`, which builds without an engine.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import platformdirs

CACHE = platformdirs.user_cache_path("neardup") / "validators"
COMPOSE = "github.com/compose-spec/compose-go/v2/cmd@v2.16.2"
SECONDS = 120
"""Time-out of one command of a package client, in seconds."""


class NotFetchedError(Exception):
    """A program is not installed and cannot be downloaded; the message says why."""


def promtool() -> Path:
    """Return the path of the installed `promtool`, or of Debian's. Raises NotFetchedError."""
    installed = shutil.which("promtool")
    return Path(installed) if installed else _cached("promtool", _debian)


def compose_loader() -> Path:
    """Return the path of a program that prints a compose file as it is loaded. Raises NotFetchedError."""
    return _cached(f"compose-loader-{COMPOSE.partition('@')[2]}", _go)


def _cached(name: str, fetch: Callable[[Path], Path]) -> Path:
    """Return a cached file, fetching it if needed. It appears in the cache only when it is complete."""
    found = CACHE / name
    if not found.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE, prefix="fetch-") as scratch:
            os.replace(fetch(Path(scratch)), found)
    return found


def _debian(scratch: Path) -> Path:
    lists, cache = scratch / "lists", scratch / "cache"
    (lists / "partial").mkdir(parents=True)
    (cache / "archives" / "partial").mkdir(parents=True)
    # Lists of its own: the machine's may be missing or old, and are the administrator's to renew.
    apt = ["apt-get", "-qq", "-o", f"Dir::State::lists={lists}", "-o", f"Dir::Cache={cache}"]
    _run([*apt, "update"], scratch)
    _run([*apt, "download", "prometheus"], scratch)
    (package,) = scratch.glob("prometheus_*.deb")
    _run(["dpkg", "-x", str(package), "tree"], scratch)
    return scratch / "tree" / "usr" / "bin" / "promtool"


def _go(scratch: Path) -> Path:
    _run(["go", "install", COMPOSE], scratch, {"GOBIN": str(scratch), "GOTOOLCHAIN": "local"})
    return scratch / "cmd"


def _run(command: list[str], directory: Path, variables: dict[str, str] | None = None) -> None:
    if shutil.which(command[0]) is None:
        raise NotFetchedError(f"no {command[0]} here to fetch it")
    try:
        done = subprocess.run(
            command,
            cwd=directory,
            env={**os.environ, **(variables or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise NotFetchedError(f"{command[0]}: no end after {SECONDS} s") from None
    if done.returncode:
        raise NotFetchedError(f"{' '.join(command[:2])}: exit code {done.returncode}, {done.stderr[-300:]!r}")
