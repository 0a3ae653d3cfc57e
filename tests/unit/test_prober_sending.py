"""Answers that are too large are divided between journal records, or pages of one."""

from __future__ import annotations

import random

import numpy as np
import pytest

from stream.fingerprint.scheme import Scheme
from stream.judge.ids import pack
from stream.judge.segments.answer import Answer, BucketCounts, ListedPairs, Run, Segment
from stream.judge.segments.answer_records import decode_answer
from stream.messages.segments import SegmentRecord
from stream.messages.verdict_options import VerdictOptions
from stream.roles.prober import sending
from stream.roles.prober.sending import AnswerSender, AnswerTooLargeError
from stream.settings import load
from tests.genesis import genesis_of

GENESIS = genesis_of(Scheme(), VerdictOptions())
SEGMENT = SegmentRecord(
    journal=GENESIS.journal,
    scheme=GENESIS.scheme_id,
    first=0,
    end=1000,
    oldest=0,
    digest="ab" * 32,
    size=1,
    dead="cd" * 32,
    dead_size=1,
    decided=0,
    exported_at="2026-11-26T00:00:00Z",
)


def answer(seed: int, records: int) -> Answer:
    """An answer about some records, each of a few pages with lists, some of which are cut."""
    rng, pairs, cut, counts = random.Random(seed), [], [], []
    for offset in range(10, 10 + records):
        for page in (pack(offset, index) for index in range(rng.randrange(4))):
            listed = sorted(rng.sample(range(1000), rng.choice([0, 3, 5])))
            pairs += [(page, each, 3, 4, 9000) for each in listed]
            cut += [page] * (len(listed) == 5 and rng.random() < 0.5)
            counts += [(page, bucket, 7) for bucket in sorted(rng.sample(range(10), 2))]
    page, anchor, distance, rank, similarity = np.array(pairs, np.int64).reshape(-1, 5).T
    return Answer(
        Segment(0, 1000),
        Run(10, 10 + records),
        5,
        5,
        ListedPairs(
            page, anchor, distance.astype(np.uint8), rank.astype(np.uint8), similarity, similarity > 8000
        ),
        np.array(cut, np.int64),
        BucketCounts(*np.array(counts, np.int64).reshape(-1, 3).T),
    )


@pytest.fixture
def sender() -> AnswerSender:
    return AnswerSender(load(namespace="t"), GENESIS, "b", "a-holder")


@pytest.mark.parametrize("most", [270, 400, 1000, 1 << 20])
def test_the_parts_of_an_answer_are_the_whole(
    sender: AnswerSender, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "ANSWERS_BYTES", most)
    for seed in range(5):
        whole = answer(seed, records=37)
        values = sender.encode(SEGMENT, whole)
        assert all(len(each) <= most for each in values)
        parts = [decode_answer(each, "candidates").answer for each in values]
        assert (len(parts) > 1) == (most < 1 << 20)
        assert [part.run.first for part in parts[1:]] == [part.run.until for part in parts[:-1]]
        assert (parts[0].run.first, parts[-1].run.until) == (whole.run.first, whole.run.until)
        assert any(part.run.row for part in parts) == (most < 300), "divided between pages"
        assert {(part.segment, part.decided, part.most) for part in parts} == {(whole.segment, 5, 5)}
        np.testing.assert_array_equal(np.concatenate([part.cut for part in parts]), whole.cut)
        for kind in ("pairs", "counts"):
            for of_parts, column in zip(
                zip(*(getattr(part, kind) for part in parts), strict=True), getattr(whole, kind), strict=True
            ):
                np.testing.assert_array_equal(np.concatenate(of_parts), column)


def test_an_answer_about_one_page_is_refused_if_it_is_too_large(
    sender: AnswerSender, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "ANSWERS_BYTES", 20)
    with pytest.raises(
        AnswerTooLargeError, match=r"the answer of anchors \[0, 1000\) about .* of a page, more"
    ):
        sender.encode(SEGMENT, answer(1, records=3))
