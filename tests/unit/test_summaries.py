"""What commands say at their end, and how their progress bars get there."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from rich.console import Console

from stream.cli import progress
from stream.cli.progress import Reading
from stream.sources.source import Source
from tests.commands import neardup

pytestmark = pytest.mark.usefixtures("no_children")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: now[0]))
    return now


def reading(bytes_read: int = 0) -> tuple[Reading, list[tuple[str, int]]]:
    shown: list[tuple[str, int]] = []
    source = cast(Source, SimpleNamespace(bytes_read=bytes_read))
    return Reading([source], lambda *update: shown.append(update)), shown


def test_a_bar_ends_when_the_work_does_and_not_when_all_is_read() -> None:
    bar, shown = reading(bytes_read=1000)
    bar.advance(1, ahead=9)
    bar.advance(9, ahead=1)
    bar.advance(10)
    assert shown == [("1 page", 100), ("9 pages", 900), ("10 pages", 1000)]


@pytest.mark.parametrize("terminal", [False, True])
def test_without_a_terminal_a_line_says_each_half_minute_how_far_it_is(
    terminal: bool, clock: list[float], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "Console", lambda stderr: Console(stderr=True, force_terminal=terminal))
    source = cast(Source, SimpleNamespace(total_bytes=4_000_000, bytes_read=1_000_000))
    with progress.reading([source]) as bar:
        for clock[0], pages in ((1.0, 1), (29.0, 2), (31.0, 3), (60.0, 4), (61.0, 5)):
            bar.advance(pages)
    with progress.counting("judged", 9) as update:
        for clock[0], done in ((90.0, 1), (92.0, 2)):
            update(done)
    lines = ["3 pages, 1 of 4 MB", "5 pages, 1 of 4 MB", "judged: 2 of 9"]
    shown = capsys.readouterr().err
    assert shown.splitlines() == lines if not terminal else not any(each in shown for each in lines[1:])


def test_a_rate_leaves_out_what_the_first_pages_waited_for(clock: list[float]) -> None:
    bar, _ = reading()
    for clock[0], pages in ((100.0, 512), (101.0, 1512), (102.0, 2512)):
        bar.advance(pages)
    assert bar.describe_rate() == "; 1,000 pages/s"


def test_no_rate_is_told_of_a_moment(clock: list[float]) -> None:
    bar, _ = reading()
    assert bar.describe_rate() == ""
    for clock[0], pages in ((100.0, 1), (100.9, 100_000)):
        bar.advance(pages)
    assert bar.describe_rate() == ""


def test_pages_of_a_scan_that_are_read_and_not_judged_do_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[tuple[int, int]] = []
    advance = Reading.advance

    def noted(self: Any, pages: int, ahead: int = 0) -> None:
        steps.append((pages, ahead))
        advance(self, pages, ahead)

    monkeypatch.setattr(Reading, "advance", noted)
    pages = tmp_path / "pages.jsonl"
    lines = [json.dumps({"url": f"http://{i}.example/", "text": f"w{i} " * 20}) for i in range(2000)]
    pages.write_text("\n".join(lines))
    neardup("scan", pages, "--index", tmp_path / "index")
    assert steps[-1] == (2000, 0)
    assert all(ahead >= 0 for _, ahead in steps)
    steps.clear()
    neardup("scan", pages, "--index", tmp_path / "index")  # whose offsets go on
    assert steps[-1] == (2000, 0)
    steps.clear()
    neardup("fingerprint", pages, "-o", tmp_path / "rows")
    assert steps[-1] == (2000, 0)
    steps.clear()
    neardup("scan", tmp_path / "rows", pages)
    assert steps[-1] == (4000, 0)


def test_the_summary_of_a_page_is_singular_and_has_no_rate(tmp_path: Path) -> None:
    pages = tmp_path / "pages.jsonl"
    pages.write_text(json.dumps({"url": "http://a.example/", "text": "some words " * 20}))
    assert neardup("scan", pages).stderr == "1 page: 1 unique\n"  # no bar where there is no terminal
    done = neardup("fingerprint", pages, "-o", tmp_path / "rows").stderr
    assert done.startswith("1 row in ")
    assert done.endswith("; 1 ready\n")


def test_the_summary_of_a_match_is_two_lines(tmp_path: Path) -> None:
    (tmp_path / "batch").write_text("0123456789abcdef\n0123456789abcdee\n")
    lines = neardup("match", tmp_path / "batch", "-k", "1").stderr.splitlines()
    assert lines[0] == "1 pair among 2 fingerprints, each with a distance of at most 1"
    assert len(lines) == 2


def test_nothing_that_a_stranger_wrote_reaches_the_terminal_as_a_command(tmp_path: Path) -> None:
    pages = tmp_path / "pages.jsonl"
    lines = [
        {"url": f"http://{name}.example/\x1b]0;title\x07\x9b2J", "text": "some words of a page " * 20}
        for name in "ab"
    ]
    pages.write_text("\n".join(map(json.dumps, [*lines, {"url": "http://\x1b[2J.example/", "text": "x"}])))
    commands = (
        ("fingerprint", pages),
        ("match", "--verified", pages),
        ("explain", f"{pages}#1", f"{pages}#2", "-v"),
        ("scan", pages),
    )
    for command in commands:
        done = neardup(*command)
        assert not set(done.stdout + done.stderr) & set("\x1b\x07\x9b"), command
        assert command[0] == "scan" or "\ufffd" in done.stdout
