"""Refuses records of other versions by name."""

from __future__ import annotations

from contextlib import suppress

import msgspec

from stream.errors import RecordVersionError


class _VersionOnly(msgspec.Struct):
    """The part of a record that is the same in all versions."""

    version: int


def refuse_other_version(value: bytes, version: int, where: str) -> None:
    """Raise RecordVersionError if a record says that it has another version than `version`."""
    with suppress(msgspec.DecodeError):
        number = _DECODER.decode(value).version
        if number != version:
            raise RecordVersionError(
                f"{where}: has version {number}, but this program reads version {version} only; create a new "
                f"namespace (`neardup topics create`) and publish the pages into it, or run the neardup that "
                f"wrote it"
            )


_DECODER = msgspec.msgpack.Decoder(_VersionOnly)
