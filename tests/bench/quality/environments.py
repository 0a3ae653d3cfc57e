"""The peers' own environments, and documentation as HTML: made by `make bench`, only used by the benchmark.

    python -m tests.bench.quality.environments      # makes what is missing, below .cache/bench

`simhash` overflows with NumPy 2 on long texts, so it has an environment with NumPy 1.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CACHE = Path(__file__).parents[3] / ".cache" / "bench"
ENVIRONMENTS = ("peers", "simhash", "tables", "extractors", "text-dedup", "datatrove")
GUIDES = ("amd64", "arm64", "s390x")
MANPAGES = (("bookworm", "4.18.1"), ("trixie", "4.27.0"))
"""Debian's releases, each with its version of `manpages-de`."""
RUST = ("trixie", "1.85.1")
"""Debian's release, with its version of `rust-doc`."""
JAVADOC = (
    ("com.google.code.gson:gson", "2.8.9", "2.10.1"),
    ("org.apache.commons:commons-lang3", "3.12.0", "3.14.0"),
    ("com.google.guava:guava", "31.1-jre", "32.1.3-jre"),
    ("org.apache.kafka:kafka-clients", "4.0.0", "4.1.0"),
)
"""Libraries, each with two releases whose documentation has different templates or none the less the same."""


def python(environment: str) -> Path | None:
    """The interpreter of a peers' environment; None where `make bench` has not made it."""
    path = CACHE / environment / "bin" / "python"
    return path if (CACHE / environment / "installed").exists() else None


def guides() -> list[Path]:
    """The packages of Debian's guides, one an architecture; empty where they are not all there."""
    return _packages(*(f"installation-guide-{each}_" for each in GUIDES))


def manpages() -> list[Path]:
    """The packages of German manual pages, one a release; empty where they are not all there."""
    return _packages(*(f"manpages-de_{version}" for _, version in MANPAGES))


def rust_documentation() -> Path | None:
    """The package of Rust's documentation; None where it is not there."""
    return next(iter(_packages(f"rust-doc_{RUST[1]}")), None)


def handbook() -> Path | None:
    """The package of the Debian handbook; None where it is not there."""
    return next(iter(_packages("debian-handbook_")), None)


def _packages(*beginnings: str) -> list[Path]:
    found = [sorted(CACHE.glob(f"{each}*.deb"))[-1:] for each in beginnings]
    return [each[0] for each in found] if all(found) else []


def javadoc() -> list[tuple[Path, Path]]:
    """The jars of both releases of each library of JAVADOC that is there."""
    pairs = [(_javadoc_jar(library, old), _javadoc_jar(library, new)) for library, old, new in JAVADOC]
    return [(old, new) for old, new in pairs if old.exists() and new.exists()]


def _javadoc_jar(library: str, version: str) -> Path:
    return CACHE / f"{library.partition(':')[2]}-{version}-javadoc.jar"


def call(environment: str, script: str, *arguments: str, content: Any) -> Any:
    """What a script beside this file answers to `content`, JSON both; None without its environment."""
    interpreter = python(environment)
    if interpreter is None:
        return None
    path = str(Path(__file__).with_name(script))
    # -P: what lies beside the script is no module of the peers'.
    answer = subprocess.run(
        [str(interpreter), "-P", path, *arguments],
        input=json.dumps(content).encode(),
        stdout=subprocess.PIPE,
        check=False,
    )
    if answer.returncode:
        say(f"{script} {' '.join(arguments)}: failed, left out")
        return None
    return json.loads(answer.stdout or b"null")


class PeerProcess:
    """A script of a peers' environment at work: it answers each line with one, JSON both ways."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def next(self, request: Any = None) -> Any:
        """Its next answer, to `request` where it waits for one; None when it has ended."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        if request is not None:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
        return json.loads(self._process.stdout.readline() or b"null")


@contextmanager
def ask(environment: str, script: Path, *arguments: str) -> Iterator[PeerProcess | None]:
    """A script at work; None without its environment."""
    interpreter = python(environment)
    if interpreter is None:
        yield None
        return
    command = [str(interpreter), "-P", str(script), *arguments]
    # Threads of OpenMP would otherwise spin between two requests, while others are measured.
    quiet = os.environ | {"OMP_WAIT_POLICY": "PASSIVE"}
    with subprocess.Popen(command, env=quiet, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            yield PeerProcess(process)
        finally:
            process.kill()


def make() -> None:
    """Make what is missing."""
    CACHE.mkdir(parents=True, exist_ok=True)
    for environment in ENVIRONMENTS:
        lock = Path(__file__).with_name(f"requirements-{environment}.lock")
        done = CACHE / environment / "installed"
        if done.exists() and done.stat().st_mtime >= lock.stat().st_mtime:
            continue
        if environment == "simhash" and sys.version_info >= (3, 13):
            say("NumPy 1 has no builds for this Python: the simhash package will not be measured")
            continue
        say(f"installing what {lock.name} names")
        venv.create(CACHE / environment, with_pip=True, clear=True)
        pip = [str(CACHE / environment / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "-q"]
        # Locks are complete; pip before 24 fails on extras (`lxml[html_clean]`) beside hashes.
        install = [*pip, "install", "--no-deps", "--require-hashes", "-r", str(lock)]
        if subprocess.run(install, check=False).returncode:
            say(f"{lock.name}: not everything can be had here: its peers will not be measured")
            continue
        done.touch()
    packages = [] if guides() else [f"installation-guide-{each}" for each in GUIDES]
    _fetch_packages(packages + ([] if handbook() else ["debian-handbook"]))
    if not manpages():
        _fetch_of_releases("manpages-de", tuple(release for release, _ in MANPAGES), "German")
    if not rust_documentation():
        _fetch_of_releases("rust-doc", RUST[:1], "template-heavy text")
    _fetch_javadoc()


def _fetch_packages(packages: list[str]) -> None:
    if not packages:
        return
    if shutil.which("apt-get") is None:
        say(f"no apt-get here: {' '.join(packages)} will not be measured")
        return
    say(f"fetching {' '.join(packages)}")
    if subprocess.run(["apt-get", "-qq", "download", *packages], cwd=CACHE, check=False).returncode:
        say("apt-get download failed (apt-get update may help): Debian's guides will not be measured")


def _fetch_of_releases(package: str, releases: tuple[str, ...], subject: str) -> None:
    """From where this machine has Debian's packages, whatever release it runs itself."""
    say(f"fetching {package} of {' and '.join(releases)}")
    if shutil.which("apt-get") is None:
        say(f"no apt-get here: {subject} will not be measured")
        return
    command = ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Origin: Debian", "Label: Debian"]
    sites = subprocess.run(command, capture_output=True, text=True, check=False).stdout.split()[:1]
    keys = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
    signed = f"[signed-by={keys}] " if keys.exists() else ""
    with tempfile.TemporaryDirectory(prefix="neardup-bench-") as directory:
        own = Path(directory)
        for part in ("lists/partial", "cache/archives/partial"):
            Path(own, part).mkdir(parents=True)
        lines = [f"deb {signed}{site} {release} main\n" for site in sites for release in releases]
        Path(own, "sources").write_text("".join(lines))
        options = {
            "Dir::Etc::SourceList": own / "sources",
            "Dir::Etc::SourceParts": "/dev/null",
            "Dir::State::Lists": own / "lists",
            "Dir::Cache": own / "cache",
            "Acquire::Languages": "none",
            "APT::Sandbox::User": "root",
        }
        Path(own, "conf").write_text("".join(f'{name} "{value}";\n' for name, value in options.items()))
        environment = os.environ | {"APT_CONFIG": str(own / "conf")}
        wanted = [f"{package}/{release}" for release in releases]
        for command in (["update"], ["download", *wanted]):
            if subprocess.run(
                ["apt-get", "-qq", *command], cwd=CACHE, env=environment, check=False
            ).returncode:
                say(f"{package} cannot be had here: {subject} will not be measured")
                return


def _fetch_javadoc() -> None:
    for library, *versions in JAVADOC:
        for version in versions:
            if _javadoc_jar(library, version).exists():
                continue
            if shutil.which("mvn") is None:
                say("no mvn here: javadoc will not be measured")
                return
            say(f"fetching the documentation of {library} {version}")
            command = ["mvn", "-q", "-B", "dependency:copy", f"-Dartifact={library}:{version}:jar:javadoc"]
            if subprocess.run([*command, f"-DoutputDirectory={CACHE}"], check=False).returncode:
                say(f"{library} {version}: its documentation cannot be had here and will not be measured")


def say(text: str) -> None:
    sys.stderr.write(f"{text}\n")


if __name__ == "__main__":
    make()
