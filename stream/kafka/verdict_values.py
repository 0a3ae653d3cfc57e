"""Values on the verdicts topic: JSON, or Avro with a schema id (Confluent's framing).

A topic may contain both if the setting was changed. Readers always get JSON.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from stream.contracts import contract
from stream.errors import PageError, RecordError, SettingsError
from stream.messages.verdict_avro import SCHEMA, to_avro, to_json
from stream.pages.outside.errors import FetchNeededError
from stream.pages.outside.schema import Schema, Schemas
from stream.pages.outside.schema_registry import registry_of
from stream.pages.page import FRAME
from stream.settings import Settings

MAGIC: Final = b"\0"
"""First byte of a value with a schema id. JSON never starts with it."""


class VerdictReader:
    """Converts the values of verdict records to JSON."""

    def __init__(self, settings: Settings) -> None:
        """Does not contact the registry yet."""
        registry = registry_of(settings)
        self._schemas = Schemas(registry.schema) if registry else None

    def json(self, record: Any) -> bytes:
        """Return a verdict, given as a consumed record, as JSON. An unknown schema is fetched once, which may
        take seconds.

        Raises RecordError if the record is not a verdict, and UnavailableError while the registry is
        unreachable.
        """
        value: bytes = record.value
        return self._decode(record) if value[:1] == MAGIC else value

    def _decode(self, record: Any) -> bytes:
        number = int.from_bytes(record.value[1:FRAME], "big")
        where = f"{record.topic}[{record.partition}] offset {record.offset}"
        if self._schemas is None:
            raise RecordError(f"{where}: has schema id {number}, but no schema_registry_url is set")
        try:
            fields = _schema(self._schemas, number).fields(record.value[FRAME:])
            return fields if isinstance(fields, bytes) else to_json(fields)
        except (PageError, msgspec.ValidationError) as error:
            raise RecordError(f"{where}: no verdict: {error}") from error


class AvroVerdicts:
    """Converts verdicts to Avro. Call `register` first."""

    def __init__(self, settings: Settings) -> None:
        """Raises SettingsError if no registry is configured."""
        registry = registry_of(settings)
        if registry is None:
            raise SettingsError("verdict_format avro requires schema_registry_url")
        self._registry = registry
        self._frame = b""

    def register(self, topics: Sequence[str]) -> int:
        """Register the schema for the values of these topics, and return its id.

        Raises UnavailableError while the registry is unreachable, and RefusedError if it refuses the schema.
        """
        schema = contract(SCHEMA)
        number, *_ = [self._registry.register(f"{topic}-value", schema) for topic in topics]
        self._frame = MAGIC + number.to_bytes(FRAME - 1, "big")
        return number

    def values(self, values: Sequence[bytes]) -> list[bytes]:
        """Convert verdicts from JSON to framed Avro."""
        return [self._frame + to_avro(value) for value in values]


def _schema(schemas: Schemas, number: int) -> Schema:
    try:
        return schemas.schema(number)
    except FetchNeededError as wanted:
        wanted.fetch()
        return schemas.schema(number)
