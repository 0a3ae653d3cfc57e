"""Temporary directories: removed when they end, or by the next process if theirs was killed."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stream.local.index import Index
from stream.scratch import SUFFIX, UNLOCKED, YOUNG_SECONDS, ScratchDirectory

SCRIPT = (
    "import sys; from pathlib import Path; from stream.scratch import ScratchDirectory;"
    "made = ScratchDirectory('test', Path(sys.argv[1])); Path(made.name, 'file').touch();"
    "print(made.name, flush=True); sys.stdin.read()"
)


def old(path: Path) -> Path:
    long_ago = time.time() - 2 * YOUNG_SECONDS
    os.utime(path, (long_ago, long_ago))
    return path


def test_a_directory_of_a_killed_process_is_removed_by_the_next(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SCRIPT, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        left = Path(other.stdout.readline().strip())
        with ScratchDirectory("other", tmp_path):
            assert (left / "file").exists(), "it is in use"
        other.kill()
    with ScratchDirectory("other", tmp_path) as mine:
        assert [each.name for each in tmp_path.iterdir()] == [Path(mine).name]
    assert list(tmp_path.iterdir()) == []


def test_what_is_new_or_not_ours_stays(tmp_path: Path) -> None:
    """A new one without its last name may be of a process that has not locked it yet."""
    (tmp_path / f"neardup-new{UNLOCKED}").mkdir()
    old_one = tmp_path / f"neardup-killed{UNLOCKED}"
    old_one.mkdir()
    old(old_one)
    (tmp_path / "kept").mkdir()
    (tmp_path / f"neardup-link{SUFFIX}").symlink_to(tmp_path / "kept")
    names = {old(tmp_path / "neardup-other").name for _ in [(tmp_path / "neardup-other").mkdir()]}
    names |= {f"neardup-new{UNLOCKED}", "kept", f"neardup-link{SUFFIX}"}
    old(tmp_path / "kept")
    with ScratchDirectory("mine", tmp_path):
        pass
    assert {each.name for each in tmp_path.iterdir()} == names


def test_a_directory_that_is_dropped_is_removed(tmp_path: Path) -> None:
    gc.collect()  # what other tests have dropped
    before = len(os.listdir("/proc/self/fd"))
    made = ScratchDirectory("dropped", tmp_path)
    del made
    gc.collect()
    assert list(tmp_path.iterdir()) == []
    assert len(os.listdir("/proc/self/fd")) == before


def test_an_index_without_a_directory_leaves_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with Index() as index:
        index.add("one", "a text")
        assert len(list(tmp_path.glob(f"neardup-index-*{SUFFIX}"))) == 1
    assert list(tmp_path.iterdir()) == []
