"""What a release is refused for, and what a wheel contains."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from deploy.release import ROOT, TRIED, ReleaseError, build, refuse, refuse_checkout, write_hashes
from stream import Index

CHANGES = "# Changes\n\n## Unreleased\n\n## 1.2.3 - 2027-01-31\n\n- A thing.\n"
PACKED = {
    "stream/py.typed",
    "stream/text/characters.txt",
    "stream/text/tracking_parameters.txt",
    *(f"stream/schemas/{path.name}" for path in (ROOT / "schemas").iterdir() if path.name != "README.md"),
    "stream/brokers/kafka/pom.xml",
    "stream/brokers/kafka/server.properties",
    "stream/brokers/kafka/log4j2.properties",
}


def git(root: Path, *arguments: str) -> None:
    own = ("-c", "user.name=Tests", "-c", "user.email=tests@example.org", "-c", "tag.gpgSign=false")
    subprocess.run(["git", *own, *arguments], cwd=root, check=True, capture_output=True)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    root = tmp_path / "checkout"
    root.mkdir()
    git(root, "init", "--quiet")
    (root / "file").write_text("1")
    git(root, "add", "file")
    git(root, "commit", "--quiet", "--no-gpg-sign", "-m", "one")
    git(root, "tag", "v1.2.3")
    return root


def test_a_release_is_its_tag_version_and_entry(checkout: Path) -> None:
    refuse("v1.2.3", "1.2.3", CHANGES)
    refuse_checkout("v1.2.3", checkout)


@pytest.mark.parametrize(
    ("tag", "version", "changes", "why"),
    [
        ("1.2.3", "1.2.3", CHANGES, "no tag of a release"),
        ("v1.2.3rc1", "1.2.3rc1", CHANGES, "no tag of a release"),
        ("v1.2.4", "1.2.3", CHANGES, "not the version"),
        ("v1.2.4", "1.2.4", CHANGES, "no heading"),
        ("v1.2.3", "1.2.3", CHANGES.replace(" - 2027-01-31", ""), "no heading"),
        ("v1.2.3", "1.2.3", CHANGES.replace("1.2.3", "1x2.3"), "no heading"),
    ],
)
def test_another_version_or_an_unnamed_one_is_refused(tag: str, version: str, changes: str, why: str) -> None:
    with pytest.raises(ReleaseError, match=why):
        refuse(tag, version, changes)


def test_a_missing_tag_changed_files_and_another_commit_are_refused(checkout: Path) -> None:
    with pytest.raises(ReleaseError, match="there is no tag"):
        refuse_checkout("v1.2.4", checkout)
    (checkout / "file").write_text("2")
    with pytest.raises(ReleaseError, match="changes: M file"):
        refuse_checkout("v1.2.3", checkout)
    git(checkout, "commit", "--quiet", "--no-gpg-sign", "--all", "-m", "two")
    with pytest.raises(ReleaseError, match="not the commit"):
        refuse_checkout("v1.2.3", checkout)


def test_a_tag_that_is_not_the_version_ends_the_command() -> None:
    command = [sys.executable, "-m", "deploy.release", "v999.0.0"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "v999.0.0 is not the version" in done.stderr


def test_the_pages_that_a_wheel_is_tried_on_have_their_verdicts() -> None:
    with Index() as index:
        found = {url: index.add(url, text).verdict for url, (text, _) in TRIED.items()}
    assert found == {url: verdict for url, (_, verdict) in TRIED.items()}


def test_hashes_are_those_that_sha256sum_checks(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a")
    write_hashes([tmp_path / "a"], tmp_path / "SHA256SUMS")
    subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=tmp_path, check=True)


def test_wheel_and_sdist_have_the_package_and_its_data(tmp_path: Path) -> None:
    sdist, wheel = build(ROOT, tmp_path)
    with zipfile.ZipFile(wheel) as archive:
        packed = set(archive.namelist())
    listed = subprocess.run(
        ["git", "ls-files", "stream"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    sources = {name for name in listed.stdout.splitlines() if (ROOT / name).exists()}
    assert {name.replace("stream/neardup/", "neardup/") for name in sources} | PACKED <= packed
    folders = {name.partition("/")[0].partition("-")[0] for name in packed}
    assert folders == {"stream", "neardup", "neardup_stream"}
    assert [name for name in packed if "__pycache__" in name or name.endswith(".code")] == []
    with tarfile.open(sdist) as archive:
        kept = {name.partition("/")[2] for name in archive.getnames()}
    assert sources | {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md"} <= kept
