"""The file of a segment: what its holder needs of its anchors, in columns that are mapped into memory.

`schemas/segment-files.md` describes its layout. It depends on the range alone, but for pages that are gone:
of an anchor that had expired or was forgotten there are zeros, and it is in no bucket.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple, NoReturn, Self, cast

import numpy as np
from numpy.typing import NDArray

from stream.errors import SegmentFileError
from stream.fingerprint.lanes import words_of
from stream.judge.segments.answer import Segment
from stream.judge.state.baselines import Anchors
from stream.judge.state.page_log import LoggedPages
from stream.messages.journal import Genesis
from stream.tables.arrays import distinct

VERSION: Final = 1
MAGIC: Final = b"nearsegm"
ALIGNMENT: Final = 64
"""Columns begin at multiples of so many bytes, a line of a processor's cache."""
MOST_ANCHORS: Final = 1 << 40
"""A file that says it has more is refused."""
_HEADER: Final = np.dtype(
    {
        "names": ("magic", "version", "width", "sketch", "journal", "scheme", "options", "first", "end"),
        "formats": ("S8", "<u4", "<u4", "<u4", "V16", "V8", "V8", "<u8", "<u8"),
        "offsets": (0, 8, 12, 16, 24, 40, 48, 56, 64),
        "itemsize": 128,
    }
)


class Origin(NamedTuple):
    """What a segment belongs to: all on which the tables of its anchors depend."""

    journal: str
    """UUID, 32 hex digits."""
    scheme: str
    """Id of the scheme, 16 hex digits."""
    options: str
    """Id of the verdict options, 16 hex digits."""
    width: int
    """Bits of a fingerprint."""
    sketch_bytes: int

    @classmethod
    def of(cls, genesis: Genesis) -> Self:
        """That of the anchors of a journal."""
        scheme = genesis.scheme
        return cls(genesis.journal, genesis.scheme_id, genesis.options.id, scheme.width, scheme.sketch_bytes)


class AnchorColumns(NamedTuple):
    """What a holder needs of n anchors."""

    fingerprint: NDArray[np.uint64]
    """(n, lanes)"""
    skipped: NDArray[np.uint64]
    """(n,): masks of the buckets that they did not enter, and of the triples that they did."""
    sketch: NDArray[np.uint64]
    """(n, sketch_bytes / 8)"""


class SegmentFile:
    """The file of a segment, mapped into memory: an `AnchorReader` of its anchors."""

    def __init__(self, path: Path, origin: Origin) -> None:
        """Open a file. Raises SegmentFileError unless it is whole and of this origin, and OSError."""
        content = np.memmap(path, np.uint8, "r") if path.stat().st_size else np.zeros(0, np.uint8)

        def refuse(why: str) -> NoReturn:
            raise SegmentFileError(f"segment file {path}: {why}")

        if len(content) < _HEADER.itemsize or bytes(content[: len(MAGIC)]) != MAGIC:
            refuse("it is not the file of a segment")
        header = content[: _HEADER.itemsize].view(_HEADER)[0]
        if header["version"] != VERSION:
            refuse(f"has version {header['version']}; this program reads {VERSION}")
        other = _origin_of(header)
        for name, is_, wanted in zip(Origin._fields, other, origin, strict=True):
            if is_ != wanted:
                refuse(f"is of {name} {is_}, not {wanted}")
        first, end = int(header["first"]), int(header["end"])
        if not first < end <= first + MOST_ANCHORS or end >= 1 << 62:
            refuse(f"has the anchors [{first}, {end})")
        self.segment: Final = Segment(first, end)
        places = _Places.of(origin, end - first)
        if len(content) != places.end:
            refuse(f"has {len(content)} bytes instead of {places.end}")
        self.columns: Final = AnchorColumns._make(
            np.asarray(content[start : start + 8 * count * words]).view("<u8").reshape(shape)
            for start, count, words, shape in places.columns()
        )
        """Read-only."""

    def anchors(self, numbers: NDArray[np.int64]) -> Anchors:
        """Return the records of the distinct anchors among `numbers`, without pages and URLs. Raises
        IndexError for an anchor of another segment."""
        numbers = distinct(numbers)
        of = numbers - self.segment.first
        if len(of) and of[0] < 0:
            raise IndexError(f"anchor {numbers[0]} is before {self.segment}")
        fingerprint, skipped, sketch = (column[of] for column in self.columns)
        return Anchors(numbers, numbers, fingerprint, skipped, sketch, cast(LoggedPages, None))


def write_segment_file(path: Path, origin: Origin, segment: Segment, parts: Iterable[AnchorColumns]) -> None:
    """Write a file that does not exist, of the anchors of a segment in order, in parts. Raises ValueError
    unless they are as many, and OSError."""
    places = _Places.of(origin, segment.end - segment.first)
    header = np.zeros(1, _HEADER)
    for name, value in (
        ("magic", MAGIC),
        ("version", VERSION),
        ("width", origin.width),
        ("sketch", origin.sketch_bytes),
        *((name, bytes.fromhex(getattr(origin, name))) for name in ("journal", "scheme", "options")),
        *zip(("first", "end"), segment, strict=True),
    ):
        header[name] = value
    written = 0
    with path.open("xb") as file:
        file.write(header.tobytes())
        for part in parts:
            for column, (start, _, words, _) in zip(part, places.columns(), strict=True):
                file.seek(start + 8 * words * written)
                file.write(np.ascontiguousarray(column, "<u8").data)
            written += len(part.skipped)
        file.truncate(places.end)
    if written != segment.end - segment.first:
        raise ValueError(f"{written} anchors instead of {segment.end - segment.first}")


class _Places(NamedTuple):
    """Where the columns of n anchors begin."""

    anchors: int
    lanes: int
    of_sketch: int
    """Words of a sketch."""
    skipped: int
    sketch: int
    end: int

    @classmethod
    def of(cls, origin: Origin, anchors: int) -> Self:
        lanes, of_sketch = words_of(origin.width), origin.sketch_bytes // 8
        skipped = _aligned(_HEADER.itemsize + 8 * anchors * lanes)
        sketch = _aligned(skipped + 8 * anchors)
        return cls(anchors, lanes, of_sketch, skipped, sketch, _aligned(sketch + 8 * anchors * of_sketch))

    def columns(self) -> list[tuple[int, int, int, tuple[int, ...]]]:
        """Of each column where it begins, the number of anchors, the words of each, and its shape."""
        n = self.anchors
        return [
            (_HEADER.itemsize, n, self.lanes, (n, self.lanes)),
            (self.skipped, n, 1, (n,)),
            (self.sketch, n, self.of_sketch, (n, self.of_sketch)),
        ]


def _aligned(place: int) -> int:
    return -(-place // ALIGNMENT) * ALIGNMENT


def _origin_of(header: np.void) -> Origin:
    journal, scheme, options = (header[name].tobytes().hex() for name in ("journal", "scheme", "options"))
    return Origin(journal, scheme, options, int(header["width"]), int(header["sketch"]))
