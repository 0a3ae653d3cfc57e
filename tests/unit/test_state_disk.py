"""A disk that is full or fails: an error names the directory, flushed data are kept, and work can be resumed.

A full disk is simulated by a limit on file sizes, which needs no privilege and cuts a write short.
"""

from __future__ import annotations

import errno
import json
import os
import resource
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from stream.cli.role import run_role
from stream.errors import EXIT_DISK, DamagedStateError, DiskError
from stream.fingerprint.scheme import Scheme
from stream.judge.rehearse import rehearse
from stream.local.index import Index
from stream.private import private_directory
from stream.settings import Settings
from stream.tables.runs import building
from stream.tables.store.failures import translate_cause
from stream.tables.store.rocks import Store
from tests.genesis import genesis_of

SCHEME = Scheme()
GENESIS = genesis_of(SCHEME)


@contextmanager
def full(largest: int = 2048) -> Iterator[None]:
    """No file of this process grows beyond that: what a full disk does, without the privilege to make one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def put(store: Store, first: int, count: int = 200) -> None:
    batch = store.batch()
    for number in range(first, first + count):
        for family in ("log", "urls"):
            batch.put(family, number.to_bytes(8, "big"), bytes(range(100)))
    store.write(batch)


def kept(path: Path) -> list[int]:
    with Store(path, 1 << 20) as store:
        found = [[int.from_bytes(key, "big") for key, _ in store.scan(each)] for each in ("log", "urls")]
    assert found[0] == found[1]
    return found[0]


def test_a_flush_that_failed_says_so_and_keeps_what_was_flushed(tmp_path: Path) -> None:
    store = Store(tmp_path, 1 << 20)
    put(store, 0)
    store.flush()
    put(store, 200)
    with full():
        with pytest.raises(DiskError, match=str(tmp_path)) as raised:
            store.flush()
        assert raised.value.exit_code == EXIT_DISK
        with pytest.raises(DiskError):
            store.close()
    assert kept(tmp_path) in ([*range(200)], [*range(400)])  # room came back before it was closed, or not


def test_a_directory_that_is_gone_is_named_by_whatever_meets_it(tmp_path: Path) -> None:
    store = Store(tmp_path / "state", 1 << 20)
    put(store, 0)
    shutil.rmtree(tmp_path / "state")
    for attempt in (store.flush, store.close):
        with pytest.raises(DiskError, match=f"directory {tmp_path}/state: it is gone"):
            attempt()
    store = Store(tmp_path / "idle", 1 << 20)
    shutil.rmtree(tmp_path / "idle")
    with pytest.raises(DiskError, match=f"directory {tmp_path}/idle: it is gone"):
        store.close()


def test_closing_raises_the_first_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = Index(tmp_path / "mine", generation=20, memory=0)
    list(index.add_all(texts(10)))

    def fails() -> None:
        raise DiskError("the first")

    monkeypatch.setattr(index._state.store, "flush", fails)
    shutil.rmtree(tmp_path / "mine")
    with pytest.raises(DiskError, match=r"^the first$"):
        index.close()


def texts(count: int) -> list[tuple[str, str]]:
    return [(f"n{i}", " ".join(f"w{i // 2}x{j}" for j in range(60))) for i in range(count)]


@pytest.mark.parametrize("in_a_child", [False, True])
def test_an_index_goes_on_when_there_is_room_again(
    tmp_path: Path, in_a_child: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(building, "CHILD_ANCHORS", 1 if in_a_child else 1 << 30)
    with Index(tmp_path / "undisturbed", generation=20, memory=0) as index:
        right = [answer.verdict for answer in index.add_all(texts(200))]
    with Index(tmp_path / "mine", generation=20, memory=0) as index:
        found = [answer.verdict for answer in index.add_all(texts(50))]
    index = Index(tmp_path / "mine", generation=20, memory=0)

    def add_more() -> None:
        for item in texts(200)[50:]:
            index.add(*item)
            index._state.tables.maintain(wait=True)

    with full(), pytest.raises(DiskError, match=str(tmp_path / "mine")):
        add_more()
    with full(), pytest.raises(DiskError):
        index.close()
    with Index(tmp_path / "mine", generation=20, memory=0) as index:
        found = found[: len(index)] + [answer.verdict for answer in index.add_all(texts(200)[len(index) :])]
        assert len(index) == 200
    assert found[:50] + found[-100:] == right[:50] + right[-100:]


def test_a_rehearsal_without_room_names_its_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with full(), pytest.raises(DiskError, match=f"directory {tmp_path}/neardup-rehearsal-"):
        rehearse(GENESIS)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/state/judge.instance"),
        OSError(errno.EIO, os.strerror(errno.EIO), "/state/judge.instance"),
        DiskError("directory /state/judge: No space left on device"),
    ],
)
def test_a_role_ends_with_one_line_and_a_code_that_asks_for_another_start(
    error: Exception, capsys: pytest.CaptureFixture[str]
) -> None:
    async def work() -> None:
        raise error

    with pytest.raises(SystemExit) as ended:
        run_role("judge", Settings(log_format="json"), work())
    assert ended.value.code == EXIT_DISK
    (line,) = capsys.readouterr().err.splitlines()
    assert "/state/judge" in json.loads(line)["message"]


def test_what_ends_faust_is_told_by_what_is_behind_it(tmp_path: Path) -> None:
    def wrapped(said: str) -> BaseException:
        try:
            try:
                raise Exception(said)
            except Exception as error:
                raise RuntimeError("the Faust app ended") from error
        except RuntimeError as error:
            return error

    full_disk = wrapped("IO error: No space left on device: While appending to file: /x/000012.sst")
    assert isinstance(translate_cause(tmp_path, full_disk), DiskError)
    corrupt = wrapped(
        "Corruption: block checksum mismatch: stored = 1, computed = 2 in /x/000012.sst offset 0"
    )
    assert isinstance(translate_cause(tmp_path, corrupt), DamagedStateError)
    assert translate_cause(tmp_path, RuntimeError("something else")) is None


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace injects the errors of a disk")
@pytest.mark.parametrize("name", ["EIO", "ENOSPC"])
def test_an_error_of_the_disk_names_the_directory(tmp_path: Path, name: str) -> None:
    script = (
        "import sys; sys.path.insert(0, sys.argv[2])\n"
        "from pathlib import Path; from stream.tables.store.rocks import Store\n"
        "from stream.errors import DiskError\n"
        "try: Store(Path(sys.argv[1]), 1 << 20).flush()\n"
        "except DiskError as error: print(error)\n"
    )
    root = str(Path(__file__).parents[2])
    Store(tmp_path, 1 << 20).close()
    done = subprocess.run(
        [
            "strace", "-f", "-qq", "-o", os.devnull, "-e", "trace=fdatasync",
            "-e", f"inject=fdatasync:error={name}", sys.executable, "-c", script, str(tmp_path), root,
        ],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if "ptrace" in done.stderr.lower():
        pytest.skip("strace may not trace here")
    assert f"directory {tmp_path}: " in done.stdout, done.stderr
    assert os.strerror(getattr(errno, name)) in done.stdout


def modes(path: Path) -> set[str]:
    return {
        stat.filemode(each.lstat().st_mode)[4:] for each in [path, *path.rglob("*")] if not each.is_symlink()
    }


@pytest.mark.parametrize("there", [False, True])
def test_nobody_else_may_read_a_state(tmp_path: Path, there: bool) -> None:
    path = tmp_path / "above" / "mine"
    if there:
        Index(path, generation=20).close()
        for each in [path, *path.rglob("*")]:
            each.chmod(0o755 if each.is_dir() else 0o644)
    with Index(path, generation=20, memory=0) as index:
        list(index.add_all(texts(100)))
        index._state.tables.maintain(wait=True)
        index.flush()
        assert modes(path) == {"------"}
    assert modes(path) == {"------"}
    assert modes(tmp_path / "above") == {"------"}


def test_links_in_a_private_directory_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("readable")
    (tmp_path / "elsewhere").chmod(0o644)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "link").symlink_to(tmp_path / "elsewhere")
    private_directory(tmp_path / "mine")
    assert stat.S_IMODE((tmp_path / "elsewhere").stat().st_mode) == 0o644
    assert stat.S_IMODE((tmp_path / "mine").stat().st_mode) == 0o700
