"""The file that says which anchors of a segment are dead, as of a position in the decisions.

It is a msgpack map. It changes, so it stands beside the file of the segment; names of both are digests.
"""

from __future__ import annotations

from typing import Annotated, Final, NoReturn

import msgspec
import numpy as np
from numpy.typing import NDArray

from stream.errors import SegmentFileError
from stream.judge.segments.answer import Segment
from stream.messages.varints import decode_varints, encode_varints

VERSION: Final = 1


class _DeadFile(msgspec.Struct, frozen=True, kw_only=True):
    version: int = VERSION
    journal: str
    first: Annotated[int, msgspec.Meta(ge=0)]
    end: Annotated[int, msgspec.Meta(ge=0)]
    dead: bytes
    """The numbers, ascending, as varints: each less the one before and 1, the first less `first`."""


def encode_dead(journal: str, segment: Segment, dead: NDArray[np.int64]) -> bytes:
    """Encode the dead anchors of a segment, ascending by number."""
    steps = encode_varints(np.diff(dead, prepend=segment.first - 1) - 1)
    return _ENCODER.encode(_DeadFile(journal=journal, first=segment.first, end=segment.end, dead=steps))


def decode_dead(content: bytes, name: str, journal: str, segment: Segment) -> NDArray[np.int64]:
    """Return the dead anchors (k,) of a segment, ascending by number. `name` names the file in errors. Raises
    SegmentFileError for what is no such file, or one of another journal or segment."""

    def refuse(why: object) -> NoReturn:
        raise SegmentFileError(f"segment file {name}: {why}") from None

    try:
        version = _VERSION_DECODER.decode(content).version
        if version != VERSION:
            refuse(f"has version {version}; this program reads {VERSION}")
        file = _DECODER.decode(content)
        steps = decode_varints(file.dead)
    except (msgspec.DecodeError, ValueError) as error:
        refuse(f"it is not a list of dead anchors: {error}")
    if (file.journal, file.first, file.end) != (journal, *segment):
        refuse(
            f"is of journal {file.journal} and {Segment(file.first, file.end)}, not of journal {journal} and"
            f" {segment}"
        )
    size = segment.end - segment.first
    if len(steps) > size or (steps + 1.0).sum() > size:  # as floats, which do not wrap
        refuse(f"lists anchors beyond {segment}")
    return segment.first - 1 + np.cumsum(steps + 1)


class _VersionOnly(msgspec.Struct):
    version: int


_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(_DeadFile)
_VERSION_DECODER: Final = msgspec.msgpack.Decoder(_VersionOnly)
