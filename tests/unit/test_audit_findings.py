"""What the audit compares: rows by pseudo-partition, verdicts that retention deleted, and its table."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from stream.cli.audit import FINDINGS, _show
from stream.messages.appends import APPEND_ROWS
from stream.messages.journal import LOAD_PARTITIONS
from stream.roles.auditor.audit import Findings, PageSource, _Holes, _JudgedOffsets, _NewestVersions
from stream.roles.auditor.audited import NO_LIMIT, PartitionPages, RowPages

GUIDE = Path(__file__).parents[2] / "docs" / "how-to" / "run-a-deployment.md"


def test_each_row_of_the_table_is_explained() -> None:
    guide = GUIDE.read_text("utf-8")
    assert [name for name in FINDINGS if f"| `{name}` |" not in guide] == []


HIDDEN = ["2 records from offset 7 of crawl.verdicts-0 are hidden"]


@pytest.mark.parametrize(
    ("found", "clean", "said"),
    [
        (Findings(), True, ["crawl has no pages"]),  # the name may be mistyped
        (Findings(pages=1, verdicts=Counter(unique=1)), True, ["every page has exactly one verdict"]),
        (
            Findings(pages=9, trimmed=4),
            True,
            ["every page has exactly one verdict that retention has not deleted"],
        ),
        (Findings(loaded=3), True, ["--rows DIRECTORY checks them too"]),
        (
            Findings(pages=9, hidden=2, hidden_by=HIDDEN),
            False,
            ["offset 7 of crawl.verdicts-0", "audit again"],
        ),
    ],
)
def test_what_was_found_is_told_and_praised_if_all_was_seen(
    found: Findings, clean: bool, said: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert (found.clean, found.faults) == (clean, 0)
    _show("crawl", found, None)
    out = capsys.readouterr().out
    assert [each for each in said if each not in out] == []
    assert ("every page" in out) == (said[0].startswith("every page"))


@pytest.mark.parametrize("rows", [0, 1, APPEND_ROWS, (LOAD_PARTITIONS + 1) * APPEND_ROWS + 7])
def test_rows_are_judged_up_to_the_offset_expected_in_their_pseudo_partition(rows: int) -> None:
    pages = RowPages("ab", rows)
    limits = {("ab", 0): LOAD_PARTITIONS * APPEND_ROWS + 5, ("ab", 1): APPEND_ROWS + 3, ("cd", 2): 10**9}
    expected = [n < limits.get(("ab", n // APPEND_ROWS % LOAD_PARTITIONS), 0) for n in range(rows)]
    assert pages.below(limits).tolist() == expected


def test_pages_of_a_partition_begin_at_its_log_start() -> None:
    pages = PartitionPages("ab", 1, 10, 14)
    for offset in (10, 11, 13, 14):
        pages.add(offset, 1_000 + offset, expected=11)
    assert pages.present.tolist() == [True, True, False, True]
    assert pages.below({("ab", 1): 12, ("ab", 0): 99}).tolist() == [True, True, False, False]
    assert pages.below({("ab", 1): 3}).tolist() == [False] * 4
    assert [pages.published_at(offset) for offset in (11, 12, 14)] == [1_011, 1_013, None]
    pages.verdicts[0] = 1
    pages.remove_without_verdict_below(12)
    assert np.flatnonzero(pages.present).tolist() == [0, 3]


@pytest.mark.parametrize(
    ("starts", "verdicts", "limit"),
    [
        ({0: 0, 1: 0}, {}, None),  # nothing was deleted: what has no verdict is missing
        ({0: 9, 1: 0}, {1: 4}, 4),  # while there was one partition, verdicts may have been there
        ({0: 0, 1: 9}, {1: 4}, 4),
        ({0: 0, 1: 9}, {}, NO_LIMIT),
        ({0: 0, 1: 9}, {0: 4}, NO_LIMIT),  # verdicts from before a partition was added
        ({0: 9, 1: 0}, {0: 4}, 4),
        ({0: 9, 1: 0}, {}, None),
    ],
)
def test_verdicts_may_have_been_deleted_below_the_first_that_is_left(
    starts: dict[int, int], verdicts: dict[int, int], limit: int | None
) -> None:
    """Of the pages of partition 1."""
    judged = _JudgedOffsets()
    for partition, offset in verdicts.items():
        for later in (2, 0, 1):
            judged.add(PageSource("pages", "ab", 1, offset + later), partition)
    assert judged.limits([("ab", 1)], starts) == ({} if limit is None else {("ab", 1): limit})


def test_verdicts_are_hidden_behind_the_last_that_is_visible() -> None:
    judged = _JudgedOffsets()
    judged.add(PageSource("pages", "ab", 1, 7), 1)
    keys = [("ab", partition) for partition in range(4)]
    assert judged.visible(keys, {1, 2}, 3) == {keys[0]: NO_LIMIT, keys[1]: 8, keys[2]: 0, keys[3]: NO_LIMIT}


def test_a_page_that_is_gone_is_explained_by_a_later_version_alone() -> None:
    """Or by having no value, or no key."""
    holes = _Holes()
    for offset, key, reason in (
        (3, b"was before", None),
        (4, b"comes later", None),
        (5, b"nowhere", None),
        (6, None, None),
        (7, b"deleted", "empty_message"),
        (2, b"deleted", None),
    ):
        verdict: Any = SimpleNamespace(source=SimpleNamespace(offset=offset), reason=reason)
        holes.add(verdict, key)
    newest = _NewestVersions(holes)
    for key, offset in ((b"was before", 1), (b"comes later", 9), (b"another", 9)):
        newest.add(key, offset)
    assert newest.explain(holes).tolist() == [False, True, False, True, True, True]
