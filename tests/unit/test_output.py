"""Commands write complete files or none, and report errors: full or failing disks, closed pipes,
interrupts."""

from __future__ import annotations

import errno
import json
import os
import random
import re
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stream.errors import DiskError, OutputError
from stream.fingerprint.lanes import as_words
from stream.kafka.member import member_id
from stream.local.index import Index
from stream.local.scan_log import VerdictLog
from stream.local.scan_output import _Lines
from stream.messages.verdict import VerdictRecord
from stream.offline.compressed_blocks import encode, sort_words
from stream.offline.compressed_file import write_compressed
from stream.output import Output, writing
from stream.sinks.base import ExportError, Sink
from stream.sinks.open import open_sink
from stream.stores.directory import DirectoryStore
from tests.fingerprint_sets import random_set
from tests.kafka.dashboard_helpers import VerdictMaker
from tests.waiting import HANG_SECONDS

NEARDUP = (sys.executable, "-m", "stream.cli")
FULL = Path("/dev/full")
TMPFS_BYTES = 64 << 10


def run(*arguments: str | Path, **given: Any) -> subprocess.CompletedProcess[str]:
    given = {"stdout": subprocess.PIPE} | given
    return subprocess.run(
        [*NEARDUP, *map(str, arguments)], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        timeout=HANG_SECONDS, check=False, **given,
    )  # fmt: skip


def page(number: int) -> str:
    words = " ".join(f"word{number * 31 + i}" for i in range(60))
    return json.dumps({"url": f"http://a.example/{number}", "text": words}) + "\n"


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """An input of each kind, whose result is larger than the small disk."""
    directory = tmp_path_factory.mktemp("inputs")
    rng = np.random.default_rng(1)
    named = {name: directory / name for name in ("pages", "near.npy", "far.npy", "index")}
    named["pages"].write_text("".join(map(page, range(300))))
    np.save(named["near.npy"], np.repeat(random_set(rng, 10, 64), 40))
    np.save(named["far.npy"], random_set(rng, 20_000, 64))
    write_compressed(named["index"], encode(sort_words(as_words(np.load(named["far.npy"]), 64)), 64), None)
    return named


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    directory = tmp_path / "small"
    directory.mkdir()
    options = f"size={TMPFS_BYTES}"
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", directory], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"no tmpfs can be mounted: {mounted.stderr.decode().strip()}")
    try:
        yield directory
    finally:
        subprocess.run(["umount", directory], check=True)


WRITERS = {
    "scan": ("scan", "--worker-processes", "1", "{pages}", "-o", "{out}"),
    "match": ("match", "{near.npy}", "-o", "{out}"),
    "compress": ("compress", "{far.npy}", "{out}"),
    "decompress": ("decompress", "{index}", "{out}"),
    "decompress .npy": ("decompress", "{index}", "{out}.npy"),
}
PRINTERS = {
    "scan": ("scan", "--worker-processes", "1", "{pages}", "-o", "-"),
    "match": ("match", "{near.npy}"),
    "fingerprint": ("fingerprint", "{pages}"),
    "decompress": ("decompress", "{index}", "-"),
    "explain": ("explain", "{pages}#1", "{pages}#2"),
    "plan": ("plan", "--pages", "1e6"),
    "schema": ("schema",),
    "--help": ("--help",),
}


def filled(command: tuple[str, ...], inputs: dict[str, Path], out: object = None) -> list[str]:
    named = {**inputs, "out": out}
    return [re.sub(r"\{(.+)\}", lambda found: str(named[found[1]]), part) for part in command]


def one_line(done: subprocess.CompletedProcess[str], said: str) -> None:
    assert done.stderr.splitlines()[-1] == f"neardup: {said}", done.stderr
    assert "Traceback" not in done.stderr
    assert done.returncode == 2


@pytest.mark.parametrize("name", WRITERS)
def test_a_full_disk_is_an_error_and_leaves_what_was_there(
    name: str, inputs: dict[str, Path], small_disk: Path
) -> None:
    arguments = filled(WRITERS[name], inputs, small_disk / "out")
    out = Path(arguments[-1])
    out.write_text("as before")
    one_line(run(*arguments), f"{out}: No space left on device")
    assert out.read_text() == "as before"
    assert list(small_disk.iterdir()) == [out]


@pytest.mark.parametrize("name", PRINTERS)
def test_a_full_stdout_is_an_error(name: str, inputs: dict[str, Path]) -> None:
    with FULL.open("w") as full:
        done = run(*filled(PRINTERS[name], inputs), stdout=full)
    one_line(done, "stdout: No space left on device")


@pytest.mark.parametrize("name", ["scan", "match", "schema"])
def test_a_pipe_that_nobody_reads_ends_a_command_quietly(name: str, inputs: dict[str, Path]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = run(*filled(PRINTERS[name], inputs), stdout=writer)
    finally:
        os.close(writer)
    assert done.returncode == 128 + signal.SIGPIPE
    assert not re.search("Traceback|neardup:|Exception|Error", done.stderr), done.stderr


def test_a_closed_stdout_is_an_error() -> None:
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" >&-', "sh", *NEARDUP, "schema"], capture_output=True, text=True, check=False
    )
    one_line(done, "stdout: Bad file descriptor")


def test_a_full_temporary_directory_is_one_line(inputs: dict[str, Path], small_disk: Path) -> None:
    (small_disk / "filler").write_bytes(bytes(TMPFS_BYTES - 8192))
    done = run(
        "scan", "--worker-processes", "1", inputs["pages"], env=os.environ | {"TMPDIR": str(small_disk)}
    )
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "No space left on device" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize("with_what", [signal.SIGTERM, signal.SIGINT])
def test_an_interrupted_command_leaves_nothing(with_what: signal.Signals, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.write_text("as before")
    told = [*NEARDUP, "match", "-", "-o", out]
    with subprocess.Popen(told, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as match:
        try:
            deadline = time.monotonic() + HANG_SECONDS
            while not list(tmp_path.glob(".neardup-*")):
                assert time.monotonic() < deadline
                assert match.poll() is None
                time.sleep(0.02)
            match.send_signal(with_what)
            # To a shell these are the same. Python chooses the second if SIGINT came during `exec` of a
            # string, as imports use it, although the exception was handled.
            assert match.wait(HANG_SECONDS) in (128 + with_what, -with_what)
            assert match.stderr is not None
            assert match.stderr.read().strip() == f"neardup: interrupted: {out} is unchanged"
        finally:
            match.kill()
    assert list(tmp_path.iterdir()) == [out]
    assert out.read_text() == "as before"


def test_an_interrupted_scan_says_how_far_it_came(tmp_path: Path) -> None:
    told = [*NEARDUP, "scan", "--worker-processes", "1", "-", "-o", "-"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(told, **pipes) as scan:  # type: ignore[call-overload]
        try:
            assert scan.stdin is not None
            assert scan.stdout is not None
            for number in range(256):  # some chunks
                scan.stdin.write(b'{"url": "http://a.example/%d", "text": "so"}\n' % number)
            scan.stdin.flush()
            assert b"insufficient" in scan.stdout.readline()
            scan.send_signal(signal.SIGINT)
            _, error = scan.communicate(timeout=HANG_SECONDS)
        finally:
            scan.kill()
    assert scan.returncode == 130
    said = error.decode().splitlines()[-1]
    assert re.fullmatch(
        r"neardup: interrupted: judged [1-9]\d* pages; the output on stdout is incomplete", said
    )


def test_reader_of_a_pipe_gets_each_batch_of_verdicts() -> None:
    reads, writes = os.pipe()
    os.set_blocking(reads, False)
    with open(reads, "rb", buffering=0) as reader, open(writes, "wb") as file:
        _Lines(Output(file)).append([b"{}", b"[]"], [], 2)
        assert reader.read(100) == b"{}\n[]\n"


# The file itself.


def test_a_failed_sync_is_an_error_and_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(_: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", lost)
    (tmp_path / "out").write_text("as before")
    with pytest.raises(OutputError, match="out: Input/output error"), writing(tmp_path / "out") as file:
        file.write(b"new")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["as before"]


def test_a_file_that_may_not_be_written_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its directory allows it to everybody who may write there."""
    (tmp_path / "out").write_text("as before")
    monkeypatch.setattr(os, "access", lambda path, _: path != tmp_path / "out")  # as it is unless we are root
    with pytest.raises(OutputError, match="out: Permission denied"), writing(tmp_path / "out") as file:
        file.write(b"new")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["as before"]


def test_an_error_of_another_file_is_not_taken_for_ours(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), writing(tmp_path / "out"):
        (tmp_path / "missing").read_bytes()
    assert list(tmp_path.iterdir()) == []


def test_permissions_and_links_stay(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    real.write_text("as before")
    real.chmod(0o640)
    link.symlink_to("real")
    with writing(link) as file:
        file.write(b"new")
    assert link.is_symlink()
    assert (real.read_text(), stat.S_IMODE(real.stat().st_mode)) == ("new", 0o640)
    before = os.umask(0o027)
    try:
        with writing(tmp_path / "made"):
            pass
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "made").stat().st_mode) == 0o640


def test_a_link_to_nothing_makes_what_it_names(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with writing(tmp_path / "link") as file:
        file.write(b"new")
    assert (tmp_path / "real").read_text() == "new"


def test_a_pipe_is_written_and_stays_one(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE) as reader:
        with writing(pipe) as file:
            file.write(b"new")
        assert reader.communicate(timeout=HANG_SECONDS)[0] == b"new"
    assert pipe.is_fifo()


@pytest.mark.parametrize(
    ("path", "complaint"),
    [("missing/out", "No such file or directory"), (".", "Is a directory"), ("f/out", "Not a directory"),
     ("x" * 300, "File name too long"), ("loop/out", ".*loop.*"), ("\0", ".*null.*")],
)  # fmt: skip
def test_a_path_that_cannot_be_written_is_named(path: str, complaint: str, tmp_path: Path) -> None:
    (tmp_path / "f").touch()
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(OutputError, match=f"^{tmp_path / path}: {complaint}$"), writing(tmp_path / path):
        pass


# Files of roles, and databases.


MADE = VerdictMaker()


def verdict(number: int) -> VerdictRecord:
    return MADE.one("unique", url=f"http://a.example/{random.Random(number).randbytes(40).hex()}")


def write_output(directory: Path) -> Path:
    with writing(directory / "out") as file:
        file.write(b"new")
    return directory / "out"


def put_into_a_store(directory: Path) -> Path:
    DirectoryStore(directory).put("chain/1", b"new")
    return directory / "chain" / "1"


def export_to_parquet(directory: Path) -> Path:
    with open_sink(str(directory / "verdicts.parquet")) as sink:
        sink.append([verdict(1)], "topic", {0: 1})
    (written,) = (directory / "verdicts.parquet").iterdir()
    return written


def log_verdicts(directory: Path) -> Path:
    with Index() as index, closing(VerdictLog(directory, index)) as log:
        log.begin("out", None)
        log.append("batch", [b"{}"])
        return log.path


@pytest.mark.parametrize("write", [write_output, put_into_a_store, export_to_parquet, log_verdicts])
def test_what_is_written_outlives_a_crash_of_the_machine(
    write: Callable[[Path], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole file is synced, and its directory once it has its name there."""
    files, names, sync = set[tuple[int, int]](), set[tuple[int, str]](), os.fsync

    def note(descriptor: int) -> None:
        status = os.fstat(descriptor)
        files.add((status.st_ino, status.st_size))
        if stat.S_ISDIR(status.st_mode):
            names.update((status.st_ino, name) for name in os.listdir(descriptor))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    written = write(tmp_path)
    assert (written.stat().st_ino, written.stat().st_size) in files
    assert (written.parent.stat().st_ino, written.name) in names


def test_a_role_on_a_full_disk_takes_no_empty_name(small_disk: Path) -> None:
    filler = small_disk / "filler"
    with pytest.raises(OSError, match="No space left"):
        filler.write_bytes(bytes(2 * TMPFS_BYTES))
    with pytest.raises(DiskError, match="No space left on device"):
        member_id(small_disk / "instance")
    filler.unlink()
    assert len(member_id(small_disk / "instance")) == 32


@pytest.mark.parametrize("target", ["verdicts.parquet", "verdicts.duckdb"])
def test_an_export_to_a_full_disk_is_an_error(target: str, small_disk: Path) -> None:
    rows = [verdict(number) for number in range(20_000)]
    with (
        pytest.raises(ExportError, match=f"target {small_disk / target}"),
        open_sink(str(small_disk / target)) as sink,
    ):
        sink.append(rows, "topic", {0: len(rows)})


def test_a_disk_that_is_full_at_a_commit_is_named_as_the_cause(small_disk: Path) -> None:
    """A commit that failed leaves nothing to roll back."""
    target = small_disk / "verdicts.duckdb"
    rows = [verdict(number) for number in range(100)]

    def fill(sink: Sink) -> None:
        for end in range(len(rows), 20_000, len(rows)):
            sink.append(rows, "topic", {0: end})

    with open_sink(str(target)) as sink, pytest.raises(ExportError, match="No space left on device"):
        fill(sink)
