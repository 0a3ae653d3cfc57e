"""After a scan with an index is killed, the next one, of whatever pages, completes its output: every verdict
is there once, and every page that a verdict names. Otherwise it is refused, and says how to go on."""

from __future__ import annotations

import json
import random
import shutil
import time
from collections import Counter
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from stream.errors import DamagedStateError, NeardupError, SettingsError, StateError
from stream.local.index import VERDICT_LOG, Index, RowsId
from stream.rows.fingerprint import fingerprint_batch
from stream.sources.rows import RowsSource
from tests import kills
from tests.night import cases
from tests.unit.test_rows import directory, table
from tests.unit.test_scan_rows import lines, read, scan
from tests.verdict_projection import projection
from tests.waiting import HANG_SECONDS

COUNT = 1_200
OTHERS = 700
BATCH = 256
OTHER_BATCH = 300
CHECKPOINT = 600
OUTPUTS = ("verdicts.jsonl", "verdicts.parquet", "verdicts.duckdb")
FAILPOINTS = (
    "scan.logged", "scan.logged:4", "scan.applied:2", "flush", "flush:2", "scan.flushed", "scan.flushed:2",
    "scan.written", "scan.written:2", "scan.closed",
)  # fmt: skip
BY_DAY = set(zip(("scan.logged:4", "flush", "scan.written"), OUTPUTS, strict=True))
CONSTANTS = {
    "stream.local.scan.ROWS": BATCH,
    "stream.local.scan_output.CHECKPOINT": CHECKPOINT,
    "stream.local.scan_output.ROWS": 100,
}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `rows`, the `same` pages in other rows, and `other` ones, of which some are the same."""
    folder = tmp_path_factory.mktemp("corpus")
    made = fingerprint_batch(table(COUNT))
    directory(folder / "rows", made)
    directory(folder / "same", made.slice(0, COUNT // 2), made.slice(COUNT // 2))
    directory(folder / "other", fingerprint_batch(table(COUNT + OTHERS).slice(COUNT // 2 + 1, OTHERS)))
    return folder


@pytest.fixture(autouse=True)
def _other_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scans in this process cut their batches at other pages than those that are killed."""
    monkeypatch.setattr("stream.local.scan.ROWS", OTHER_BATCH)
    monkeypatch.setattr("stream.local.scan_output.CHECKPOINT", CHECKPOINT)


def killed(failpoint: str, *arguments: str | Path) -> bytes:
    """What a scan wrote to stdout until it was killed at a failpoint."""
    return kills.killed(failpoint, kills.command, CONSTANTS, "scan", *arguments)


def assert_whole(verdicts: Sequence[dict[str, Any]]) -> None:
    """Every id is given once, and no verdict names a page that has no verdict."""
    ids = Counter(each["id"] for each in verdicts)
    assert set(ids.values()) <= {1}
    assert {each["cluster"] for each in verdicts if each["cluster"]} <= ids.keys()
    assert {each["duplicate_of"]["id"] for each in verdicts if each["duplicate_of"]} <= ids.keys()


def offsets(verdicts: Sequence[dict[str, Any]], rows: Path) -> list[int]:
    topic_id = RowsSource(str(rows)).digest
    return sorted(
        each["source"]["offset"]
        for each in verdicts
        if (each.get("source_topic_id") or each["source"]["topic_id"]) == topic_id
    )


def assert_scans_go_on(corpus: Path, folder: Path, output: str, whole: bytes) -> None:
    """After a scan of `rows` was killed in `folder`: scan these, the same pages in other rows, and others."""
    left = folder.with_name("left")
    folder.rename(left)

    def scan_from_there(source: str) -> list[dict[str, Any]]:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(left, folder)
        scan(corpus / source, "--index", folder / "index", "-o", folder / output)
        assert not (folder / "index" / VERDICT_LOG).exists()
        found = read(folder / output)
        assert_whole(found)
        return found

    assert projection(scan_from_there("rows")) == whole
    same = scan_from_there("same")
    assert offsets(same, corpus / "same") == list(range(COUNT))
    found = scan_from_there("other")
    judged = len(offsets(found, corpus / "rows"))
    assert judged == len(same) - COUNT
    assert offsets(found, corpus / "rows") == list(range(judged))
    assert offsets(found, corpus / "other") == list(range(OTHERS))
    with Index(folder / "index") as index:
        assert index.judged(RowsId("rows", RowsSource(str(corpus / "rows")).digest)) == judged
        assert len(index) == judged + OTHERS
    again = (corpus / "rows", "--index", folder / "index", "-o", folder / output)
    if not output.endswith(".jsonl"):
        scan(*again)
        found = read(folder / output)
        assert_whole(found)
        assert offsets(found, corpus / "rows") == list(range(COUNT))
    elif 0 < judged < COUNT:
        with pytest.raises(SettingsError, match=r"lack the first verdicts of .*; scan without -o"):
            scan(*again)


@pytest.fixture(scope="module")
def whole(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The verdicts on `rows` of a scan that nobody disturbs."""
    output = tmp_path_factory.mktemp("whole") / "verdicts.jsonl"
    scan(corpus / "rows", "-o", output)
    return projection(lines(output))


@pytest.mark.parametrize(("failpoint", "output"), cases(product(FAILPOINTS, OUTPUTS), by_day=BY_DAY))
def test_a_scan_killed_at_a_failpoint_gives_every_verdict_once(
    corpus: Path, whole: bytes, tmp_path: Path, failpoint: str, output: str
) -> None:
    folder = tmp_path / "killed"
    folder.mkdir()
    killed(failpoint, corpus / "rows", "--index", folder / "index", "-o", folder / output)
    assert_scans_go_on(corpus, folder, output, whole)


@pytest.mark.night
@pytest.mark.parametrize("output", OUTPUTS)
def test_a_scan_killed_at_any_moment_gives_every_verdict_once(
    corpus: Path, whole: bytes, tmp_path: Path, output: str
) -> None:
    chance = random.Random(output)
    for number in range(3):
        folder = tmp_path / str(number) / "killed"
        folder.mkdir(parents=True)
        index = ("--index", folder / "index", "-o", folder / output)
        process = kills.started(kills.command, CONSTANTS, "scan", corpus / "rows", *index)
        deadline = time.monotonic() + HANG_SECONDS
        while not (folder / "index" / VERDICT_LOG).exists() and process.is_alive():
            assert time.monotonic() < deadline
            time.sleep(0.001)
        time.sleep(chance.uniform(0, 0.1))
        process.kill()
        process.join()
        if process.exitcode:
            assert_scans_go_on(corpus, folder, output, whole)


def test_pages_killed_in_a_stream_give_no_id_to_others(corpus: Path, tmp_path: Path) -> None:
    """What the reader of a pipe got stays true: the index has it."""
    index = ("--index", tmp_path / "index", "-o", "-")
    first = [json.loads(line) for line in killed("scan.applied:3", corpus / "rows", *index).splitlines()]
    assert len(first) == 2 * BATCH
    with pytest.raises(SettingsError, match=r"interrupted scan that - lacks; run it again with -o -, or"):
        scan(corpus / "other", "--index", tmp_path / "index", "-o", tmp_path / "others")
    more = [json.loads(line) for line in scan(corpus / "other", *index).stdout.splitlines()]
    assert more[: len(first)] == first
    assert_whole(more)
    assert len(more) == 2 * BATCH + OTHERS


def test_another_output_is_refused_while_one_lacks_verdicts(corpus: Path, tmp_path: Path) -> None:
    index = tmp_path / "index"
    killed("scan.written", corpus / "rows", "--index", index, "-o", tmp_path / "verdicts.jsonl")
    for output in ([], ["-o", "-"], ["-o", tmp_path / "others.parquet"]):
        with pytest.raises(SettingsError, match=r"that \S+verdicts\.jsonl lacks; run it again .*, or remove"):
            scan(corpus / "other", "--index", index, *output)
    with Index(index) as opened, pytest.raises(StateError, match="a scan was interrupted; run it again"):
        opened.add("name", "text")
    (index / VERDICT_LOG).unlink()
    scan(corpus / "other", "--index", index, "-o", tmp_path / "others.parquet")
    assert len(read(tmp_path / "others.parquet")) == OTHERS
    with Index(index) as opened:
        assert opened.add("name", "text").verdict == "insufficient"


def test_an_output_may_be_another_if_the_killed_one_lacks_nothing(corpus: Path, tmp_path: Path) -> None:
    for output in ([], ["-o", tmp_path / "others.parquet"]):
        index = tmp_path / str(len(output))
        killed("scan.applied", corpus / "rows", "--index", index, "-o", tmp_path / "verdicts.jsonl")
        scan(corpus / "other", "--index", index, *output)
        assert not (index / VERDICT_LOG).exists()
    found = read(tmp_path / "others.parquet")
    assert_whole(found)
    assert len(found) == OTHERS


@pytest.mark.parametrize("output", OUTPUTS)
def test_a_log_of_other_pages_is_refused(corpus: Path, tmp_path: Path, output: str) -> None:
    """Somebody brings an older index back, which has other pages under the same numbers."""
    index = tmp_path / "index"
    arguments = ("--index", index, "-o", tmp_path / output)
    scan(corpus / "rows", "--index", index)
    shutil.copytree(index, tmp_path / "older")
    scan(corpus / "other", "--index", tmp_path / "older")
    killed("scan.flushed", corpus / "other", *arguments)
    log = (index / VERDICT_LOG).read_bytes()
    shutil.rmtree(index)
    (tmp_path / "older").rename(index)
    (index / VERDICT_LOG).write_bytes(log)
    with pytest.raises(DamagedStateError, match=r"not those of the index, which has 1900 pages; bring back"):
        scan(corpus / "rows", *arguments)


def test_a_damaged_log_is_refused(corpus: Path, tmp_path: Path) -> None:
    output, index = tmp_path / "verdicts.jsonl", tmp_path / "index"
    killed("scan.closed", corpus / "rows", "--index", index, "-o", output)
    whole = (index / VERDICT_LOG).read_bytes()
    for damaged in (b"\xff" + whole[1:], whole.replace(b'"verdict":', b'"verdict"-', 1), whole[:-5], b""):
        (index / VERDICT_LOG).write_bytes(damaged)
        with pytest.raises(DamagedStateError, match=r"verdicts\.log: damaged.*remove the log to go on"):
            scan(corpus / "rows", "--index", index, "-o", output)
    (index / VERDICT_LOG).write_bytes(whole)
    scan(corpus / "rows", "--index", index, "-o", output)
    assert len(lines(output)) == COUNT


@pytest.mark.parametrize("output", OUTPUTS[1:])
def test_a_table_that_was_taken_away_is_missed(corpus: Path, tmp_path: Path, output: str) -> None:
    index, table = tmp_path / "index", tmp_path / output
    arguments = (corpus / "rows", "--index", index, "-o", table)
    killed("scan.applied:4", *arguments)
    beside = Path(f"{table}.wal")  # what DuckDB did not move into the file yet
    table.rename(tmp_path / "away")
    if beside.exists():
        beside.rename(tmp_path / "away.wal")
    with pytest.raises(
        SettingsError, match=rf"lacks verdicts that it had, it ends at page 0 .*, not {3 * BATCH}"
    ):
        scan(*arguments)
    assert not table.exists()
    (tmp_path / "away").rename(table)
    if (tmp_path / "away.wal").exists():
        (tmp_path / "away.wal").rename(beside)
    scan(*arguments)
    assert_whole(read(table))
    assert len(read(table)) == COUNT


@pytest.mark.parametrize("output", OUTPUTS[1:])
def test_a_table_that_is_ahead_of_the_index_is_refused(corpus: Path, tmp_path: Path, output: str) -> None:
    index, table = tmp_path / "index", tmp_path / output
    scan(corpus / "other", "--index", index, "-o", table)
    shutil.copytree(index, tmp_path / "older")
    scan(corpus / "rows", "--index", index, "-o", table)
    with pytest.raises(SettingsError, match=rf"on {COUNT + OTHERS} pages of the index, which has {OTHERS}"):
        scan(corpus / "rows", "--index", tmp_path / "older", "-o", table)


def test_two_outputs_take_turns(corpus: Path, tmp_path: Path) -> None:
    index, one, two = tmp_path / "index", tmp_path / "one.parquet", tmp_path / "two.duckdb"
    scan(corpus / "other", "--index", index, "-o", one)
    killed("scan.written", corpus / "rows", "--index", index, "-o", two)
    with pytest.raises(SettingsError, match=r"two\.duckdb lacks; run it again"):
        scan(corpus / "same", "--index", index, "-o", one)
    scan(corpus / "rows", "--index", index, "-o", two)
    killed("scan.applied:2", corpus / "same", "--index", index, "-o", one)
    scan(corpus / "same", "--index", index, "-o", one)
    assert offsets(read(one), corpus / "other") == list(range(OTHERS))
    assert offsets(read(two), corpus / "rows") == list(range(COUNT))
    assert_whole([*read(one), *read(two)])


def test_rows_that_another_scan_began_are_missed(corpus: Path, tmp_path: Path) -> None:
    """Also if the log of a third scan is there."""
    index, output = tmp_path / "index", tmp_path / "verdicts.jsonl"
    killed("flush", corpus / "rows", "--index", index)
    with Index(index) as opened:
        source = RowsSource(str(corpus / "rows"))
        opened.judge([each.row for each in source.placed(opened.scheme)][:500], RowsId("rows", source.digest))
    killed("scan.closed", corpus / "other", "--index", index, "-o", output)
    with pytest.raises(SettingsError, match="would lack the first verdicts of"):
        scan(corpus / "rows", "--index", index, "-o", output)


def test_an_output_is_the_same_by_another_name(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed("scan.flushed", corpus / "rows", "--index", tmp_path / "index", "-o", tmp_path / "verdicts.jsonl")
    monkeypatch.chdir(tmp_path)
    scan(corpus / "rows", "--index", "index", "-o", "verdicts.jsonl")
    assert len(lines(tmp_path / "verdicts.jsonl")) == COUNT


def test_an_output_that_fails_is_completed_by_the_next_scan(corpus: Path, tmp_path: Path) -> None:
    index, output = tmp_path / "index", tmp_path / "missing" / "verdicts.parquet"
    with pytest.raises(NeardupError, match="missing"):
        scan(corpus / "rows", "--index", index, "-o", output)
    output.parent.mkdir()
    scan(corpus / "rows", "--index", index, "-o", output)
    assert len(read(output)) == COUNT
