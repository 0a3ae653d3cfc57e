"""The judge, batch by batch with tables, against the oracle, page by page without, in all circumstances."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from msgspec import structs

from stream.errors import StateError
from stream.judge.ids import INDEX_BITS
from stream.judge.judge import Judge
from stream.judge.state.live import live_anchors
from stream.messages.decision import NO_LONGER_LIVE
from stream.messages.verdict import Verdict
from stream.messages.verdict_options import VerdictOptions
from tests.covering import covering_array
from tests.judged_crawls import crawl, entries_of, judging, open_state
from tests.property.dimensions import DIMENSIONS, FORBIDDEN, Combination
from tests.property.judged_crawl import JudgedCrawl

BY_DAY, BY_NIGHT = 170, 360
"""Pages that are judged."""
PAIRS = covering_array(DIMENSIONS, 2, FORBIDDEN)
"""Each pair of values of two dimensions."""
PARTS = 30
"""Parts of the combinations with each three values of three dimensions, which nights take."""


def check(names: dict[str, str], pages: int, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    judged = JudgedCrawl(Combination(names, pages), path, monkeypatch)
    try:
        judged.run()
        judged.check_states()
        judged.check_judged_at_once()
    finally:
        judged.close()
    assert len(live_anchors(path / "leader").fingerprints) == len(judged.oracle.live)
    judged.check_circumstances()


@pytest.mark.parametrize("names", [pytest.param(each, id="/".join(each.values())) for each in PAIRS])
def test_verdicts_and_states_equal_the_oracles(
    names: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check(names, BY_DAY, tmp_path, monkeypatch)


@pytest.mark.night
@pytest.mark.parametrize("part", range(PARTS))
def test_verdicts_and_states_equal_the_oracles_for_any_three_values(part: int, tmp_path: Path) -> None:
    for number, names in enumerate(covering_array(DIMENSIONS, 3, FORBIDDEN)[part::PARTS]):
        with pytest.MonkeyPatch.context() as patch:
            try:
                check(names, BY_NIGHT, tmp_path / f"{number}", patch)
            except Exception as error:
                error.add_note(f"judged with {names}")
                raise


@pytest.mark.parametrize("late", [False, True])
def test_numbers_that_are_not_those_of_the_pages_are_refused(tmp_path: Path, late: bool) -> None:
    """Of pages of the same records every other number; of earlier ones those of no page."""
    entries = entries_of(crawl(22, 900, dense=True), 22)
    half, refused = len(entries) // 2, Counter[str]()
    with judging(tmp_path / "state", late=late) as judge:
        for part in (entries[:half], entries[half:]):
            record, first = judge.decide(part).record(), part[0].offset << INDEX_BITS
            pages_of = {"numbers": "other", "anchors": "clusters", "nearest_numbers": "nearest"}
            for name, named in pages_of.items():
                numbers = np.frombuffer(getattr(record, name), "<i8")
                pages = np.frombuffer(getattr(record, named), "<i8")
                for place in range(0, len(numbers), 3):
                    here = pages[place] >= first
                    for wrong in (numbers[place] + 1, numbers[place] - 1) if here else (-2, 1 << 40):
                        if wrong == NO_LONGER_LIVE and name == "anchors":
                            continue
                        changed = numbers.copy()
                        changed[place] = wrong
                        with pytest.raises(
                            StateError, match=f"names page {pages[place]} by the number {wrong}"
                        ):
                            judge.prepare(part, structs.replace(record, **{name: changed.tobytes()}))
                        refused[f"{name} {here}"] += 1
            judge.apply(part, record)
    assert len(refused) == 6, refused


def test_what_is_ahead_of_the_store_ends_with_the_judge(tmp_path: Path) -> None:
    """As after a refused transaction, nothing of the batch is in RocksDB, whatever was flushed meanwhile."""
    entries = entries_of(crawl(4, 600, dense=True), 4)
    half = len(entries) // 2
    states = [
        open_state(tmp_path / name, VerdictOptions(), memory=1 << 20, generation=64)
        for name in ("with", "without")
    ]
    for state, genesis in states:
        judge = Judge(state, genesis)
        judge.apply(entries[:half], judge.decide(entries[:half]).record(), 1)
    judge = Judge(*states[0])
    ahead = judge.decide(entries[half : half + 9])
    assert (ahead.verdicts.columns.verdict == Verdict.UNIQUE).any()
    judge.state.advance(judge.prepare(ahead.entries, ahead.record(), ahead.batch))
    judge.decide(entries[half + 9 :])
    judge.state.flush()
    for state, _ in states:
        state.close()
    again, plain = (
        open_state(tmp_path / name, VerdictOptions(), memory=1 << 20, generation=64)[0]
        for name in ("with", "without")
    )
    try:
        assert again.meta == plain.meta
        assert again.digest() == plain.digest()
    finally:
        again.close()
        plain.close()
