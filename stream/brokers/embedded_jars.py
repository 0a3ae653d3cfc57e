"""Fetches Apache Kafka's jars with Maven, once per user and version."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import platformdirs

from stream.errors import BrokerError
from stream.scratch import ScratchDirectory

FETCH_SECONDS = 900
"""Longest time for Maven to fetch about 43 MB."""
REPORT_SECONDS = 10
VARIABLE: Final = "NEARDUP_KAFKA_VERSION"
"""Environment variable with the version of Kafka to run instead of the one in pom.xml: `make compat`."""


def deployment() -> Path:
    """The directory of pom.xml, server.properties and log4j2.properties, in a wheel or a checkout."""
    package = Path(__file__).parent
    for directory in (package / "kafka", package.parents[1] / "deploy" / "kafka"):
        if (directory / "pom.xml").is_file():
            return directory
    raise BrokerError("this installation lacks the embedded broker's files (deploy/kafka)")


def version() -> str:
    """The version of Kafka that NEARDUP_KAFKA_VERSION names, or else pom.xml. Raises BrokerError."""
    if chosen := os.environ.get(VARIABLE):
        if not re.fullmatch(r"\d+\.\d+\.\d+", chosen):
            raise BrokerError(f"{VARIABLE}: {chosen!r} is no version of Kafka, such as 4.1.0")
        return chosen
    match = re.search(r"<kafka\.version>([^<]+)<", (deployment() / "pom.xml").read_text())
    if match is None:
        raise BrokerError("deploy/kafka/pom.xml names no kafka.version")
    return match[1]


def ready(pom: Path | None = None) -> Path:
    """The directory of Kafka's jars, which exists once they are fetched. Its name changes with the pom."""
    stamp = hashlib.sha256((pom or deployment() / "pom.xml").read_bytes()).hexdigest()[:12]
    return Path(platformdirs.user_cache_dir("neardup")) / f"kafka-{version()}-{stamp}"


def jars(progress: Callable[[str], None], pom: Path | None = None) -> Path:
    """The directory of Kafka's jars, which are fetched if missing. Concurrent callers wait for one fetch.

    `pom` names other jars than a broker's, of the same version of Kafka. The directory exists only if it is
    complete. Raises BrokerError.
    """
    fetched = ready(pom)
    if fetched.is_dir():
        return fetched
    cache = fetched.parent
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with _lock(cache / "kafka.lock"):
            if not fetched.is_dir():
                with ScratchDirectory("fetch", cache) as work:
                    shutil.copy(pom or deployment() / "pom.xml", Path(work) / "pom.xml")
                    _fetch(Path(work), progress)
                    os.rename(Path(work) / "jars", fetched)
    except OSError as error:
        raise BrokerError(f"cannot keep Kafka's jars in {cache}: {error}") from error
    return fetched


def _fetch(work: Path, progress: Callable[[str], None]) -> None:
    """Copy the dependencies of `work`/pom.xml to `work`/jars."""
    progress(f"fetching Apache Kafka {version()} with Maven (43 MB, once)")
    started, log = time.monotonic(), work / "mvn.log"
    with log.open("wb") as output:
        maven = subprocess.Popen(
            # -C refuses jars with wrong checksums.
            [
                *("mvn", "-q", "-B", "-C", "dependency:copy-dependencies"),
                *("-DincludeScope=runtime", f"-DoutputDirectory={work / 'jars'}"),
                f"-Dkafka.version={version()}",
            ],
            cwd=work,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            while maven.poll() is None:
                waited = time.monotonic() - started
                if waited > FETCH_SECONDS:
                    raise BrokerError(f"Maven did not fetch Apache Kafka within {FETCH_SECONDS} s")
                try:
                    maven.wait(REPORT_SECONDS)
                except subprocess.TimeoutExpired:
                    progress(f"fetching Apache Kafka: {time.monotonic() - started:.0f} s")
        finally:
            maven.kill()
            maven.wait()
    if maven.returncode:
        lines = log.read_text(errors="replace").strip().splitlines()[:5]
        raise BrokerError("Maven could not fetch Apache Kafka: " + " | ".join(lines))


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    with path.open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
