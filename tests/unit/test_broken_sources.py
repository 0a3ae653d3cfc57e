"""A source that is damaged or cannot be opened costs itself: its pages before and other sources are read."""

from __future__ import annotations

import contextlib
import gzip
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from click.testing import Result
from pyarrow import parquet

from stream.errors import PageError, SettingsError
from stream.sources.open import open_source
from stream.sources.source import LISTED
from tests.commands import neardup
from tests.unit.test_sources import warc_record

pytestmark = pytest.mark.usefixtures("no_children")

TEXT = "The harbour authority will repair the old lighthouse at the north pier before the storms."
COUNT = 40


def page(number: int) -> dict[str, str]:
    noise = random.Random(number)
    return {
        "url": f"http://a.example/{number}",
        "text": " ".join(f"w{noise.randrange(9999)}" for _ in range(60)),
    }


def lines(path: Path, numbers: range = range(COUNT)) -> Path:
    path.write_text("".join(json.dumps(page(each)) + "\n" for each in numbers))
    return path


def cut(path: Path, data: bytes) -> Path:
    path.write_bytes(gzip.compress(data, mtime=0)[:-2000])
    return path


def cut_lines(path: Path) -> Path:
    return cut(path, lines(path.with_name("whole")).read_bytes())


def cut_warc(path: Path) -> Path:
    whole = [warc_record(f"http://a.example/{n}", page(n)["text"].encode()) for n in range(COUNT)]
    members = [gzip.compress(each) for each in whole]
    path.write_bytes(b"".join(members)[:-9])
    return path


def cut_csv(path: Path) -> Path:
    rows = "".join(f"{page(n)['url']},{page(n)['text']}\n" for n in range(COUNT))
    return cut(path, f"url,text\n{rows}".encode())


def damaged_parquet(path: Path) -> Path:
    """The last row group is overwritten."""
    columns = {name: [page(n)[name] for n in range(COUNT)] for name in ("url", "text")}
    parquet.write_table(pyarrow.table(columns), path, row_group_size=10)
    start = parquet.read_metadata(path).row_group(3).column(0).data_page_offset
    data = bytearray(path.read_bytes())
    data[start : start + 40] = bytes(40)
    path.write_bytes(data)
    return path


def truncated_parquet(path: Path) -> Path:
    path.write_bytes(damaged_parquet(path).read_bytes()[:-50])
    return path


def long_line(path: Path) -> Path:
    lines(path)
    path.write_bytes(path.read_bytes() + b"x" * 10_000)
    return path


BROKEN: list[tuple[str, Callable[[Path], Path], range]] = [
    ("cut.jsonl.gz", cut_lines, range(COUNT - 20, COUNT)),
    ("cut.warc.gz", cut_warc, range(COUNT - 1, COUNT + 1)),
    ("cut.csv.gz", cut_csv, range(COUNT - 20, COUNT)),
    ("damaged.parquet", damaged_parquet, range(30, 31)),
    ("truncated.parquet", truncated_parquet, range(1)),
    ("long.jsonl", long_line, range(COUNT, COUNT + 1)),
]


def scan(*arguments: str | Path) -> Result:
    return neardup("scan", "--worker-processes", "1", *arguments)


def verdicts(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize(("name", "broken", "kept"), BROKEN, ids=[name for name, _, _ in BROKEN])
def test_a_broken_source_keeps_its_pages_before_the_damage_and_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, broken: Callable[[Path], Path], kept: range
) -> None:
    monkeypatch.setattr("stream.sources.jsonl.MAX_MESSAGE", 9_000)
    path, after = broken(tmp_path / name), lines(tmp_path / "after.jsonl", range(100, 105))
    result = scan(path, after, "-o", tmp_path / "verdicts.jsonl", "--json")
    assert result.exit_code == 1
    summary = json.loads(result.stdout)
    (damage,) = summary["damaged"]
    assert (damage["source"], str(path) in damage["error"]) == (str(path), True)
    assert damage["pages"] in kept
    urls = [each["url"] for each in verdicts(tmp_path / "verdicts.jsonl")]
    assert urls == [page(n)["url"] for n in (*range(damage["pages"]), *range(100, 105))]
    assert f"damaged source: {damage['error']}; {damage['pages']} pages of {path} before it" in result.stderr


def test_a_strict_scan_ends_at_a_broken_source_and_leaves_its_output(tmp_path: Path) -> None:
    path, out = cut_lines(tmp_path / "cut.jsonl.gz"), tmp_path / "verdicts.jsonl"
    out.write_text("before")
    with pytest.raises(PageError, match="damaged_source"):
        scan("--strict-sources", path, "-o", out)
    assert out.read_text() == "before"


def test_a_source_that_cannot_be_opened_is_named_but_one_that_is_absent_is_an_error(tmp_path: Path) -> None:
    lines(tmp_path / "a.jsonl")
    (tmp_path / "closed.jsonl").symlink_to("/proc/1/mem")  # nobody may read it, not even root
    result = scan(tmp_path / "closed.jsonl", tmp_path / "a.jsonl")
    assert result.exit_code == 1
    assert "closed.jsonl" in result.stderr
    assert f"{COUNT} unique" in result.stderr
    with pytest.raises(SettingsError, match=r"absent\.jsonl: no such file"):
        scan(tmp_path / "absent.jsonl", tmp_path / "a.jsonl")
    with pytest.raises(SettingsError, match=r"a: File name too long"):
        scan("a" * 5000, tmp_path / "a.jsonl")


def test_a_saved_page_that_cannot_be_read_costs_itself(tmp_path: Path) -> None:
    saved = tmp_path / "saved"
    saved.mkdir()
    for n in range(LISTED + 3):
        (saved / f"b{n:03}.txt").symlink_to("/proc/self/mem")
    for name in ("a.txt", "c.txt"):
        (saved / name).write_text(TEXT)
    source = open_source(str(saved))
    with pytest.raises(PageError, match=r"b000\.txt"):
        list(source)
    source.strict = False
    for _ in range(2):
        assert [Path(message.origin).name for message in source] == ["a.txt", "c.txt"]
        assert (len(source.damages), source.damage_count) == (LISTED, LISTED + 3)
    assert "3 more places" in scan(saved).stderr


def test_no_truncation_and_no_flipped_bit_ends_more_than_its_source(tmp_path: Path) -> None:
    chance = random.Random(7)
    made = [broken(tmp_path / f"{place}-{name}") for place, (name, broken, _) in enumerate(BROKEN[:4])]
    for path in made:
        data = path.read_bytes()
        for trial in range(150):
            damaged = bytearray(data[: chance.randrange(1, len(data))] if trial % 2 else data)
            for _ in range(chance.randrange(3)):
                damaged[chance.randrange(len(damaged))] ^= 1 << chance.randrange(8)
            path.write_bytes(damaged)
            source = open_source(str(path))
            source.strict = False
            with contextlib.suppress(SettingsError):  # the names of columns are damaged
                assert len(list(source)) <= COUNT + 1


@pytest.mark.parametrize("order", ["position", "fetched_at"])
def test_rows_do_not_go_on_behind_pages_that_a_source_has_not_any_more(
    tmp_path: Path, order: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, after = cut_lines(tmp_path / "cut.jsonl.gz"), lines(tmp_path / "after.jsonl", range(100, 130))
    command = ("fingerprint", "--worker-processes", "1", "--pages-per-file", "50", "--order", order)
    made = (*command, str(path), str(after), "-o", str(tmp_path / "rows"))
    assert neardup(*made).exit_code == 1
    (tmp_path / "rows/_neardup_rows.json").unlink()  # as a kill before the end would leave it
    damaged = path.read_bytes()
    path.write_bytes(b"no gzip".ljust(len(damaged)))
    with pytest.raises(SettingsError, match="another page now"):
        neardup(*made)
    path.write_bytes(damaged)
    assert neardup(*made).exit_code == 1
    assert (tmp_path / "rows/_neardup_rows.json").exists()


def test_finished_rows_of_a_damaged_source_name_it_again(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir()
    for number in range(LISTED + 2):
        (tmp_path / "closed" / f"{number:03}.html").symlink_to("/proc/1/mem")
    command = ["fingerprint", "--worker-processes", "1", "--json", cut_lines(tmp_path / "cut.jsonl.gz")]
    command += [lines(tmp_path / "whole.jsonl"), tmp_path / "closed", "-o", tmp_path / "rows"]
    first, again = neardup(*command), neardup(*command)
    assert (first.exit_code, again.exit_code) == (1, 1)
    before, after = json.loads(first.stdout), json.loads(again.stdout)
    assert after["resumed"] == before["rows"] == before["damaged"][0]["pages"] + COUNT
    shown = neardup("fingerprint", *command[4:-2])
    assert (shown.exit_code, len(shown.stdout.splitlines())) == (1, before["rows"])
    assert len(after["damaged"]) == 1 + LISTED
    assert (after["damaged"], after["digest"]) == (before["damaged"], before["digest"])
    assert "2 more places" in again.stderr
    assert [line for line in again.stderr.splitlines() if line.startswith("damaged source")] == [
        line for line in first.stderr.splitlines() if line.startswith("damaged source")
    ]
