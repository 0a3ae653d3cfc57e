"""The columns of fingerprinted pages: the same on one machine, Spark and Ray.

Types are those that all of them support: `binary` where sizes are fixed, since `mapInArrow` of Spark refuses
FixedSizeBinary, and signed integers. docs/how-to/bring-a-corpus.md describes them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa
from pyarrow import compute

from stream.fingerprint.parity import LARGEST_SET, SIZE_BYTES
from stream.fingerprint.row import NO_DIGEST, NO_HASH, WORD, Row, Status, has_large_key, without_large_key
from stream.fingerprint.scheme import Scheme
from stream.messages.row_columns import COLUMNS, NUMBERS, U8, bounds_of

VERSION: Final = 5
TYPES: Final = {each.name: pa.type_for_alias(each.arrow) for each in COLUMNS if each.arrow}
"""Column -> Arrow type."""
_REQUIRED: Final = tuple(each.name for each in COLUMNS if each.arrow and not each.nullable)
_BOUNDS: Final = [
    (each.name, *bounds_of(each, dtype))
    for each, dtype in NUMBERS
    if each.arrow in ("int8", "int64", "float64")
]
"""Name of a column of numbers, its least and its largest."""
_LONGEST: Final = [
    (each.name, each.most) for each in COLUMNS if each.arrow == "string" and each.most is not None
]
"""Name of a column of strings, and the most characters."""
_SIZES: Final = [
    (each.name, each.widths) for each, dtype in NUMBERS if each.arrow == "binary" and dtype == U8
]
"""Name of a column of bytes, and its sizes. Those of fingerprints and sketches are the scheme's."""
_VERSION: Final = b"neardup.rows"
_SCHEME: Final = b"neardup.scheme"
_SEED: Final = b"neardup.seed_digest"
_LANGUAGE: Final = re.compile("([a-z]{2,3})?")
FIRST: Final = -(2**63)
"""Order of a page without an order key, before all others."""


class Place(NamedTuple):
    """Where a page stands in the order of a corpus. No two of its pages have the same."""

    order: int
    """The order key."""
    source: str
    """Name of the file or table that the page comes from."""
    position: int
    """Number of the page in that source."""


def schema(scheme: Scheme) -> pa.Schema:
    """The Arrow schema of rows, with the format version, scheme id and seed digest in its metadata."""
    fields = [pa.field(name, kind, nullable=name not in _REQUIRED) for name, kind in TYPES.items()]
    metadata = {_VERSION: b"%d" % VERSION, _SCHEME: scheme.id.encode(), _SEED: scheme.seed_digest.encode()}
    return pa.schema(fields, metadata)


def foreign(schema: pa.Schema, scheme_id: str) -> str | None:
    """Why a file with this schema has no rows of a scheme, or None. Engines drop the metadata; there the
    column `scheme` says it."""
    described = schema.metadata or {}
    if (version := described.get(_VERSION, b"%d" % VERSION)) != b"%d" % VERSION:
        return f"has format version {version.decode(errors='replace')}, this program reads {VERSION}"
    if (other := described.get(_SCHEME, scheme_id.encode())) != scheme_id.encode():
        return f"has scheme {other.decode(errors='replace')}, not {scheme_id}"
    for name, kind in TYPES.items():
        place = schema.get_field_index(name)
        if place < 0:
            return f"has no column `{name}`"
        if schema.field(place).type != kind:
            return f"column `{name}` is {schema.field(place).type}, not {kind}"
    return None


def batch_of(
    scheme: Scheme,
    rows: Sequence[Row],
    places: Sequence[Place],
    keys: Sequence[bytes | None],
) -> pa.RecordBatch:
    """Rows as columns. `keys` are the message keys, of which one that is too large rejects its page, as in a
    stream."""
    rows = list(map(without_large_key, rows, keys))
    size = scheme.width // 8
    columns: dict[str, list[Any]] = {
        "order": [each.order for each in places],
        "source": [each.source for each in places],
        "position": [each.position for each in places],
        "url_digest": [row.url_digest if any(row.url_digest) else None for row in rows],
        "key": [None if has_large_key(key) else key for key in keys],
        "fingerprint": [row.fingerprint.to_bytes(size, "big") if row.ready else None for row in rows],
        "sketch": [row.sketch or None for row in rows],
        "text_hash": [row.text_hash if any(row.text_hash) else None for row in rows],
        "quality": [None if row.quality_ignored else row.quality for row in rows],
        "scheme": [scheme.id] * len(rows),
    }
    for name in TYPES.keys() - columns.keys():
        columns[name] = list(map(attrgetter(name), rows))
    arrays = [pa.array(columns[name], kind) for name, kind in TYPES.items()]
    return pa.record_batch(arrays, schema=schema(scheme))


class PlacedRow(NamedTuple):
    """A row, its place in the corpus, and its message key."""

    place: Place
    row: Row
    key: bytes | None


def rows_of(batch: pa.RecordBatch, scheme: Scheme) -> list[PlacedRow]:
    """The rows in columns. Raises ValueError for values that no fingerprinter of the scheme makes."""
    refuse_nulls(batch)
    for other in compute.unique(batch.column("scheme")).to_pylist():
        if other != scheme.id:
            raise ValueError(f"scheme {other}, not {scheme.id}")
    cells: dict[str, list[Any]] = {name: batch.column(name).to_pylist() for name in TYPES}
    places = list(map(Place, cells["order"], cells["source"], cells["position"]))
    _refuse_unbounded(cells, places)
    rows = _rows(cells)
    result = []
    for place, row, key, fingerprint in zip(places, rows, cells["key"], cells["fingerprint"], strict=True):
        if wrong := _wrong(row, fingerprint, scheme):
            raise ValueError(f"{place}: {wrong}")
        # Other programs write rows, too.
        kept = None if has_large_key(key) else key
        result.append(PlacedRow(place, without_large_key(row, key), kept))
    return result


def refuse_nulls(columns: pa.RecordBatch | pa.Table) -> None:
    """Raise ValueError if one of these columns, all or some of TYPES, lacks a value that every row has: to an
    engine all columns are nullable."""
    for name in _REQUIRED:
        if name in columns.column_names and columns.column(name).null_count:
            raise ValueError(f"column `{name}` has nulls")


def _rows(cells: dict[str, list[Any]]) -> Iterable[Row]:
    """The rows of cells. A column that is not mentioned has the values of the field of its name."""
    numbers = [int.from_bytes(each or b"", "big") for each in cells["fingerprint"]]
    values = cells | {
        "low": [number & (1 << WORD) - 1 for number in numbers],
        "high": [number >> WORD for number in numbers],
        "url_digest": [each or NO_DIGEST for each in cells["url_digest"]],
        "sketch": [each or b"" for each in cells["sketch"]],
        "text_hash": [each or NO_HASH for each in cells["text_hash"]],
        "share": [None] * len(numbers),
    }
    return map(Row, *(values[name] for name in Row.__struct_fields__))


def _wrong(row: Row, fingerprint: bytes | None, scheme: Scheme) -> str | None:
    """Why a row is not one that a fingerprinter makes. Compiled loops rely on these bounds."""
    if row.status not in Status._value2member_map_ or (row.reason is None) != (row.status != Status.REJECTED):
        return f"status {row.status} with reason {row.reason}"
    if row.ready and (len(fingerprint or b"") != scheme.width // 8 or len(row.sketch) != scheme.sketch_bytes):
        return "a fingerprint or sketch of another size than the scheme's"
    bins = scheme.sketch_bins // 8
    size = int.from_bytes(row.sketch[bins : bins + SIZE_BYTES], "little") if scheme.sketch == "parity" else 0
    if size > LARGEST_SET:
        return f"a sketch of {size} shingles"
    if not row.ready and (fingerprint or row.sketch):
        return "a fingerprint of a page that has none"
    if row.status != Status.REJECTED and (row.url is None or row.url_digest == NO_DIGEST):
        return "no URL"
    if not _LANGUAGE.fullmatch(row.language):
        return f"language {row.language!r}"
    return None


def _refuse_unbounded(cells: dict[str, list[Any]], places: Sequence[Place]) -> None:
    """Raise ValueError if a value is out of the bounds of its column."""
    for name, least, most in _BOUNDS:
        for place, number in zip(places, cells[name], strict=True):
            if number is not None and not least <= number <= most:
                raise ValueError(f"{place}: {name} {number}")
    for name, longest in _LONGEST:
        for place, text in zip(places, cells[name], strict=True):
            if len(text or "") > longest:
                raise ValueError(f"{place}: a string longer than a page can have")
    for name, sizes in _SIZES:
        for place, data in zip(places, cells[name], strict=True):
            if data and len(data) not in sizes:
                raise ValueError(f"{place}: {name} of {len(data)} bytes")


def options_of(scheme: Scheme) -> dict[str, Any]:
    """The options of a scheme that are part of its id: without paths of files."""
    options = msgspec.structs.asdict(scheme)
    return {name: value for name, value in options.items() if name not in ("dictionary", "idf", "seed_file")}
