"""What a schema of a registry makes of the bytes behind its id."""

from __future__ import annotations

import io
from typing import Any, Protocol

import msgspec

from stream.errors import PageError


class Schema(Protocol):
    """One schema."""

    def fields(self, body: bytes) -> bytes | dict[str, Any]:
        """The page message in `body`: its JSON, or its fields. Raises PageError."""
        ...


class JsonSchema:
    """The body is JSON as it stands: page messages are checked when they are read, whatever their schema."""

    def fields(self, body: bytes) -> bytes:
        """The JSON."""
        return body


class AvroSchema:
    """A record as its writer wrote it."""

    def __init__(self, text: str, references: list[str]) -> None:
        """`references`: what it names, leaves first. Raises PageError `unsupported_schema`."""
        import fastavro

        named: dict[str, Any] = {}
        try:
            for each in references:
                fastavro.parse_schema(msgspec.json.decode(each), named_schemas=named)
            self._parsed = fastavro.parse_schema(msgspec.json.decode(text), named_schemas=named)
        except (
            fastavro.schema.SchemaParseException,
            fastavro.schema.UnknownType,
            ValueError,
            KeyError,
        ) as error:
            raise PageError("unsupported_schema", f"Avro: {type(error).__name__}: {error}") from None

    def fields(self, body: bytes) -> dict[str, Any]:
        """The record's fields. Raises PageError `bad_avro`."""
        import fastavro

        rest = io.BytesIO(body)
        try:
            found = fastavro.schemaless_reader(rest, self._parsed, None)
        except (
            EOFError,
            ValueError,
            IndexError,
            OverflowError,
            KeyError,
            TypeError,
            RecursionError,
        ) as error:
            raise PageError("bad_avro", f"{type(error).__name__}: {error}") from None
        if rest.tell() != len(body):
            raise PageError("bad_avro", f"{len(body) - rest.tell()} bytes behind the record")
        if not isinstance(found, dict):
            raise PageError("bad_avro", f"a record is expected, not {type(found).__name__}")
        return found
