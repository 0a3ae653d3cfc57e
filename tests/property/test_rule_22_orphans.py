"""Rule 22: a page whose cluster has no live anchor any more is judged again when it is met again."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
from msgspec import structs

from stream.dashboard.lookup.lookup import _nearest, _verdict_now
from stream.errors import StateError
from stream.fingerprint.row import Row
from stream.judge.explain.stored_pages import StoredPages
from stream.messages.decision import JUDGED_AGAIN, NO_LONGER_LIVE, OF_ANOTHER_CLUSTER
from stream.messages.verdict_options import VerdictOptions
from stream.page_rows.page_fingerprinter import PageFingerprinter
from stream.roles.judge.watch import JudgeWatch
from tests.judged_crawls import (
    SCHEME,
    entries_of,
    expected,
    judge_all,
    judging,
    mirrors,
    oracle_of,
    side,
)
from tests.oracle import OraclePage
from tests.url_digests import digest_of_url

A, B, C, D = (f"http://{name}.example/" for name in "abcd")


@pytest.mark.parametrize(
    ("pages", "want", "baselines"),
    [
        # The first copy that is met again becomes an anchor; further ones and new copies join it.
        ("A1 B1 C1 A2 B1 C1 D1 B1", "u0 d0 d0 u3 r4 r4 d4 r4", 2),
        # A cluster ends at the row that supersedes its anchor.
        ("A1 B1 B1 A2", "u0 d0 r0 u3", 2),
        ("A1 B1 A2 B1", "u0 d0 u2 r3", 2),
        # An orphan joins an anchor that it is like.
        ("A1 B1 A2 C1 B1 B1", "u0 d0 u2 u3 r3 r3", 2),
        # An orphan that became an anchor is superseded as any.
        ("A1 B1 C1 A2 B1 C1 B3 D1 C1", "u0 d0 d0 u3 r4 r4 u6 u7 r7", 2),
        # An older baseline is not judged again: what moved to another URL is found there (rule 20).
        ("A1 B1 B2 A3 B1 C1", "u0 d0 u2 u3 r0 u5", 2),
        # The page takes the place of the baseline: one that is like the baseline that was, and not like the
        # page in its place, is another page. Older baselines stay.
        ("B3 A1 B1 A2 Bx B3 By", "u0 u1 d1 u3 r4 u5 u6", 1),
        ("B3 A1 B1 A2 Bx B3 By", "u0 u1 d1 u3 r4 r0 u6", 2),
        # The last page is like both baselines that its URL had, but not like the page in place of the newer.
        ("Bx Ay By A2 Bz B1", "u0 u1 d1 u3 r4 r0", 2),
    ],
)
def test_rule_22_a_page_whose_cluster_has_ended_is_judged_again(
    tmp_path: Path, pages: str, want: str, baselines: int
) -> None:
    """Pages are a URL and a body each; verdicts are unique, duplicate or recrawl, with their clusters."""
    bodies = {
        "1": body(1), "2": body(2), "3": body(3), "x": body(1, edit=range(40)),
        "y": body(1, edit=range(40, 80)), "z": body(1, edit=range(40, 112)),
    }  # fmt: skip
    crawled = [at(f"http://{each[0].lower()}.example/", bodies[each[1]]) for each in pages.split()]
    found = verdicts(tmp_path, crawled, VerdictOptions(baselines=baselines))
    assert " ".join(each[0] + each.split()[1] for each in found) == want


def test_rule_22_decisions_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    text, other = body(1), body(2)
    pages = [at(A, text), at(B, text), at(C, text), at(A, other), at(B, text), at(C, text), at(C, text)]
    entries = entries_of(pages, 1, sizes=(7,))
    with judging(tmp_path / "state") as judge:
        decided = judge.decide(entries)
        right = decided.record()
        codes, own = bytearray(right.codes), pages[4].id
        assert [code & JUDGED_AGAIN > 0 for code in codes] == [False] * 4 + [True, True, False]
        watch = JudgeWatch()
        watch.note_batch(decided, gaps=0)
        for outcome in ("anchor", "member"):
            assert watch.metrics.orphans.labels(outcome)._value.get() == 1, outcome
        assert np.frombuffer(right.clusters, "<i8").tolist() == [own] * 3
        assert np.frombuffer(right.anchors, "<i8").tolist() == [2] * 3
        judge.prepare(entries, right)
        for row, flips in ((4, OF_ANOTHER_CLUSTER), (1, JUDGED_AGAIN), (3, JUDGED_AGAIN), (4, 1 << 3)):
            changed = bytearray(codes)
            changed[row] ^= flips
            with pytest.raises(StateError, match="a code that means nothing"):
                judge.prepare(entries, structs.replace(right, codes=bytes(changed)))
        for name, place, wrong, why in (
            ("anchors", 0, 0, f"row 4 names page {own} by the number 0"),
            ("anchors", 0, NO_LONGER_LIVE, f"row 4 names page {own} by the number -1"),
            ("anchors", 1, NO_LONGER_LIVE, f"row 5 names page {own} by the number -1"),
            ("clusters", 0, pages[5].id, f"row 6 names page {pages[5].id} by the number 2"),
            ("clusters", 2, pages[6].id, f"row 6 names page {pages[6].id} by the number 2"),
            ("clusters", 1, pages[2].id, f"row 5 names page {pages[2].id} by the number 2"),
        ):
            values = np.frombuffer(getattr(right, name), "<i8").copy()
            values[place] = wrong
            with pytest.raises(StateError, match=why):
                judge.prepare(entries, structs.replace(right, **{name: values.tobytes()}))


@pytest.mark.parametrize(
    "options",
    [
        VerdictOptions(),
        VerdictOptions(bucket_cap=2),
        VerdictOptions.paper(),
    ],
)
def test_rule_22_explain_says_which_cluster_an_orphan_would_join(
    tmp_path: Path, options: VerdictOptions
) -> None:
    pages = [page for page in mirrors(7, 700) if page.status == 0]
    stored, coming = pages[:400], pages[400:]
    with judging(tmp_path / "state", options) as judge:
        entries = entries_of(stored, 7)
        judge_all(judge, entries, 7)
    oracle = oracle_of(options)
    expected(oracle, stored)
    urls, joined = {page.id: page.url for page in stored}, []
    with StoredPages(tmp_path / "state", PageFingerprinter(SCHEME), options) as index:
        for page in coming:
            then = copy.deepcopy(oracle)
            then.orphans.clear()
            want = then.judge(page)
            pair = index.pair(side(page), side(page))
            assert pair.verdict == want.verdict
            assert pair.joins == (urls.get(want.cluster, page.url) if then.orphans else None)
            joined += [want.cluster in urls] if then.orphans else []
    assert set(joined) == {True, False}


def test_rule_22_a_look_up_says_which_cluster_an_orphan_would_join(tmp_path: Path) -> None:
    text, other = body(1), body(2)
    row = Row(0, B, None, digest_of_url(B), text.fingerprint, text.sketch)
    before = [at(A, text), at(B, text)]
    ends = [*before, at(A, other)]
    goes_on = [*ends, at(C, text)]
    found = []
    for name, pages in {"before": before, "ends": ends, "goes on": goes_on}.items():
        with judging(tmp_path / name) as judge:
            judge_all(judge, entries_of(pages, 1), 1)
            near, match, baseline, is_orphan = _nearest(judge, row, B)
        verdict, why = _verdict_now(near, match, baseline, is_orphan=is_orphan)
        assert verdict == "recrawl"
        found.append(why.rpartition("; ")[2])
    assert "similarity" in found[0]
    assert found[1:] == [
        "its cluster has no anchor any more, so it becomes an anchor",
        f"its cluster has no anchor any more, so it joins that of {C}",
    ]


def body(seed: int, *, edit: Iterable[int] = ()) -> OraclePage:
    """A body of its own, with these bins of its sketch edited."""
    rng = np.random.default_rng(seed)
    text, minima = (int.from_bytes(rng.bytes(size), "little") for size in (24, 64))
    text ^= sum(1 << each for each in edit)
    sketch = text | 900 << 192 | minima << 256
    fingerprint = int.from_bytes(rng.bytes(8), "little")
    return OraclePage(None, None, fingerprint, sketch.to_bytes(96, "little"))


def at(url: str, page: OraclePage) -> OraclePage:
    """The page at a URL."""
    return dataclasses.replace(page, url=url)


def verdicts(path: Path, pages: list[OraclePage], options: VerdictOptions) -> list[str]:
    """Verdict and cluster of each page, pages being numbered from 0: as the oracle has it, whether they are
    judged at once or in any two batches, or one by one."""
    entries = entries_of(pages, 1, sizes=(1,))
    number = {page.id: place for place, page in enumerate(pages)}
    want = expected(oracle_of(options), pages)
    for cut in range(1, len(entries)):
        with judging(path / f"{cut}", options) as judge:
            found = []
            for part in (entries[:cut], entries[cut:]):
                decided = judge.decide(part)
                found += decided.verdicts.columns.cluster.tolist()
                judge.apply(part, decided.record(), part[-1].offset)
        assert found == [each[3] for each in want], cut
    with judging(path / "one by one", options) as judge:
        assert judge_all(judge, entries, 1) == want
    return [f"{each[1]} {number[each[3]]}" for each in want]
