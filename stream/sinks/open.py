"""Opens the sink for the target of an export.

A new kind of target is a `Sink` in a file of its own, with a branch in `open_sink` here; one that
`neardup scan` writes is also in TABLES of `stream.local.scan_output`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from stream.errors import SettingsError
from stream.sinks import duckdb, parquet
from stream.sinks.base import Sink
from stream.sinks.duckdb import DuckSink
from stream.sinks.parquet import ParquetSink
from stream.sinks.postgres import UNREADABLE, PostgresSink

_CONNECTION: Final = re.compile(r"postgres(ql)?:|.*\bpassword\s*=", re.IGNORECASE | re.DOTALL)
"""Start of a connection string, which may contain a password and is never quoted in a message."""
_TARGETS: Final = "write NAME.duckdb, NAME.parquet (a directory), or postgresql://user@host/database"


def name_of(target: str) -> str:
    """Return the name of a target for messages: of a URL only the scheme, since it may contain a password."""
    scheme, separator, _ = target.partition("://")
    return scheme if separator else target


@contextmanager
def open_sink(target: str) -> Iterator[Sink]:
    """Open `postgresql://...`, a directory `*.parquet` or a DuckDB file `*.duckdb`, creating the latter two.

    Raises SettingsError and ExportError.
    """
    sink: Sink
    if target.startswith(("postgresql://", "postgres://")):
        sink = PostgresSink(target)
    elif _CONNECTION.match(target):
        raise SettingsError(UNREADABLE)
    elif "://" in target:
        raise SettingsError(f"target {name_of(target)}: unknown kind of database; {_TARGETS}")
    elif target.rstrip("/").endswith(parquet.SUFFIX):
        sink = ParquetSink(Path(target))
    elif Path(target).suffix in duckdb.SUFFIXES:
        sink = DuckSink(Path(target))
    else:
        shown = "with an @" if "@" in target else target  # it may be a URL with a password
        raise SettingsError(f"target {shown}: unknown suffix; {_TARGETS}")
    try:
        yield sink
    finally:
        sink.close()
