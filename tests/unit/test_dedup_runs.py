"""A run of `neardup dedup` that is killed is resumed; what would lose or repeat a page is refused."""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from stream.dedup import run as dedup_run
from stream.errors import NeardupError, SettingsError
from stream.local.index import RUN, Index
from tests import kills
from tests.commands import neardup
from tests.in_process_pool import InProcessPool
from tests.kafka.judge_helpers import text
from tests.night import cases
from tests.unit.test_dedup import dedup, line_of, lines, pages, unpacked, write
from tests.unit.test_sources import warc_record

FAILPOINTS = (
    "rows.file", "rows.file:3", "rows.manifest", "scan.logged", "scan.logged:2", "scan.applied", "flush",
    "scan.flushed", "scan.written", "scan.closed", "dedup.copied", "dedup.written",
)  # fmt: skip
BY_DAY = ("rows.file:3", "rows.manifest", "scan.logged:2", "flush", "dedup.copied", "dedup.written")
CONSTANTS = {
    "stream.local.scan.ROWS": 50,
    "stream.local.scan.ChildPool": InProcessPool,
    "stream.dedup.run.PAGES_PER_FILE": 30,
}


def contents(folder: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in sorted(folder.iterdir())}


def killed(failpoint: str, *arguments: str | Path) -> None:
    """Run until it is killed at a failpoint."""
    kills.killed(failpoint, kills.command, CONSTANTS, "dedup", *arguments)


@pytest.fixture(autouse=True)
def _small_files(monkeypatch: pytest.MonkeyPatch, no_children: None) -> None:
    monkeypatch.setattr(dedup_run, "PAGES_PER_FILE", 30)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("runs")
    made = pages(110, seed=7)
    files = [write(folder / "one.jsonl", made[:70]), write(folder / "two.jsonl", made[70:])]
    damaged = gzip.compress(b"".join(line_of(each) for each in pages(40, seed=8)))[:-400]
    (folder / "broken.jsonl.gz").write_bytes(damaged)
    return [files[0], folder / "broken.jsonl.gz", files[1]]


@pytest.fixture(scope="module")
def whole(files: list[Path], tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, bytes], bytes]:
    """What a run that is not killed writes, with a child."""
    folder = tmp_path_factory.mktemp("whole")
    dedup(*files, "-o", folder / "out", "--dropped", folder / "dropped", code=1)
    return contents(folder / "out"), (folder / "dropped").read_bytes()


@pytest.mark.parametrize("failpoint", cases(FAILPOINTS, by_day=BY_DAY))
def test_a_killed_run_writes_the_same_when_it_is_run_again(
    failpoint: str, files: list[Path], whole: tuple[dict[str, bytes], bytes], tmp_path: Path
) -> None:
    out, report = tmp_path / "out", tmp_path / "dropped"
    arguments = (*files, "-o", out, "--dropped", report, "--index", tmp_path / "index")
    killed(failpoint, *arguments)
    assert out.exists() == report.exists() == (failpoint == "dedup.written")
    for _ in range(2):  # and once more, after it came to its end
        shutil.rmtree(out, ignore_errors=True)
        summary = dedup(*arguments, code=1)
        assert (contents(out), report.read_bytes()) == whole
        assert [each["pages"] for each in summary["damaged"]] == [summary["damaged"][0]["pages"]]
    assert sorted(each.name for each in tmp_path.iterdir()) == ["dropped", "index", "out"]


def test_shards_stay_shards_and_a_killed_run_goes_on_at_the_next(tmp_path: Path) -> None:
    """With their names below the directory, schemas, compressions and row groups."""
    shards = {"part.parquet": "zstd", "a/part.parquet": "snappy", "a/b/part.parquet": "none"}
    for number, (name, codec) in enumerate(shards.items()):
        rows = [{"url": f"https://{number}.example/{n}", "text": text(n), "n": n} for n in range(9)]
        path = tmp_path / "dump" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        parquet.write_table(
            pa.Table.from_pylist(rows[:: number + 1]), path, row_group_size=2, compression=codec
        )
    arguments = (
        tmp_path / "dump",
        "-o",
        tmp_path / "out",
        "--index",
        tmp_path / "index",
        "--keep",
        "longest",
    )
    killed("dedup.copied", *arguments)
    (whole,) = tmp_path.glob(".neardup-*.parts/*/whole")
    (first,) = whole.rglob("*.parquet")
    inode = first.stat().st_ino
    summary = dedup(*arguments)
    out = tmp_path / "out"
    assert {str(each.relative_to(out)) for each in out.rglob("*.parquet")} == set(shards)
    assert (out / first.relative_to(whole)).stat().st_ino == inode
    assert summary["bytes"] == sum(each.stat().st_size for each in out.rglob("*.parquet"))
    assert sum(parquet.read_metadata(each).num_rows for each in out.rglob("*.parquet")) == 9
    for name in shards:
        one, other = (parquet.ParquetFile(tmp_path / root / name) for root in ("dump", "out"))
        assert one.schema_arrow == other.schema_arrow
        if other.metadata.num_row_groups:
            codecs = {file.metadata.row_group(0).column(0).compression for file in (one, other)}
            assert len(codecs) == 1
            assert other.metadata.row_group(0).num_rows <= 2
    assert sorted(each.name for each in tmp_path.iterdir()) == ["dump", "index", "out"]
    more = tmp_path / "more"
    dedup(tmp_path / "dump" / "a", tmp_path / "dump" / "part.parquet", "-o", more)
    found = {str(each.relative_to(more)) for each in more.rglob("*.parquet")}
    assert found == {"a/part.parquet", "a/b/part.parquet", "part.parquet"}


def test_another_keep_copies_what_was_judged(files: list[Path], tmp_path: Path) -> None:
    index = ("--index", tmp_path / "index")
    dedup(files[0], "-o", tmp_path / "first.jsonl", *index)
    for keep in ("longest", "first"):
        dedup(files[0], "-o", tmp_path / "out.jsonl", "--keep", keep, *index)
        dedup(files[0], "-o", tmp_path / "alone.jsonl", "--keep", keep)
        assert (tmp_path / "out.jsonl").read_bytes() == (tmp_path / "alone.jsonl").read_bytes()


def test_pages_like_those_of_an_earlier_run_are_dropped(tmp_path: Path) -> None:
    """Of clusters that the index had; also when it is the index of a scan."""
    first = [{"url": f"https://a.example/{n}", "text": text(n)} for n in range(6)]
    then = [{"url": f"https://b.example/{n}", "text": text(n) + " copied"} for n in range(3, 9)]
    then += [{"url": f"https://c.example/{n}", "text": text(n)} for n in (4, 7)]
    index = ("--index", tmp_path / "index")
    write(tmp_path / "first.jsonl", first)
    write(tmp_path / "then.jsonl", then)
    assert neardup("scan", tmp_path / "first.jsonl", *index).exit_code == 0
    summary = dedup(
        tmp_path / "then.jsonl", "-o", tmp_path / "out.jsonl", "--dropped", tmp_path / "dropped", *index
    )
    assert summary["dropped"] == {"same cluster": 1, "in the index": 4}
    assert lines(tmp_path / "out.jsonl") == then[3:6]
    dropped = {each["url"]: each for each in lines(tmp_path / "dropped")}
    assert dropped["https://b.example/3"]["kept_url"] == "https://a.example/3"
    assert dropped["https://c.example/7"]["kept_url"] == "https://b.example/7"
    again = dedup(tmp_path / "then.jsonl", "-o", tmp_path / "again.jsonl", *index)
    assert (again["kept"], lines(tmp_path / "again.jsonl")) == (3, then[3:6])
    assert dedup(tmp_path / "first.jsonl", "-o", tmp_path / "out.jsonl", *index)["kept"] == 0


def test_a_finished_run_that_another_replaced_is_not_taken_for_duplicates(tmp_path: Path) -> None:
    """All its pages are in the index: an output without them would look like a crawl of duplicates."""
    index = ("--index", tmp_path / "index")
    for name in ("one", "two"):
        write(tmp_path / f"{name}.jsonl", [{"url": f"https://{name}.example/", "text": text(name)}])
        assert dedup(tmp_path / f"{name}.jsonl", "-o", tmp_path / "out.jsonl", *index)["kept"] == 1
    result = neardup(
        "dedup", tmp_path / "one.jsonl", "-o", tmp_path / "out.jsonl", *index, catch_exceptions=True
    )
    assert "has judged these pages in a run before the last one" in str(result.exception)
    assert lines(tmp_path / "out.jsonl")[0]["url"] == "https://two.example/"
    write(tmp_path / "three.jsonl", [{"url": "https://three.example/", "text": text("three")}])
    assert dedup(tmp_path / "three.jsonl", "-o", tmp_path / "out.jsonl", *index)["kept"] == 1


def test_a_run_that_is_killed_while_it_takes_another_ones_place_is_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = ("--index", tmp_path / "index")
    one, two = (
        write(tmp_path / f"{n}.jsonl", [{"url": f"https://{n}.example/", "text": text(n)}]) for n in "ab"
    )
    dedup(one, "-o", tmp_path / "out.jsonl", *index)

    def killed_here(*_: object, **__: object) -> None:
        raise InterruptedError

    with monkeypatch.context() as patch:
        patch.setattr("shutil.rmtree", killed_here)
        with pytest.raises(InterruptedError):
            dedup(two, "-o", tmp_path / "out.jsonl", *index)
    assert len(list((tmp_path / "index" / RUN).iterdir())) == 2
    assert dedup(two, "-o", tmp_path / "out.jsonl", *index)["kept"] == 1


@pytest.mark.parametrize("failpoint", ["rows.file", "scan.applied", "dedup.copied"])
def test_an_unfinished_run_is_not_replaced_by_another(
    failpoint: str, files: list[Path], tmp_path: Path
) -> None:
    """Its pages are in the index already, and in no output; before, any other may begin."""
    other = write(tmp_path / "other.jsonl", pages(5))
    index = ("--index", tmp_path / "index")
    killed(failpoint, files[0], files[2], "-o", tmp_path / "out", *index)
    if failpoint == "rows.file":
        assert dedup(other, "-o", tmp_path / "other-out.jsonl", *index)["kept"]
        return
    said = r"an interrupted dedup of .*one\.jsonl and 1 more is unfinished, and this is another"
    with pytest.raises(SettingsError, match=said):
        dedup(other, "-o", tmp_path / "other-out.jsonl", *index)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (("--id-column", "ids"), "no such column"),
        (("--id-column", "id", "--id-prefix", "x"), "index .*: another process uses it"),
        (("--id-column", "id"), r"index .*: has 3 of these ids with other texts, first 0 \(.*jsonl row 1\)"),
    ],
    ids=["mistyped", "busy", "other texts"],
)
def test_a_run_that_judged_nothing_neither_blocks_another_nor_takes_its_place(
    wrong: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    one, two = (
        write(tmp_path / f"{n}.jsonl", [{"id": k, "text": text(n * 9 + k)} for k in range(3)]) for n in (0, 1)
    )
    index = ("--index", tmp_path / "index")
    named = ("--id-column", "id")
    dedup(one, "-o", tmp_path / "one-out.jsonl", *named, *index)
    with Index(tmp_path / "index") if "another process" in said else nullcontext():
        result = neardup("dedup", two, "-o", tmp_path / "out.jsonl", *wrong, *index, catch_exceptions=True)
        assert re.search(said, str(result.exception))
    again = dedup(one, "-o", tmp_path / "again.jsonl", *named, "--keep", "longest", *index)
    assert (again["kept"], again["dropped"]) == (3, {})
    assert dedup(two, "-o", tmp_path / "out.jsonl", *named, "--id-prefix", "2-", *index)["kept"] == 3
    assert len(list((tmp_path / "index" / RUN).iterdir())) == 1


def test_sources_are_told_by_their_places_and_rows_have_them_as_they_were_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("here", "there"):
        (tmp_path / folder).mkdir()
        write(tmp_path / folder / "pages.jsonl", pages(60, seed=len(folder)))
    monkeypatch.chdir(tmp_path / "here")
    options = ("--index", tmp_path / "index")
    killed("scan.applied", "pages.jsonl", "-o", "out.jsonl", *options)
    monkeypatch.chdir(tmp_path / "there")
    with pytest.raises(
        SettingsError, match=r"interrupted dedup of pages\.jsonl is unfinished, and this is anot"
    ):
        dedup("pages.jsonl", "-o", "out.jsonl", *options)
    for finished in (False, True):
        with pytest.raises(
            SettingsError, match=r"which named pages\.jsonl, not .*/here/pages\.jsonl; name it so"
        ):
            dedup(tmp_path / "here" / "pages.jsonl", "-o", "out.jsonl", *options)
        if not finished:
            monkeypatch.chdir(tmp_path / "here")
            dedup("pages.jsonl", "-o", "out.jsonl", *options)


@pytest.mark.parametrize(
    ("more", "fewer", "options", "said"),
    [
        (
            "new",
            "",
            [],
            r"/0\.jsonl and 4 more is unfinished, and this one has .*/new\.jsonl; run it again",
        ),
        ("", "1", [], r"and 4 more is unfinished, and this one lacks .*/1\.jsonl; run it again"),
        ("", "", ["--url-column", "url"], "and 4 more is unfinished, whose columns are not named; run it"),
        ("", "", ["--page-bytes", "1MiB"], "with another --page-bytes or order of sources; run it again"),
    ],
)
def test_another_run_over_the_shards_of_an_unfinished_one_is_told_by_its_difference(
    more: str, fewer: str, options: list[str], said: str, tmp_path: Path
) -> None:
    dump = tmp_path / "dump"
    dump.mkdir()
    for n in range(5):
        write(dump / f"{n}.jsonl", pages(20, seed=n))
    arguments = (dump, "-o", tmp_path / "out", "--index", tmp_path / "index")
    killed("scan.applied", *arguments)
    if more:
        write(dump / f"{more}.jsonl", pages(1))
    if fewer:
        (dump / f"{fewer}.jsonl").unlink()
    with pytest.raises(SettingsError, match=said) as refused:
        dedup(*arguments, *options)
    assert len(str(refused.value)) < 500


@pytest.mark.parametrize("then", ["same", "output", "index"])
def test_parts_of_a_run_that_is_given_up_are_removed(then: str, files: list[Path], tmp_path: Path) -> None:
    """By the same run with another output, by one with a new index, or when they are done; files that the
    process was writing are in no output."""
    out, index = tmp_path / "out", tmp_path / "index"
    killed("dedup.copied", files[0], files[2], "-o", out, "--index", index)
    (parts,) = tmp_path.glob(".neardup-*.parts")
    (whole,) = parts.glob("*/whole")
    (whole / ".neardup-0123.part").write_bytes(b"half a page")
    if then == "output":
        out = tmp_path / "other"
    elif then == "index":
        shutil.rmtree(index)
    dedup(files[0], files[2], "-o", out, "--index", index)
    assert sorted(each.name for each in out.iterdir()) == ["one.jsonl", "two.jsonl"]
    assert sorted(each.name for each in tmp_path.iterdir()) == ["index", out.name]


@pytest.mark.parametrize("kind", ["jsonl", "jsonl.gz", "csv", "parquet", "warc.gz"])
def test_shards_become_one_file_if_its_name_tells_their_format(kind: str, tmp_path: Path) -> None:
    """What a directory has, one behind another; of CSV with one header, of Parquet with one schema."""
    dump = tmp_path / "dump"
    made = [each for each in pages(45, seed=3) if "url" in each][:30]
    for number in range(3):
        some = made[number * 10 :][:10]
        path = dump / str(number) / f"part.{kind}"
        path.parent.mkdir(parents=True)
        write_as(kind, path, some)
    one = dedup(dump, "-o", tmp_path / f"kept.{kind}", "--dropped", tmp_path / "one.jsonl")
    several = dedup(dump, "-o", tmp_path / "kept", "--dropped", tmp_path / "several.jsonl")
    assert one["kept"] == several["kept"] < 30
    assert (tmp_path / "one.jsonl").read_bytes() == (tmp_path / "several.jsonl").read_bytes()
    shards = [tmp_path / "kept" / str(number) / f"part.{kind}" for number in range(3)]
    if kind == "parquet":
        tables = [parquet.read_table(each) for each in (tmp_path / "kept.parquet", *shards)]
        assert tables[0] == pa.concat_tables(tables[1:])
        return
    whole, *parts = (unpacked(each) for each in (tmp_path / f"kept.{kind}", *shards))
    if kind == "csv":
        header, parts = b"url,text\r\n", [each.removeprefix(b"url,text\r\n") for each in parts]
        parts.insert(0, header)
    assert whole == b"".join(parts)


def write_as(kind: str, path: Path, some: list[dict[str, Any]]) -> None:
    """Write pages with a URL and a text; a CSV file ends without a line end."""
    if kind == "parquet":
        parquet.write_table(pa.Table.from_pylist([{n: p[n] for n in ("url", "text")} for p in some]), path)
    elif kind == "csv":
        rows = [("url", "text"), *((each["url"], each["text"]) for each in some)]
        path.write_bytes("\r\n".join(f"{one},{two}" for one, two in rows).encode())
    elif kind == "warc.gz":
        records = (warc_record(p["url"], p["text"].encode(), content_type="text/plain") for p in some)
        path.write_bytes(b"".join(map(gzip.compress, records)))
    else:
        content = b"".join(map(line_of, some))
        path.write_bytes(gzip.compress(content) if kind.endswith("gz") else content)


def test_a_source_that_changed_is_refused_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the two readings, with its size and time kept."""
    made = pages(20)
    source, out = write(tmp_path / "source.jsonl", made), tmp_path / "out.jsonl"
    before = source.stat()

    def judge_and_change(self: Any, *arguments: Any) -> Any:
        source.write_bytes(source.read_bytes().replace(b"a", b"b"))
        os.utime(source, ns=(before.st_atime_ns, before.st_mtime_ns))
        return judge(self, *arguments)

    judge = dedup_run.Run.judge
    with monkeypatch.context() as patch:
        patch.setattr(dedup_run.Run, "judge", judge_and_change)
        with pytest.raises(
            SettingsError, match=r"source .*source\.jsonl: changed since its pages were judged"
        ):
            dedup(source, "-o", out)
    assert not out.exists()


def test_a_source_that_changed_before_a_run_is_resumed_is_refused(tmp_path: Path) -> None:
    source = write(tmp_path / "source.jsonl", pages(60))
    arguments = (source, "-o", tmp_path / "out.jsonl", "--index", tmp_path / "index")
    killed("scan.applied", *arguments)
    write(source, pages(61))
    with pytest.raises(
        SettingsError, match=r"source\.jsonl: changed since an interrupted run began to judge"
    ):
        dedup(*arguments)


NO_UTF_8 = os.fsdecode(b"caf\xe9")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all that a run must not touch, or cannot read."""
    place = tmp_path_factory.mktemp("place")
    for name in ("a", "b", "dump", "full", "mine", "saved"):
        (place / name).mkdir()
    for name, header in (("rows", "url,text"), ("more", "url,text,more"), ("tabs", "url\ttext")):
        (place / f"{name}.csv").write_text(f"{header}\n")
    for name in ("pages", "other", "a/pages", "b/pages", "dump/a", "dump/b", NO_UTF_8):
        write(place / f"{name}.jsonl", pages(3))
    for name in ("full/file", "mine/letter", "saved/a.html"):
        (place / name).write_text(text(1))
    (place / "link.jsonl").symlink_to("pages.jsonl")
    os.link(place / "pages.jsonl", place / "hard.jsonl")
    os.mkfifo(place / "pipe.jsonl")
    assert neardup("fingerprint", place / "pages.jsonl", "-o", place / "rows").exit_code == 0
    return place


CHANGED, ELSEWHERE = "would change", "name another place"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("a/pages.jsonl b/pages.jsonl -o out", r"both would be pages\.jsonl in the output"),
        ("a/pages.jsonl a/pages.jsonl -o out", r"both would be pages\.jsonl in the output"),
        ("a/pages.jsonl a/../a/pages.jsonl -o out", r"both would be pages\.jsonl in the output"),
        ("pages.jsonl -o pages.jsonl", CHANGED),
        ("pages.jsonl -o link.jsonl", CHANGED),
        ("pages.jsonl -o hard.jsonl", CHANGED),
        ("pages.jsonl -o saved/../pages.jsonl", CHANGED),
        ("pages.jsonl -o out.jsonl --dropped pages.jsonl", CHANGED),
        ("pages.jsonl -o out.jsonl --dropped link.jsonl", CHANGED),
        ("pages.jsonl -o out.jsonl --dropped hard.jsonl", CHANGED),
        ("saved -o saved/kept", CHANGED),
        ("pages.jsonl -o out.jsonl --dropped out.jsonl", "dropped .*: would change out.jsonl"),
        ("pages.jsonl -o out.jsonl --dropped full", "is a directory"),
        ("saved -o out --cluster-counts", "cluster-counts: pages of saved have no columns"),
        ("saved -o out --count-by host", "count-by: saved is saved pages, whose URLs are their paths"),
        ("pages.jsonl -o out.jsonl --count-by dump", r"--count-by dump: no such column"),
        ("dump -o dump/kept", CHANGED),
        ("dump -o out/ --dropped dump/dropped.jsonl", CHANGED),
        ("dump -o out/ --index dump/index", CHANGED),
        ("dump/a.jsonl -o dump/a.jsonl/", CHANGED),
        ("pages.jsonl -o out.jsonl --dropped dropped.xlsx", r"is not written as \.xlsx"),
        ("pages.jsonl -o out.jsonl --dropped dropped.parquet.gz", r"is not written as \.parquet\.gz"),
        ("pages.jsonl rows.csv -o out.jsonl", r"and rows\.csv is csv; name a directory, with a /"),
        ("rows.csv more.csv -o out.csv", r"more\.csv has other columns than rows\.csv; name a directory"),
        ("rows.csv tabs.csv -o out.csv", r"tabs\.csv has other columns than rows\.csv"),
        ("pages.jsonl -o -", "pages are written to a file"),
        ("pages.jsonl -o ftp://bucket/out.jsonl", "the only URLs are such as s3://bucket/key"),
        ("pages.jsonl -o full", "is a directory"),
        ("pages.jsonl -o out.parquet", "in the format of their source, and .* is jsonl"),
        ("pages.jsonl other.jsonl -o full", "is not empty"),
        ("pages.jsonl other.jsonl -o full/file", "is a file"),
        ("- -o out.jsonl", "standard input cannot be read twice"),
        ("pages.jsonl -o missing/out.jsonl", "no directory .*missing"),
        ("rows -o out.jsonl", "rows have no pages to write"),
        ("pipe.jsonl -o out.jsonl", "a pipe cannot be read twice"),  # it would be empty, or wait forever
        (f"{NO_UTF_8}.jsonl -o out.jsonl", "its path is not UTF-8, which rows cannot have"),
        ("pages.jsonl -o out.jsonl --index mine", "is no index and not empty, it has letter"),
        ("pages.jsonl -o out.jsonl --index what?", "DuckDB opens no file"),
        ("pages.jsonl -o out.jsonl --index back\\slash", "DuckDB opens no file"),
        (f"pages.jsonl -o out.jsonl --index {NO_UTF_8}", "DuckDB opens no file"),
        ("pages.jsonl other.jsonl -o index --index index", ELSEWHERE),
        ("pages.jsonl other.jsonl -o out --index out/index", ELSEWHERE),
        ("pages.jsonl other.jsonl -o index/out --index index", ELSEWHERE),
        (f"pages.jsonl -o out.jsonl --index index --dropped index/{RUN}/plan.json", ELSEWHERE),
    ],
)
def test_what_would_lose_or_cannot_be_read_twice_is_refused_and_nothing_is_made(
    place: Path, arguments: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    before = {each: each.lstat().st_mtime_ns for each in place.rglob("*")}
    with pytest.raises(NeardupError, match=said):
        dedup(*arguments.split())
    assert {each: each.lstat().st_mtime_ns for each in place.rglob("*")} == before


def test_strict_sources_end_at_damage(files: list[Path], tmp_path: Path) -> None:
    result = neardup(
        "dedup", "--strict-sources", files[1], "-o", tmp_path / "out.jsonl.gz", catch_exceptions=True
    )
    assert re.search(r"broken\.jsonl\.gz after line", str(result.exception))
    assert not any(tmp_path.iterdir())


def test_people_see_counts_sizes_and_examples(tmp_path: Path) -> None:
    some = [{"url": f"https://{host}.example/", "text": text(1)} for host in "ab"]
    write(tmp_path / "pages.jsonl", [*some, {"text": text(2)}])
    result = neardup("dedup", tmp_path / "pages.jsonl", "-o", tmp_path / "out.jsonl")
    first, size, example, reasons, reason = result.stderr.splitlines()
    assert re.fullmatch(r"3 pages: 1 kept; dropped: 1 same cluster, 1 rejected; \d+ s", first)
    assert size == f"{tmp_path / 'out.jsonl'}: 0.0 MB of 0.0 MB"
    assert example == "  1.00 alike: https://b.example/, dropped for https://a.example/"
    assert reasons.startswith("rejected for missing_field (1);")
    assert reason.startswith(f"  missing_field: {tmp_path / 'pages.jsonl'} page 3: ")
    assert json.loads(json.dumps(lines(tmp_path / "out.jsonl"))) == some[:1]


def test_a_source_that_cannot_be_read_costs_itself(tmp_path: Path) -> None:
    made = pages(12, seed=5)
    one, last = write(tmp_path / "one.jsonl", made[:6]), write(tmp_path / "last.jsonl", made[6:])
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 and nothing else")
    alone = dedup(one, last, "-o", tmp_path / "alone")
    summary = dedup(one, tmp_path / "broken.parquet", last, "-o", tmp_path / "out", code=1)
    assert (summary["pages"], summary["kept"]) == (12, alone["kept"])
    assert [Path(each["source"]).name for each in summary["damaged"]] == ["broken.parquet"]
    assert contents(tmp_path / "out") == contents(tmp_path / "alone")


@pytest.mark.parametrize("name", ["br[ack]et", "st*r", "a{b,c}", "q'uote", "100%", "new\nline"])
def test_names_of_directories_are_no_patterns(name: str, tmp_path: Path) -> None:
    folder = tmp_path / name
    folder.mkdir()
    source = write(folder / "pages.jsonl", pages(20))
    dedup(source, "-o", tmp_path / "expected.jsonl")
    out = folder / "out.jsonl"
    dedup(source, "-o", out, "--dropped", folder / "dropped.parquet", "--index", folder / "index")
    assert out.read_bytes() == (tmp_path / "expected.jsonl").read_bytes()


def test_an_empty_directory_of_outputs_is_replaced_unless_it_cannot_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    some = [write(tmp_path / f"{name}.jsonl", pages(3, seed)) for seed, name in enumerate("ab")]
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to("empty")
    dedup(*some, "-o", tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert contents(tmp_path / "empty").keys() == {"a.jsonl", "b.jsonl"}
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with pytest.raises(SettingsError, match="mount point or the current directory"):
        dedup(*some, "-o", ".")


@pytest.mark.parametrize("suffix", [".jsonl.gz", ".jsonl.bz2", ".csv.xz", ".zst"])
def test_dropped_pages_are_compressed_as_their_file_is_named(suffix: str, tmp_path: Path) -> None:
    source = write(tmp_path / "pages.jsonl", pages(12))
    name = f"dropped{suffix}"
    plain = "dropped.csv" if ".csv" in suffix else "dropped.jsonl"
    for each in (name, plain):
        dedup(source, "-o", tmp_path / "out.jsonl", "--dropped", tmp_path / each)
    assert unpacked(tmp_path / name) == (tmp_path / plain).read_bytes()
