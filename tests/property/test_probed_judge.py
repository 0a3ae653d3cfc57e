"""A judge that drops the tables of segments and waits for answers of probers decides what the oracle does,
whoever holds them, and however late, lost, repeated or old answers are."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from stream.judge.segments import answering, deaths
from stream.judge.segments import probed as probed_module
from stream.messages.verdict_options import VerdictOptions
from stream.tables import tables
from stream.tables.arrays import I64, U64
from stream.tables.store import anchors
from tests.judged_crawls import (
    SCHEME,
    crawl,
    crowd,
    entries_of,
    redelivered,
)
from tests.oracle import OraclePage
from tests.probed_judge import ProbedJudge


@pytest.fixture(autouse=True)
def tables_begin_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not only at a whole chunk of the anchor log."""
    monkeypatch.setattr(anchors, "CHUNK", 1)


def check(
    directory: Path,
    pages: list[OraclePage],
    options: VerdictOptions,
    members: dict[str, int],
    seed: int = 1,
    *,
    forgets: bool = False,
) -> Counter[str]:
    entries = redelivered(entries_of(pages, seed, SCHEME, sizes=(1, 3, 12)), pages, seed)
    if options.lifetime:
        entries = [replace(entry, time=10**12 + 15_000 * at) for at, entry in enumerate(entries)]
    judge = ProbedJudge(directory, options, members, seed)
    judge.run(pages, entries, forgets=forgets)
    judge.close()
    return judge.seen


@pytest.mark.parametrize(
    ("probers", "options"),
    [
        (0, VerdictOptions()),
        (1, VerdictOptions(bucket_cap=2)),
        (2, VerdictOptions(lifetime=600, bucket_cap=2)),
        (3, VerdictOptions.paper()),
        (5, VerdictOptions(bucket_cap=4, compared=3)),
    ],
)
def test_rule_25_verdicts_do_not_depend_on_probers(
    tmp_path: Path, probers: int, options: VerdictOptions
) -> None:
    members = {"": probers, "b": max(1, probers - 1)} if probers else {}
    seen = check(tmp_path / "run", crawl(17, 450, dense=True, skew=0.4), options, members)
    if probers:
        assert all(seen[each] for each in ("dropped", "stale", "lost", "awaited", "divided")), seen


@pytest.mark.parametrize("options", [VerdictOptions(compared=0, bucket_cap=4), VerdictOptions.paper()])
def test_nor_where_answers_end_early(
    tmp_path: Path, options: VerdictOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answering, "MOST_ENTRIES", 1)
    monkeypatch.setattr(tables, "MOST_SEARCHED_ROWS", 2)
    pages = crawl(17, 450, dense=True, skew=0.4)
    seen = check(tmp_path / "run", pages, options, {"": 2, "b": 1})
    assert all(seen[each] for each in ("dropped", "stale", "lost")), seen
    assert seen["ended early"] > 20, seen


def test_nor_where_lists_are_cut(tmp_path: Path) -> None:
    pages = [replace(page, url=f"http://host/{at * 7 % 60}") for at, page in enumerate(crowd(5, 500))]
    seen = check(tmp_path / "run", pages, VerdictOptions(compared=1), {"": 2})
    assert seen["cut"] > 5, seen


SEEN = ("dropped", "taken back", "forgotten", "withdrawn", "ledger records", "stale", "lost", "divided")


def test_nor_where_pages_are_forgotten_and_expire_and_few_deaths_are_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deaths, "MOST_DEATHS", 8)
    options = VerdictOptions(lifetime=600, bucket_cap=2, compared=3)
    pages = crawl(4, 400, dense=False, skew=0.4)
    seen = check(tmp_path / "run", pages, options, {"": 2, "b": 1}, 4, forgets=True)
    assert all(seen[each] for each in SEEN), seen


def test_nor_where_more_expire_at_once_than_are_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted, lost = list[int](), list[int]()

    class Watched(deaths.Deaths):
        def note(self, numbers: I64, words: U64, skipped: U64) -> None:
            noted.append(len(numbers))
            super().note(numbers, words, skipped)

        def lose(self) -> None:
            lost.append(1)
            super().lose()

    monkeypatch.setattr(deaths, "MOST_DEATHS", 8)
    monkeypatch.setattr(probed_module, "Deaths", Watched)
    options = VerdictOptions(lifetime=600, bucket_cap=2)
    seen = check(tmp_path / "run", crawl(9, 450, dense=False, skew=0.4), options, {"": 2})
    assert seen["dropped"], seen
    assert lost
    assert max(noted) <= 8
