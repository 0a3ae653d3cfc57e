"""Answers of segments: those that decode are in their ranges and are the same when encoded again; others are
refused by name, and so are those that are not possible by a rule."""

from __future__ import annotations

import random
from contextlib import suppress
from typing import ClassVar

import numpy as np

from stream.errors import AnswerError, RecordError
from stream.fingerprint.scheme import Scheme
from stream.judge.rule import Rule
from stream.judge.segments import answer, answer_records, possible
from stream.judge.segments.answer import Answer
from stream.judge.segments.answer_records import BUCKETS, decode_answer, decode_heading, encode_answer
from stream.judge.segments.possible import PossibleAnswers
from stream.messages import varints
from stream.messages.verdict_options import VerdictOptions
from tests.answers import random_answer, sent
from tests.fuzz.decoder import Decoder
from tests.fuzz.mutate import damaged, packed

RECORDS = 64
OPTIONS = (VerdictOptions(compared=1), VerdictOptions.paper())
POSSIBLE = [PossibleAnswers(Rule(options, Scheme())) for options in OPTIONS]


class AnswerRecords(Decoder):
    """`decode_answer`."""

    name: ClassVar = "answers"
    modules: ClassVar = (answer_records, answer, varints, possible)

    def make(self, rng: random.Random) -> bytes:
        whole = encode_answer(sent(random_answer(random.Random(rng.randrange(RECORDS)))))
        data = packed(rng, whole, rng.choice((0, 1, 1, 1, 2)))
        return damaged(rng, data) if rng.random() < 0.2 else data

    def check(self, data: bytes) -> str:
        try:
            decoded = decode_answer(data, "here")
        except RecordError:
            return "refused"
        heading = decode_heading(data, "here")
        assert (heading.segment, heading.run) == (decoded.answer.segment, decoded.answer.run)
        again = decode_answer(encode_answer(decoded), "here")
        assert again[1:] == decoded[1:]
        for one, other in zip(_columns(again.answer), _columns(decoded.answer), strict=True):
            np.testing.assert_array_equal(one, other)
        pairs, counts = decoded.answer.pairs, decoded.answer.counts
        assert ((pairs.similarity >= -1) & (pairs.similarity <= 10_000)).all()
        assert ((counts.bucket >= 0) & (counts.bucket < BUCKETS) & (counts.size > 0)).all()
        for rule in POSSIBLE:
            with suppress(AnswerError):
                rule.refuse_others(decoded.answer)
        return "decoded"


def _columns(each: Answer) -> tuple[object, ...]:
    return each.segment, each.run, each.decided, each.most, *each.pairs, each.cut, *each.counts
