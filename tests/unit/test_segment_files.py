"""Files of segments: what is written is read again, and other files are refused by name."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from stream.errors import SegmentFileError
from stream.fingerprint.lanes import words_of
from stream.judge.segments.answer import Segment
from stream.judge.segments.dead_file import decode_dead, encode_dead
from stream.judge.segments.file import (
    ALIGNMENT,
    AnchorColumns,
    Origin,
    SegmentFile,
    write_segment_file,
)

ORIGIN = Origin("0a" * 16, "1b" * 8, "2c" * 8, 64, 56)
SEGMENT = Segment(96, 133)


def random_columns(origin: Origin, count: int, seed: int = 0) -> AnchorColumns:
    rng, most = np.random.default_rng(seed), 2**64 - 1
    shapes = ((count, words_of(origin.width)), (count,), (count, origin.sketch_bytes // 8))
    return AnchorColumns._make(rng.integers(0, most, shape, np.uint64, endpoint=True) for shape in shapes)


def parts_of(columns: AnchorColumns, cuts: list[int]) -> list[AnchorColumns]:
    return [
        AnchorColumns._make(column[start:end] for column in columns)
        for start, end in zip([0, *cuts], [*cuts, len(columns.skipped)], strict=True)
    ]


@pytest.mark.parametrize("width", [64, 128])
@pytest.mark.parametrize("sketch_bytes", [0, 8, 120])
@pytest.mark.parametrize("seed", range(3))
def test_what_is_written_is_read(tmp_path: Path, width: int, sketch_bytes: int, seed: int) -> None:
    rng = random.Random(seed)
    origin, count = ORIGIN._replace(width=width, sketch_bytes=sketch_bytes), rng.choice((1, 8, 37))
    segment, columns = Segment(seed << 40, (seed << 40) + count), random_columns(origin, count, seed)
    contents = []
    for number in range(2):  # however it is cut
        cuts = sorted(rng.randrange(count + 1) for _ in range(3))
        path = tmp_path / f"{number}"
        write_segment_file(path, origin, segment, parts_of(columns, cuts))
        contents.append(path.read_bytes())
    assert contents[0] == contents[1]
    file = SegmentFile(path, origin)
    assert file.segment == segment
    for one, other in zip(file.columns, columns, strict=True):
        np.testing.assert_array_equal(one, other)
        assert type(one) is np.ndarray
        assert one.ctypes.data % ALIGNMENT == 0
    some = np.array([segment.end - 1, segment.first, segment.end - 1])
    anchors = file.anchors(some)
    assert anchors.number.tolist() == sorted(set(some.tolist()))
    for one, other in zip((anchors.fingerprint, anchors.skipped, anchors.sketch), columns, strict=True):
        np.testing.assert_array_equal(one[anchors.places(some)], other[some - segment.first])


@pytest.fixture
def written(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    write_segment_file(path, ORIGIN, SEGMENT, [random_columns(ORIGIN, 37)])
    return path


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("journal", "0b" * 16),
        ("scheme", "00" * 8),
        ("options", "ff" * 8),
        ("width", 128),
        ("sketch_bytes", 48),
    ],
)
def test_the_file_of_another_origin_is_refused(written: Path, field: str, value: Any) -> None:
    wanted = ORIGIN._replace(**{field: value})
    with pytest.raises(SegmentFileError, match=f"^segment file {written}: is of {field} .*, not {value}$"):
        SegmentFile(written, wanted)


@pytest.mark.parametrize(
    ("place", "data", "message"),
    [
        (0, b"x", "it is not the file of a segment"),
        (8, b"\2", "has version 2; this program reads 1"),
        (64, bytes(8), r"has the anchors \[96, 0\)"),
        (56, b"\xff" * 8, r"has the anchors \["),
        (64, b"\xff" * 7, r"has the anchors \[96, "),
        (64, b"\x86", "has 2880 bytes instead of 2944"),
    ],
)
def test_a_damaged_header_is_refused(written: Path, place: int, data: bytes, message: str) -> None:
    content = bytearray(written.read_bytes())
    content[place : place + len(data)] = data
    written.write_bytes(content)
    with pytest.raises(SegmentFileError, match=f"^segment file {written}: {message}"):
        SegmentFile(written, ORIGIN)


@pytest.mark.parametrize("size", [0, 1, 127, 128, -1, 10_000])
def test_a_file_of_another_size_is_refused(written: Path, size: int) -> None:
    content = written.read_bytes()
    written.write_bytes((content + bytes(10_000))[: size if size >= 0 else len(content) + size])
    with pytest.raises(SegmentFileError, match=r"is not the file of a segment|bytes instead of"):
        SegmentFile(written, ORIGIN)


@pytest.mark.parametrize("number", [95, 133])
def test_an_anchor_of_another_segment_is_refused(written: Path, number: int) -> None:
    with pytest.raises(IndexError):
        SegmentFile(written, ORIGIN).anchors(np.array([100, number]))


@pytest.mark.parametrize("count", [36, 38])
def test_a_file_of_too_few_or_too_many_anchors_is_not_written(tmp_path: Path, count: int) -> None:
    with pytest.raises(ValueError, match=f"{count} anchors instead of 37"):
        write_segment_file(tmp_path / "file", ORIGIN, SEGMENT, [random_columns(ORIGIN, count)])


@pytest.mark.parametrize("dead", [[], [96], [132], [97, 98, 131], list(range(*SEGMENT))])
def test_dead_anchors_are_read_again(dead: list[int]) -> None:
    content = encode_dead(ORIGIN.journal, SEGMENT, np.array(dead, np.int64))
    assert decode_dead(content, "name", ORIGIN.journal, SEGMENT).tolist() == dead


DEAD = encode_dead(ORIGIN.journal, SEGMENT, np.array([96, 132]))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"version": 2}, "has version 2; this program reads 1"),
        ({"journal": "0b" * 16}, r"is of journal 0b.* and anchors \[96, 133\), not of journal 0a"),
        ({"end": 134}, r"is of journal 0a.* and anchors \[96, 134\), not of"),
        ({"dead": b"\0\x25"}, r"lists anchors beyond anchors \[96, 133\)"),
        ({"dead": b"\xff" * 8 + b"\x7f"}, "lists anchors beyond"),
        ({"dead": bytes(38)}, "lists anchors beyond"),
        ({"dead": b"\x80"}, "is not a list of dead anchors: ends within a number"),
        ({"dead": None}, r"is not a list of dead anchors: .*`\$.dead`"),
    ],
)
def test_another_list_of_the_dead_is_refused(changes: dict[str, object], message: str) -> None:
    content = msgspec.msgpack.encode(msgspec.msgpack.decode(DEAD) | changes)
    with pytest.raises(SegmentFileError, match=f"^segment file name: .*{message}"):
        decode_dead(content, "name", ORIGIN.journal, SEGMENT)


@pytest.mark.parametrize("content", [b"", b"\xc0", DEAD[:-1], DEAD + b"\0"])
def test_other_bytes_are_no_list_of_the_dead(content: bytes) -> None:
    with pytest.raises(SegmentFileError, match=r"^segment file name: it is not a list of dead anchors: "):
        decode_dead(content, "name", ORIGIN.journal, SEGMENT)
