"""Decodes framed messages by their schemas: Avro, or JSON.

The process that reads messages has neither network nor credentials. It asks its parent for the schemas.
"""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from stream.errors import PageError
from stream.pages.outside.errors import FetchNeededError
from stream.pages.outside.recently_used import RecentlyUsed

KEPT: Final = 256
"""Schemas that a process caches, and ids without a usable schema."""
REFUSED_SECONDS: Final = 60.0
"""Seconds before an id that is unknown, or has an unusable schema, is asked for again."""
MAX_HEIGHT: Final = 100
"""Deepest nesting of types. fastavro recurses in C, without a limit."""
BYTE_VALUES: Final = 4
"""Values per encoded byte that a record may decode to. Nearly all values take at least one byte."""
MAX_FREE: Final = 10_000
"""Values that a record may decode to beyond BYTE_VALUES per byte."""
_BYTES: Final = {
    "null": 0,
    "boolean": 1,
    "int": 1,
    "long": 1,
    "float": 4,
    "double": 8,
    "bytes": 1,
    "string": 1,
}
"""Fewest encoded bytes of a value of each primitive type."""


class Registered(msgspec.Struct, frozen=True):
    """A registry's answer for a schema id: the schema, or the reason why it cannot be used."""

    kind: str = "AVRO"
    """AVRO or JSON."""
    text: str = ""
    references: list[str] = []
    """Texts of the schemas that it refers to, leaves first."""
    reason: str | None = None
    """Why its pages are rejected, `unknown_schema` or `unsupported_schema`; None if they are not."""
    detail: str = ""

    @classmethod
    def from_error(cls, error: PageError) -> Registered:
        """Return an answer by which all pages of this schema are rejected."""
        return cls(reason=error.reason, detail=error.detail)


class Schema(Protocol):
    """Decodes messages of one schema."""

    def fields(self, body: bytes) -> bytes | dict[str, Any]:
        """Return the page message in `body`, as JSON or as fields. Raises PageError."""
        ...


class Schemas:
    """A cache of schemas by id."""

    def __init__(self, ask: Callable[[int], Registered]) -> None:
        """`ask` fetches a schema; it may take long and raise UnavailableError."""
        self._ask = ask
        self._registered: RecentlyUsed[int, tuple[Registered, float]] = RecentlyUsed(KEPT)
        self._read: RecentlyUsed[int, Schema] = RecentlyUsed(KEPT)

    def schema(self, number: int) -> Schema:
        """Return the schema with that id. Raises FetchNeededError, PageError `unknown_schema` or
        `unsupported_schema`."""
        if cached := self._read.get(number):
            return cached
        registered, until = self._registered.get(number) or (None, 0.0)
        if registered is None or time.monotonic() > until:
            raise FetchNeededError(f"schema {number}", lambda: self._fetch(number))
        if registered.reason:
            raise PageError(registered.reason, registered.detail)
        try:
            read: Schema = (
                JsonSchema()
                if registered.kind == "JSON"
                else AvroSchema(registered.text, registered.references)
            )
        except PageError as error:
            self._registered.put(number, (Registered.from_error(error), until))
            raise
        self._read.put(number, read)
        return read

    def _fetch(self, number: int) -> None:
        registered = self._ask(number)
        self._registered.put(number, (registered, time.monotonic() + REFUSED_SECONDS))


class JsonSchema:
    """Passes JSON through: page messages are validated when they are parsed, whatever their schema."""

    def fields(self, body: bytes) -> bytes:
        """Return `body` unchanged."""
        return body


class AvroSchema:
    """Decodes Avro records by their writer's schema."""

    def __init__(self, text: str, references: list[str]) -> None:
        """`references` are the schemas that it refers to, leaves first. Raises PageError
        `unsupported_schema`."""
        import fastavro

        named: dict[str, Any] = {}
        try:
            for each in references:
                fastavro.parse_schema(msgspec.json.decode(each), named_schemas=named)
            self._parsed = fastavro.parse_schema(msgspec.json.decode(text), named_schemas=named)
            free = _SchemaMeasure(named).of(self._parsed).free
        except (PageError, MemoryError):
            raise
        except Exception as error:  # whatever fastavro raises, the schema is at fault
            raise PageError("unsupported_schema", f"Avro: {type(error).__name__}: {error}") from None
        if free > MAX_FREE:
            raise PageError("unsupported_schema", f"Avro: a record of {free} values that take no byte")

    def fields(self, body: bytes) -> dict[str, Any]:
        """Return the record's fields. Raises PageError `bad_avro`."""
        import fastavro

        rest = io.BytesIO(body)
        try:
            record = fastavro.schemaless_reader(rest, self._parsed, None)
        except MemoryError:
            raise
        except Exception as error:  # whatever fastavro raises, the record is at fault
            raise PageError("bad_avro", f"{type(error).__name__}: {error}") from None
        if rest.tell() != len(body):
            raise PageError("bad_avro", f"{len(body) - rest.tell()} bytes after the record")
        if not isinstance(record, dict):
            raise PageError("bad_avro", f"expected a record, not {type(record).__name__}")
        return record


class _Type(NamedTuple):
    free: int
    """Most values that a value of this type decodes to, beyond BYTE_VALUES for each byte that it takes."""
    height: int
    """Depth of nested types."""


class _SchemaMeasure:
    """Measures the types of a schema before anything is decoded by it.

    A decoder trusts lengths: an array of nulls, or of records of nulls, has as many items as its header
    claims, and these take no bytes. So a schema is refused if items of an array or map can outgrow their
    bytes. It is refused, too, if it contains itself, since only the message would bound its depth.
    """

    def __init__(self, named: dict[str, Any]) -> None:
        self._named = named
        self._types: dict[str, _Type] = {}
        self._open: set[str] = set()

    def of(self, schema: Any) -> _Type:
        """Measure a type. Raises PageError `unsupported_schema`."""
        measure = self._measure(schema)
        if measure.height > MAX_HEIGHT:
            raise PageError("unsupported_schema", f"Avro: types nested more than {MAX_HEIGHT} deep")
        return measure

    def _measure(self, schema: Any) -> _Type:
        if isinstance(schema, list):
            branches = [self.of(each) for each in schema]
            return _Type(max(each.free for each in branches) - BYTE_VALUES, _height(branches))
        if isinstance(schema, str):
            return (
                _Type(1 - BYTE_VALUES * _BYTES[schema], 1) if schema in _BYTES else self._measure_name(schema)
            )
        kind = schema["type"]
        if kind in ("array", "map"):
            item = self.of(schema["items" if kind == "array" else "values"])
            if item.free > (0 if kind == "array" else BYTE_VALUES):  # a map's key takes a byte
                raise PageError("unsupported_schema", f"Avro: an {kind} whose items may take no byte")
            return _Type(1 - BYTE_VALUES, _height([item]))
        if kind in ("record", "error"):
            return self._measure_name(schema["name"])
        return self._measure_unnamed(schema)

    def _measure_name(self, name: str) -> _Type:
        if name in self._open:
            raise PageError("unsupported_schema", f"Avro: {name[:200]} contains itself")
        if name not in self._types:
            self._open.add(name)
            schema = self._named[name]
            if schema["type"] in ("record", "error"):
                fields = [self.of(field["type"]) for field in schema["fields"]]
                self._types[name] = _Type(1 + sum(each.free for each in fields), _height(fields))
            else:
                self._types[name] = self._measure_unnamed(schema)
            self._open.discard(name)
        return self._types[name]

    def _measure_unnamed(self, schema: dict[str, Any]) -> _Type:
        """Measure a fixed, an enum, or a primitive type with properties."""
        kind = schema["type"]
        least = int(schema["size"]) if kind == "fixed" else 1 if kind == "enum" else _BYTES[kind]
        return _Type(1 - BYTE_VALUES * least, 1)


def _height(parts: list[_Type]) -> int:
    return 1 + max((each.height for each in parts), default=0)
