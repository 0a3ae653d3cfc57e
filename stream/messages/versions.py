"""The version of a record, and the refusal of other ones by name."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

import msgspec

from stream.errors import RecordVersionError


class _VersionOnly(msgspec.Struct):
    """The part of a record that is the same in all versions."""

    version: int | None = None


class _JsonVersionOnly(msgspec.Struct):
    """The same of a record in JSON."""

    v: int


_DECODER: Final = msgspec.msgpack.Decoder(_VersionOnly)
_JSON_DECODER: Final = msgspec.json.Decoder(_JsonVersionOnly)


def version_of(value: bytes) -> int | None:
    """Return the version that a record says it has, if any. Raises msgspec.DecodeError for other bytes."""
    return _DECODER.decode(value).version


def refuse_other_version(value: bytes, version: int, where: str) -> None:
    """Raise RecordVersionError if a record says that it has another version than `version`."""
    with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        number = version_of(value)
        if number not in {None, version}:
            raise RecordVersionError(
                f"{where}: has version {number}, but this program reads version {version} only; create a new "
                f"namespace (`neardup topics create`) and publish the pages into it, or run the neardup that "
                f"wrote it"
            )


def refuse_other_json_version(value: bytes, version: int, where: str) -> None:
    """Raise RecordVersionError if a record in JSON says that it has another version than `version`."""
    with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        number = _JSON_DECODER.decode(value).v
        if number != version:
            raise RecordVersionError(
                f"{where}: has version {number}, but this program reads version {version} only; run the"
                " neardup that wrote it"
            )
