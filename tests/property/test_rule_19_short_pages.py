"""Rule 19: short pages are compared by the lists of their shingles."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from stream.fingerprint.parity import parity_sketch
from stream.fingerprint.scheme import Scheme
from stream.fingerprint.sketch import SketchPairs
from tests.judged_crawls import entries_of, judge_all, judging, packed_minima
from tests.oracle import OraclePage


@pytest.mark.parametrize(
    ("size", "counted", "listed"),
    [
        (9, True, True),
        (134, True, True),
        (141, True, True),
        (142, False, True),
        (336, False, True),
        (337, False, False),
    ],
)
def test_rule_19_short_pages_are_counted_up_to_141_shingles_and_listed_up_to_336(
    tmp_path: Path, size: int, *, counted: bool, listed: bool
) -> None:
    scheme, rng, cases = Scheme(), random.Random(size), 40
    pages, exact = [], []
    for case in range(cases):
        own = rng.sample(range(1 << 32), size)
        # Around J = 0.8, where a ninth of each set is not in the other; for 134 shingles also 0.7987.
        other = own[rng.choice([size // 9 - 1, size // 9, size // 9 + 1]) :]
        other += rng.sample(range(1 << 32), size - len(other))
        exact.append(len({*own} & {*other}) * 10_000 // len({*own} | {*other}))
        for name, shingles in (("first", own), ("second", other)):
            content = parity_sketch(np.array(sorted(shingles), np.uint32), scheme.sketch_bins)
            sketch = content + packed_minima([case + 1] * 30).to_bytes(64, "little")
            page = OraclePage(None, f"http://{name}/{case}", case << 40, sketch)
            pages.append(page)
    with judging(tmp_path / "state", scheme=scheme) as judge:
        verdicts = judge_all(judge, entries_of(pages, size, scheme), size)
        sketches = np.array([np.frombuffer(page.sketch, "<u8") for page in pages], np.uint64)
        of_first, of_second = np.arange(0, 2 * cases, 2), np.arange(1, 2 * cases, 2)
        pairs = SketchPairs(sketches, of_first, sketches, of_second)
        assert set(judge.rule.counted(pairs).tolist()) == {counted}
        assert set(judge.rule.least(pairs).tolist()) == {8000 if listed else 7980}
        similarities = judge.rule.similarities(pairs).tolist()
    if counted:
        assert similarities == exact
    elif listed:
        # Two shingles that differ may have one code, which makes a similarity too high only.
        assert all(similarity >= least for similarity, least in zip(similarities, exact, strict=True))
    least = 8000 if listed else 7980
    assert [verdict for _, verdict, *_ in verdicts[1::2]] == [
        "duplicate" if similarity >= least else "unique" for similarity in similarities
    ]
    assert {verdict for _, verdict, *_ in verdicts[1::2]} == {"duplicate", "unique"}
