"""Announcements of segments: their schema, their partitions, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from jsonschema import Draft202012Validator, ValidationError

from stream.errors import RecordError, RecordVersionError
from stream.messages.segments import PARTITIONS, SegmentRecord, decode_segment, encode_segment, partition_of

SCHEMA = json.loads((Path(__file__).parents[2] / "schemas" / "segment.schema.json").read_text("utf-8"))
RECORD = SegmentRecord(
    journal="0a" * 16,
    scheme="1b" * 8,
    first=64,
    end=128,
    oldest=70,
    digest="2c" * 32,
    size=9000,
    dead="3d" * 32,
    dead_size=80,
    decided=7,
    exported_at="2026-01-02T03:04:06Z",
)
WHERE = "segments partition 1, offset 9"


def test_a_record_is_what_its_schema_says_and_is_decoded() -> None:
    value = encode_segment(RECORD)
    Draft202012Validator(SCHEMA).validate(json.loads(value))
    assert decode_segment(RECORD.key, value, WHERE) == RECORD
    assert (RECORD.key, RECORD.partition) == (b"64", 39)
    assert RECORD.object == f"{RECORD.journal}/segments/{RECORD.digest}"
    assert decode_segment(b"64", None, WHERE) == 64


@pytest.mark.parametrize("size", [16, 1 << 24])
def test_segments_take_turns_on_partitions(size: int) -> None:
    partitions = [partition_of(first, first + size) for first in range(0, 128 * size, size)]
    assert sorted(partitions[:64]) == list(range(PARTITIONS))
    assert partitions[64:] == partitions[:64]
    for few in range(2, 64):  # shared by two members, however these divide the partitions
        for of_one in ([each < 32 for each in partitions[:few]], [each % 2 for each in partitions[:few]]):
            assert abs(2 * sum(of_one) - few) <= 3


BEYOND: dict[str, object] = {
    "journal": "0A" * 16,
    "scheme": "1b",
    "first": -64,
    "end": 1 << 63,
    "oldest": -1,
    "digest": "2c" * 31,
    "size": 1.5,
    "dead": None,
    "dead_size": -1,
    "decided": 1 << 63,
    "exported_at": "2026-01-02",
}
"""What is out of its range in each field."""


def test_each_field_is_tried() -> None:
    assert {*BEYOND, "v"} == {*SegmentRecord.__struct_fields__}


@pytest.mark.parametrize("field", BEYOND)
def test_a_field_beyond_its_range_is_refused(field: str) -> None:
    fields = msgspec.to_builtins(RECORD) | {field: BEYOND[field]}
    with pytest.raises(ValidationError):
        Draft202012Validator(SCHEMA).validate(fields)
    with pytest.raises(RecordError, match=f"^{WHERE}: .*`\\$.{field}`"):
        decode_segment(RECORD.key, json.dumps(fields).encode(), WHERE)


@pytest.mark.parametrize(
    ("key", "changes"),
    [
        (b"65", {}),
        (b"64", {"end": 64}),
        (b"64", {"oldest": 63}),
        (b"64", {"oldest": 128}),
        (b"64", {"end": 65 + (1 << 48)}),
        (b"%d" % (1 << 62), {"first": 1 << 62, "oldest": 1 << 62, "end": 1 + (1 << 62)}),
    ],
)
def test_a_range_that_none_has_is_refused(key: bytes, changes: dict[str, int]) -> None:
    value = encode_segment(msgspec.structs.replace(RECORD, **changes))
    with pytest.raises(RecordError, match=f"^{WHERE}: has the key {key.decode()}, and is of anchors"):
        decode_segment(key, value, WHERE)


@pytest.mark.parametrize("key", [None, b"", b"-1", b"007", b" 7", b"x", b"\xff"])
def test_a_key_that_is_no_number_is_refused(key: bytes | None) -> None:
    for value in (None, encode_segment(RECORD)):
        with pytest.raises(RecordError, match=f"^{WHERE}: has the key .*, which is no number$"):
            decode_segment(key, value, WHERE)


def test_another_version_is_refused_by_name() -> None:
    value = json.dumps({"v": 2, "ranges": []}).encode()
    with pytest.raises(RecordVersionError, match="has version 2, but this program reads version 1 only"):
        decode_segment(b"0", value, WHERE)
