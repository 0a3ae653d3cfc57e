"""Answers of segments, made at random."""

from __future__ import annotations

import random

import numpy as np
from numpy.typing import NDArray

from stream.judge.ids import pack
from stream.judge.segments.answer import Answer, BucketCounts, ListedPairs, Run, Segment
from stream.judge.segments.answer_records import DIGEST_BYTES, SentAnswer


def random_answer(rng: random.Random, pages: int | None = None) -> Answer:
    """An answer that names so many pages, by default a few or none."""
    first = rng.choice((0, 5, 1 << 24, 1 << 40))
    segment = Segment(first, first + rng.choice((1, 3, 100, 1 << 20)))
    start = rng.choice((0, 3, 1 << 30))
    run = Run(start, start + rng.choice((1, 2, 50)), *rng.choice(((0, 0), (0, 0), (3, 0), (0, 1 << 15))))
    most, strict = rng.randint(1, 5), rng.random() < 0.2
    records, indexes = range(run.start, run.end + 1), rng.choice((range(8), range(1 << 16)))
    count = rng.randrange(6) if pages is None else pages
    named = set[int]()
    while len(named) < count:
        if run.first <= (page_id := pack(rng.choice(records), rng.choice(indexes))) < run.until:
            named.add(page_id)
    page, anchor, cut, buckets = [], [], [], []
    for each in sorted(named):
        listed = sorted({rng.randrange(*segment) for _ in range(rng.randint(0, most))})
        counted = sorted({rng.randrange(130) for _ in range(rng.randrange(5) or not listed)})
        page += [each] * len(listed)
        anchor += listed
        buckets += [(each, bucket, rng.randint(1, segment.end - segment.first)) for bucket in counted]
        if len(listed) == most and rng.random() < 0.5:
            cut.append(each)
    similarity = _integers([-1 if strict else rng.randint(0, 10_000) for _ in page])
    pairs = ListedPairs(
        _integers(page),
        _integers(anchor),
        _bytes(rng, len(page), 129),
        _bytes(rng, len(page), 256),
        similarity,
        similarity > 8000,
    )
    counts = BucketCounts(*np.array(buckets, np.int64).reshape(-1, 3).T)
    return Answer(segment, run, rng.randrange(1 << 40), most, pairs, _integers(cut), counts)


def sent(answer: Answer) -> SentAnswer:
    """The answer of some prober."""
    return SentAnswer(answer, "0a" * 16, "1b" * 8, "b", "prober-b-1", bytes(range(DIGEST_BYTES)))


def _integers(numbers: list[int]) -> NDArray[np.int64]:
    return np.array(numbers, np.int64)


def _bytes(rng: random.Random, count: int, end: int) -> NDArray[np.uint8]:
    return np.array([rng.randrange(end) for _ in range(count)], np.uint8)
