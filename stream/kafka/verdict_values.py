"""Values on the verdicts topic: JSON, or Avro behind the id of a schema (Confluent's framing).

Both may stand on one topic, where the setting was changed. Readers are given JSON and need know no other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import msgspec

from stream.contracts import contract
from stream.errors import PageError, RecordError, SettingsError
from stream.messages.verdict_avro import SCHEMA, to_avro, to_json
from stream.pages.outside.errors import WantedError
from stream.pages.outside.schema import Schema, Schemas
from stream.pages.outside.schema_registry import registry_of
from stream.pages.page import FRAME
from stream.settings import Settings

MAGIC: Final = b"\0"
"""First byte of what a schema explains; no JSON begins with it."""


class Record(Protocol):
    """A record as consumers give it."""

    topic: str
    partition: int
    offset: int
    value: bytes


@dataclass(slots=True)
class PlacedValue:
    """A record's value and where it stands."""

    topic: str
    partition: int
    offset: int
    value: bytes


class VerdictReader:
    """Makes JSON of the values of records, whatever they were written in."""

    def __init__(self, settings: Settings) -> None:
        """Asks nobody yet."""
        registry = registry_of(settings)
        self._schemas = Schemas(registry.schema) if registry else None

    def json(self, record: Record) -> bytes:
        """The verdict's JSON. A schema that is new is asked for once, which may take seconds.

        Raises RecordError for what is no verdict, and AwayError while the registry does not answer.
        """
        value = record.value
        return self._unframed(record) if value[:1] == MAGIC else value

    def _unframed(self, record: Record) -> bytes:
        number = int.from_bytes(record.value[1:FRAME], "big")
        where = f"{record.topic}[{record.partition}] offset {record.offset}"
        if self._schemas is None:
            raise RecordError(f"{where}: is of schema {number}, and no schema_registry_url is set")
        try:
            fields = _fetched(self._schemas, number).fields(record.value[FRAME:])
            return fields if isinstance(fields, bytes) else to_json(fields)
        except (PageError, msgspec.ValidationError) as error:
            raise RecordError(f"{where}: no verdict: {error}") from error


class AvroVerdicts:
    """Writes verdicts in Avro; `register` comes first."""

    def __init__(self, settings: Settings) -> None:
        """Raises SettingsError without a registry."""
        registry = registry_of(settings)
        if registry is None:
            raise SettingsError("verdict_format avro wants schema_registry_url")
        self._registry = registry
        self._frame = b""

    def register(self, topics: Sequence[str]) -> int:
        """The id of the schema, which is made known to the registry for the values of these topics.

        Raises AwayError while the registry does not answer, and RefusedError when it does not take it.
        """
        schema = contract(SCHEMA)
        number, *_ = [self._registry.register(f"{topic}-value", schema) for topic in topics]
        self._frame = MAGIC + number.to_bytes(FRAME - 1, "big")
        return number

    def values(self, values: Sequence[bytes]) -> list[bytes]:
        """The same verdicts, given as JSON."""
        return [self._frame + to_avro(value) for value in values]


def _fetched(schemas: Schemas, number: int) -> Schema:
    try:
        return schemas.schema(number)
    except WantedError as wanted:
        wanted.fetch()
        return schemas.schema(number)
