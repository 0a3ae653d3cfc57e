"""Avro: records of untrusted schemas."""

from __future__ import annotations

import io
import json
import random
from typing import Any, ClassVar

import fastavro

from stream.errors import PageError
from stream.pages.outside.schema import BYTE_VALUES, MAX_FREE, AvroSchema
from tests.fuzz.decoder import Decoder
from tests.fuzz.mutate import NUMBERS, changed, damaged

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
SEPARATOR = b"\n"


class Avro(Decoder):
    """`AvroSchema`: any schema, with any bytes. The size of the result is bounded by that of the input."""

    name: ClassVar = "avro"

    def make(self, rng: random.Random) -> bytes:
        names: list[str] = []
        written: Any = {"type": "record", "name": "Page", "fields": _fields(rng, 3, names)}
        if rng.random() < 0.3:
            written = changed(rng, written)
        body = _body(rng, written) if rng.random() < 0.7 else None
        body = rng.randbytes(rng.choice((0, 3, 40))) if body is None else body
        if rng.random() < 0.4:
            body = damaged(rng, body)
        return json.dumps(written, default=repr).encode() + SEPARATOR + body

    def check(self, data: bytes) -> str:
        text, _, body = data.partition(SEPARATOR)
        try:
            read = AvroSchema(text.decode("utf-8", "replace"), [])
        except PageError as error:
            return error.reason
        try:
            found = read.fields(body)
        except PageError as error:
            return error.reason
        assert _values(found) <= BYTE_VALUES * len(body) + 2 * MAX_FREE
        return "record"


def _fields(rng: random.Random, depth: int, names: list[str]) -> list[dict[str, Any]]:
    return [
        {"name": name, "type": _type(rng, depth, names)}
        for name in rng.sample(
            ("url", "text", "html", "body", "fetched_at", "quality", "x", "y"), rng.randrange(1, 5)
        )
    ]


def _type(rng: random.Random, depth: int, names: list[str]) -> Any:
    match rng.randrange(9 if depth else 3):
        case 3:
            return {"type": "array", "items": _type(rng, depth - 1, names)}
        case 4:
            return {"type": "map", "values": _type(rng, depth - 1, names)}
        case 5:
            return rng.sample(PRIMITIVES, 2)
        case 6:
            name = f"R{len(names)}"
            names.append(name)
            return {"type": "record", "name": name, "fields": _fields(rng, depth - 1, names)}
        case 7 if names:
            return rng.choice(names)  # itself, perhaps
        case 8:
            return {"type": "fixed", "name": f"F{rng.random()}".replace(".", ""), "size": rng.choice(NUMBERS)}
        case _:
            return rng.choice(PRIMITIVES)


def _body(rng: random.Random, written: Any) -> bytes | None:
    """A small record of the schema, or None if there is none."""
    try:
        parsed = fastavro.parse_schema(written)
        out = io.BytesIO()
        fastavro.schemaless_writer(out, parsed, _value(rng, written, 6))
    except Exception:  # a schema with a fault, or one that has no end
        return None
    return out.getvalue()


def _value(rng: random.Random, of: Any, depth: int) -> Any:
    if not depth:
        raise ValueError("too deep")
    if isinstance(of, list):
        return _value(rng, rng.choice(of), depth - 1)
    match of["type"] if isinstance(of, dict) else of:
        case "record":
            return {each["name"]: _value(rng, each["type"], depth - 1) for each in of["fields"]}
        case "array":
            return [_value(rng, of["items"], depth - 1) for _ in range(rng.randrange(4))]
        case "map":
            return {str(n): _value(rng, of["values"], depth - 1) for n in range(rng.randrange(4))}
        case "null":
            return None
        case "boolean":
            return rng.random() < 0.5
        case "int" | "long":
            return rng.randrange(-100, 1 << 31)
        case "float" | "double":
            return rng.random()
        case "bytes":
            return rng.randbytes(5)
        case "string":
            return "http://example.com/" + "港" * rng.randrange(4)
    raise ValueError("no small value")


def _values(found: Any) -> int:
    if isinstance(found, dict):
        return 1 + sum(map(_values, found.values()))
    if isinstance(found, list):
        return 1 + sum(map(_values, found))
    return 1
