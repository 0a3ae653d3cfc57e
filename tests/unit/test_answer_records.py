"""Answers of segments on the wire: what is encoded is decoded, and all else is refused by name."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from stream.errors import RecordError, RecordVersionError
from stream.judge.ids import INDEX_BITS, pack
from stream.judge.segments.answer import Answer, BucketCounts, ListedPairs, Run, Segment
from stream.judge.segments.answer_records import SentAnswer, decode_answer, decode_heading, encode_answer
from stream.messages.varints import decode_varints, encode_varints
from tests.answers import random_answer, sent

NAME = "candidates partition 3, offset 7"


def equal(one: SentAnswer, other: SentAnswer) -> bool:
    answers = [
        (each.segment, each.run, each.decided, each.most, *each.pairs, each.cut, *each.counts)
        for each in (one.answer, other.answer)
    ]
    for left, right in zip(*answers, strict=True):
        np.testing.assert_array_equal(left, right)
        assert getattr(left, "dtype", None) == getattr(right, "dtype", None)
    return one[1:] == other[1:]


@pytest.mark.parametrize("seed", range(60))
def test_what_is_encoded_is_decoded(seed: int) -> None:
    answer = sent(random_answer(random.Random(seed)))
    value = encode_answer(answer)
    assert equal(decode_answer(value, NAME), answer)
    heading = decode_heading(value, NAME)
    assert heading == (
        answer.journal, answer.group, answer.holder, answer.digest, answer.answer.segment, answer.answer.run
    )  # fmt: skip


def test_the_largest_numbers_are_decoded() -> None:
    segment, run = Segment((1 << 62) - (1 << 48), 1 << 62), Run((1 << 47) - 1, 1 << 47)
    page = np.array([pack(run.start, 0), pack(run.start, 65_535)], np.int64)
    near = np.array([128, 0], np.uint8)
    pairs = ListedPairs(
        page, np.array([segment.first, segment.end - 1]), near, near + 100, np.array([-1, 10_000]), near > 0
    )
    counts = BucketCounts(page, np.array([0, 65_535]), np.array([1 << 48, 1]))
    largest = np.iinfo(np.int64).max
    answer = sent(Answer(segment, run, int(largest), int(largest), pairs, np.zeros(0, np.int64), counts))
    assert equal(decode_answer(encode_answer(answer), NAME), answer)


def test_a_row_takes_few_bytes() -> None:
    """Of a page with two candidates in a segment of 2**24 anchors, and anchors in eight of its buckets."""
    rng, rows = np.random.default_rng(0), 2_000
    page = np.repeat(pack(900, 0) + (np.arange(rows) // 100 << INDEX_BITS) + np.arange(rows) % 100, 2)
    anchor = np.sort(rng.choice(1 << 24, (rows, 2)), axis=1).ravel()
    near, like = rng.integers(0, 60, 2 * rows).astype(np.uint8), rng.integers(0, 10_001, 2 * rows)
    counted = np.repeat(page[::2], 8), np.tile(np.arange(0, 40, 5), rows), rng.integers(1, 100, 8 * rows)
    pairs = ListedPairs(page, anchor, near, near, like, like > 8000)
    cut = np.zeros(0, np.int64)
    answer = Answer(Segment(0, 1 << 24), Run(900, 921), 5, 2, pairs, cut, BucketCounts(*counted))
    assert len(encode_answer(sent(answer))) <= 40 * rows


WHOLE: Any = msgspec.msgpack.decode(encode_answer(sent(random_answer(random.Random(1), pages=5))))


def column(place: int, data: bytes) -> dict[str, Any]:
    columns = list(WHOLE["columns"])
    columns[place] = data
    return {"columns": columns}


def varints(*numbers: int) -> bytes:
    return encode_varints(np.array(numbers, np.int64))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"journal": "0"}, r"matching regex .* at `\$.journal`"),
        ({"scheme": ""}, r"at `\$.scheme`"),
        ({"group": "B"}, r"at `\$.group`"),
        ({"holder": ""}, r"at `\$.holder`"),
        ({"digest": bytes(15)}, r"length >= 16 - at `\$.digest`"),
        ({"segment": [7, 7]}, r"is of anchors \[7, 7\), which no segment has"),
        ({"segment": [0, (1 << 48) + 1]}, "which no segment has"),
        ({"segment": [-1, 5]}, "which no segment has"),
        ({"run": [7, 7]}, r"is about journal records \[7, 7\), which no journal has"),
        ({"run": [-1, 5]}, "which no journal has"),
        ({"run": [0, (1 << 47) + 1]}, "which no journal has"),
        ({"run": [0, 1 << 47, 0, 1]}, "which no journal has"),
        ({"run": [0, 5, 0, 1 << 16]}, "which no journal has"),
        ({"run": [0, 5, -1, 0]}, "which no journal has"),
        ({"run": [5, 5, 3, 3]}, r"is about journal pages \[5.3, 5.3\), which no journal has"),
        ({"run": [5, 4, 0, 3]}, "which no journal has"),
        ({"decided": -1}, r"at `\$.decided`"),
        ({"most": 0}, r"at `\$.most`"),
        ({"columns": WHOLE["columns"][:11]}, "length 12, got 11"),
        ({"columns": [*WHOLE["columns"], b""]}, "length 12, got 13"),
        (column(0, b"\x80"), "records ends within a number"),
        (column(0, b"\x80\x00"), "records has a number of more bytes than it needs"),
        (column(0, b"\xff" * 9 + b"\1"), "records has a number of more than 9 bytes"),
        (column(0, varints(*[(1 << 62)] * 5)), r"names a page beyond journal "),
        (column(1, varints(1)), "has 1 indexes instead of"),
        (column(1, varints(*[65_000] * 5)), "indexes are not below 65536"),
        (column(2, varints(0)), "has 1 pairs instead of 5"),
        (column(2, varints(*[1 << 60] * 5)), "has .* anchors instead of 5764607523034234880"),
        (column(3, varints(*[0] * 6)), "has 6 counts instead of 5"),
        (column(3, varints(*[0] * 5)), "has .* buckets instead of 0"),
        (column(4, b""), "has 0 cut instead of 1"),
        (column(5, b""), "has 0 anchors instead of"),
        (column(6, b""), "has 0 distances instead of"),
        (column(7, b""), "has .* distances instead of 0"),
        (column(8, b""), "has 0 similarities instead of"),
        (column(9, bytes(9)), "has 9 similar instead of"),
        (column(10, b""), "has 0 buckets instead of"),
        (column(11, b""), "has 0 sizes instead of"),
    ],
)
def test_what_is_no_answer_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(RecordError, match=f"^{NAME}: .*{message}"):
        decode_answer(msgspec.msgpack.encode(WHOLE | changes), NAME)


ONE_PAGE = sent(
    Answer(
        Segment(10, 20),
        Run(3, 5),
        0,
        1,
        ListedPairs(
            np.array([pack(3, 1)]),
            np.array([12]),
            np.zeros(1, np.uint8),
            np.zeros(1, np.uint8),
            np.array([9000]),
            np.ones(1, np.bool_),
        ),
        np.zeros(0, np.int64),
        BucketCounts(np.array([pack(3, 1)]), np.array([4]), np.array([7])),
    )
)


@pytest.mark.parametrize(
    ("place", "data", "message"),
    [
        (0, varints(2), r"names a page beyond journal records \[3, 5\)"),
        (1, varints(1 << 16), "indexes are not below 65536"),
        (5, varints(10), "anchors are not below 10"),
        (8, varints(10_002), "similarities are up to 10002, of at most 10001"),
        (10, varints(1 << 16), "buckets are not below 65536"),
        (11, varints(10), "sizes are up to 10, of at most 9"),
    ],
)
def test_a_number_beyond_its_range_is_refused(place: int, data: bytes, message: str) -> None:
    whole: Any = msgspec.msgpack.decode(encode_answer(ONE_PAGE))
    assert decode_answer(encode_answer(ONE_PAGE), NAME).answer.pairs.anchor == [12]
    whole["columns"][place] = data
    with pytest.raises(RecordError, match=f"^{NAME}: .*{message}"):
        decode_answer(msgspec.msgpack.encode(whole), NAME)


def test_a_page_of_which_nothing_is_said_is_refused() -> None:
    whole: Any = msgspec.msgpack.decode(encode_answer(ONE_PAGE))
    for place, data in ((2, b"\0"), (3, b"\0"), *((place, b"") for place in range(5, 12))):
        whole["columns"][place] = data
    with pytest.raises(RecordError, match="names a page of which it says nothing"):
        decode_answer(msgspec.msgpack.encode(whole), NAME)


def test_a_cut_list_that_is_too_short_is_refused() -> None:
    whole: Any = msgspec.msgpack.decode(encode_answer(ONE_PAGE))
    whole["columns"][4], whole["most"] = b"\x80", 2
    with pytest.raises(RecordError, match=f"^{NAME}: .* is cut for page 3.1, but does not list 2"):
        decode_answer(msgspec.msgpack.encode(whole), NAME)


@pytest.mark.parametrize("value", [None, b"", b"\xc0", msgspec.msgpack.encode(WHOLE)[:-1]])
def test_other_bytes_are_refused(value: bytes | None) -> None:
    with pytest.raises(RecordError, match=f"^{NAME}: "):
        decode_answer(value, NAME)


def test_another_version_is_refused_by_name() -> None:
    with pytest.raises(RecordVersionError, match=f"^{NAME}: has version 2, but this program reads version 1"):
        decode_answer(msgspec.msgpack.encode(WHOLE | {"version": 2}), NAME)


@pytest.mark.parametrize(
    "numbers", [[], [0], [127, 1, 0], [127, 128], [1, 70_000, 0, 300], [(1 << 63) - 1, 0, 1 << 56]]
)
def test_varints_are_those_of_protobuf(numbers: list[int]) -> None:
    data = bytearray()
    for number in numbers:
        left = number
        while left > 127:
            data.append(left & 127 | 128)
            left >>= 7
        data.append(left)
    column: NDArray[np.int64] = np.array(numbers, np.int64)
    assert encode_varints(column) == data
    np.testing.assert_array_equal(decode_varints(bytes(data)), column)


@pytest.mark.parametrize("numbers", [np.array([-1, 5]), np.array([1 << 63], np.uint64)])
def test_varints_have_no_negative_numbers(numbers: NDArray[np.int64]) -> None:
    with pytest.raises(ValueError, match="a number is negative"):
        encode_varints(numbers)


def test_varints_of_other_types_and_steps() -> None:
    for numbers in (np.arange(300, dtype=np.int32), np.arange(600)[::2], np.arange(9, dtype=np.uint8)):
        np.testing.assert_array_equal(decode_varints(encode_varints(numbers)), numbers)
