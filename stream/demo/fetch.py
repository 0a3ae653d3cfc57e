"""Downloads documentation with package clients, and caches it as archives that contain only HTML pages."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import platformdirs

from stream.demo.releases import Release
from stream.errors import CrawlError
from stream.scratch import ScratchDirectory

Say = Callable[[str], None]
TIMEOUT: Final = 300
"""Time-out of one download, in seconds."""


def cache_directory() -> Path:
    """Return the directory for downloaded documentation."""
    return platformdirs.user_cache_path("neardup") / "demo"


def is_cached(releases: Sequence[Release], cache: Path) -> bool:
    """Return whether all releases are completely cached."""
    return all(_is_whole(_archive(release, cache)) for release in releases)


def fetch(releases: Sequence[Release], cache: Path, say: Say) -> list[Path]:
    """Return a zip archive of HTML pages for each release, downloading those not cached. Raises CrawlError.

    An archive is moved into the cache once it is complete, so runs may be interrupted or overlap.
    """
    cache.mkdir(parents=True, exist_ok=True)
    archives = []
    for release in releases:
        archive = _archive(release, cache)
        if not _is_whole(archive):
            say(f"fetching documentation of {release.project} {release.version}")
            with ScratchDirectory("fetch", cache) as scratch:
                package = _download(release, Path(scratch))
                part = Path(scratch) / "pages.zip"
                with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED) as pages:
                    for path, html in _html(package, release.root):
                        pages.writestr(path, html)
                if not _is_whole(part):
                    raise CrawlError(f"{release.package} {release.version}: no HTML below {release.root!r}")
                os.replace(part, archive)
        archives.append(archive)
    return archives


def _archive(release: Release, cache: Path) -> Path:
    return cache / f"{release.name}.zip"


def _is_whole(archive: Path) -> bool:
    try:
        with zipfile.ZipFile(archive) as pages:
            return bool(pages.namelist())
    except (OSError, zipfile.BadZipFile):
        return False


def _download(release: Release, into: Path) -> Path:
    download = into / "download"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "-q", "--no-deps"]
    match release.client:
        case "maven":
            command = ["mvn", "-q", "-B", "dependency:copy"]
            command += [f"-Dartifact={release.package}:{release.version}:jar:javadoc"]
            command += [f"-DoutputDirectory={download}"]
        case "wheel":
            # The wheel of a fixed interpreter and platform will do, since only its documentation is read.
            command = [*pip, "--only-binary=:all:", "--python-version=3.11", "--implementation=cp"]
            command += ["--abi=cp311", "--platform=manylinux2014_x86_64", "-d", str(download)]
            command += [f"{release.package}=={release.version}"]
        case "sdist":
            command = [*pip, f"--no-binary={release.package}", "-d", str(download)]
            command += [f"{release.package}=={release.version}"]
    _run(command, into)
    packages = sorted(download.iterdir()) if download.is_dir() else []
    if len(packages) != 1:
        raise CrawlError(f"{' '.join(command)}: downloaded {[package.name for package in packages]}")
    return packages[0]


def _run(command: list[str], directory: Path) -> None:
    if shutil.which(command[0]) is None:
        raise CrawlError(f"{command[0]} is not installed")
    try:
        done = subprocess.run(
            command,
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=TIMEOUT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise CrawlError(f"{' '.join(command)}: not finished after {TIMEOUT} s") from None
    if done.returncode != 0:
        output = " / ".join(line for line in done.stdout.splitlines() if line.strip())[:1000]
        raise CrawlError(f"{' '.join(command)}: {output}")


def _html(package: Path, root: str) -> Iterator[tuple[str, bytes]]:
    """Yield (path below root, content) of the HTML files in a zip (jar, wheel) or tar archive."""
    if zipfile.is_zipfile(package):
        with zipfile.ZipFile(package) as files:
            for name in files.namelist():
                if name.startswith(root) and name.endswith(".html"):
                    yield name.removeprefix(root), files.read(name)
        return
    with tarfile.open(package) as tar:
        for member in tar:
            content = tar.extractfile(member) if member.isfile() else None
            if content is not None and member.name.startswith(root) and member.name.endswith(".html"):
                yield member.name.removeprefix(root), content.read()
