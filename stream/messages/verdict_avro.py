"""Verdicts in Avro (`schemas/verdict.avsc`): the fields of the JSON, with times in milliseconds."""

from __future__ import annotations

import functools
import io
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec

from stream.contracts import contract
from stream.messages.verdict import VerdictRecord
from stream.pages.times import rfc3339

SCHEMA: Final = "verdict.avsc"
_OPTIONAL: Final = "nearest"
"""The field that is null in Avro where JSON does not have it."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


def to_avro(value: bytes) -> bytes:
    """Convert a verdict from JSON to Avro."""
    import fastavro

    fields = msgspec.json.decode(value)
    fields["decided_at"] = _milliseconds(fields["decided_at"])
    if fields["fetched_at"] is not None:
        fields["fetched_at"] = _milliseconds(fields["fetched_at"])
    out = io.BytesIO()
    fastavro.schemaless_writer(out, _schema(), fields)
    return out.getvalue()


def to_json(fields: Mapping[str, Any]) -> bytes:
    """Convert the decoded fields of an Avro verdict to JSON, byte for byte what `to_avro` was given.

    Raises msgspec.ValidationError if the fields are not those of a verdict.
    """
    times = {
        name: rfc3339((moment - _EPOCH) // _MILLISECOND)
        for name in ("fetched_at", "decided_at")
        if isinstance(moment := fields.get(name), datetime)
    }
    present = {name: value for name, value in fields.items() if value is not None or name != _OPTIONAL}
    return msgspec.json.encode(msgspec.convert({**present, **times}, VerdictRecord))


@functools.cache
def _schema() -> Any:
    import fastavro

    return fastavro.parse_schema(msgspec.json.decode(contract(SCHEMA)))


# All verdicts of a batch share one or a few values of `decided_at`.
@functools.lru_cache(maxsize=1024)
def _milliseconds(moment: str) -> int:
    return (datetime.fromisoformat(moment) - _EPOCH) // _MILLISECOND
