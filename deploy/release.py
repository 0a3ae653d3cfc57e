"""Check and build the release that a tag names: `python -m deploy.release v1.2.3` (docs/releases.md)."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import tomllib
import venv
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click

from deploy.supply_chain import SupplyChainError

ROOT: Final = Path(__file__).parents[1]
TARGET: Final = Path("build/release")
LOCK: Final = Path("deploy/requirements.lock")
_TEXT: Final = (
    "The city council decided on Tuesday to build a tram line from the harbour to the university. Work "
    "begins in spring and takes three years. Shopkeepers fear for their customers; the mayor promises "
    "cleaner air, and quiet streets. "
)
TRIED: Final = {
    "https://a.example/1": (_TEXT, "unique"),
    "https://b.example/1": (_TEXT.upper(), "duplicate"),
    "https://a.example/2": (
        "Tomatoes want warm soil and a wall that keeps the wind away, says the gardener of the old abbey, "
        "who has grown forty kinds of them in the hills since his apprenticeship.",
        "unique",
    ),
}
"""What an installed wheel is tried on: URL -> text and verdict."""


class ReleaseError(Exception):
    """Why this is no release."""


def refuse(tag: str, version: str, changes: str) -> None:
    """Raise ReleaseError unless the tag is that of `version` and the list of changes has its heading."""
    if not re.fullmatch(r"v\d+\.\d+\.\d+", tag):
        raise ReleaseError(f"{tag} is no tag of a release, such as v1.2.3")
    if tag != f"v{version}":
        raise ReleaseError(f"{tag} is not the version in pyproject.toml, {version}")
    if not re.search(rf"^## {re.escape(version)} - \d{{4}}-\d\d-\d\d$", changes, re.MULTILINE):
        raise ReleaseError(f"CHANGELOG.md has no heading `## {version} - DATE`")


def refuse_checkout(tag: str, root: Path) -> None:
    """Raise ReleaseError unless the work tree at `root` is what the tag names, without a change."""
    if not _git(root, "tag", "--list", tag):
        raise ReleaseError(f"there is no tag {tag}")
    if _git(root, "rev-list", "-n", "1", tag) != _git(root, "rev-parse", "HEAD"):
        raise ReleaseError(f"{tag} is not the commit that is checked out")
    if changed := _git(root, "status", "--porcelain"):
        raise ReleaseError(f"the work tree has changes: {changed.splitlines()[0].strip()}")


def build(root: Path, target: Path) -> list[Path]:
    """Build the sdist of `root`, and the wheel from it, as `python -m build` does. Gives both."""
    seconds = _git(root, "log", "-1", "--format=%ct")
    reproducible = {**os.environ, "SOURCE_DATE_EPOCH": seconds}
    target.mkdir(parents=True, exist_ok=True)
    hatch = [sys.executable, "-m", "hatchling", "build", "--directory", str(target)]
    _run([*hatch, "--target", "sdist"], root, reproducible)
    (sdist,) = target.glob("*.tar.gz")
    with tempfile.TemporaryDirectory() as unpacked:
        _run(["tar", "-xzf", str(sdist), "-C", unpacked, "--strip-components=1"], root)
        _run([*hatch, "--target", "wheel"], Path(unpacked), reproducible)
    (wheel,) = target.glob("*.whl")
    return [sdist, wheel]


def try_wheel(wheel: Path, lock: Path) -> None:
    """Install the wheel with the locked packages in an empty environment, and scan pages from an empty
    directory. Raises ReleaseError if that fails or gives other verdicts."""
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        venv.create(place / "venv", with_pip=True)
        own = {"PATH": os.environ["PATH"], "HOME": name}
        pip = [
            str(place / "venv/bin/python"),
            "-m",
            "pip",
            "--disable-pip-version-check",
            "install",
            "--quiet",
        ]
        _run([*pip, "--require-hashes", "-r", str(lock)], place)
        _run([*pip, "--no-deps", "--no-index", str(wheel)], place, own)
        pages = ({"url": url, "text": text} for url, (text, _) in TRIED.items())
        (place / "pages.jsonl").write_text("".join(json.dumps(page) + "\n" for page in pages), "utf-8")
        _run([str(place / "venv/bin/neardup"), "scan", "pages.jsonl", "-o", "verdicts.jsonl"], place, own)
        lines = map(json.loads, (place / "verdicts.jsonl").read_text("utf-8").splitlines())
        found = {line["url"]: line["verdict"] for line in lines}
    if found != {url: verdict for url, (_, verdict) in TRIED.items()}:
        raise ReleaseError(f"the installed wheel gives other verdicts: {found}")


def write_hashes(files: Sequence[Path], path: Path) -> None:
    """Write the files' SHA-256 as `sha256sum --check` reads them."""
    lines = (f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in sorted(files))
    path.write_text("".join(lines), "utf-8")


def _git(root: Path, *arguments: str) -> str:
    return _run(["git", *arguments], root).strip()


def _run(command: Sequence[str], directory: Path, environment: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        command, cwd=directory, env=environment, stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode:
        raise ReleaseError(f"failed with exit code {done.returncode}: {' '.join(command)}")
    return done.stdout


@click.command(help=__doc__)
@click.argument("tag")
def release(tag: str) -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    target = ROOT / TARGET
    try:
        refuse(tag, version, (ROOT / "CHANGELOG.md").read_text("utf-8"))
        refuse_checkout(tag, ROOT)
        if target.exists() and any(target.iterdir()):
            raise ReleaseError(f"{target} is not empty: remove what an earlier release left")
        files = build(ROOT, target)
        click.echo(f"trying {files[1].name} in an empty environment")
        try_wheel(files[1], ROOT / LOCK)
        bill = target / "sbom.cdx.json"
        _run([sys.executable, "-m", "deploy.supply_chain", "sbom", "--output", str(bill)], ROOT)
        write_hashes([*files, bill], target / "SHA256SUMS")
    except (ReleaseError, SupplyChainError) as error:
        raise click.ClickException(str(error)) from None
    click.echo(f"{tag} is in {target}; nothing has been uploaded")


if __name__ == "__main__":
    release()
