"""Access to what messages refer to: schemas of a registry and records of web archives."""

from __future__ import annotations

from collections.abc import Callable

from stream.errors import PageError
from stream.pages.outside.claims import Archive
from stream.pages.outside.schema import Registered, Schema, Schemas
from stream.pages.warc_record import ArchivedPage


class Outside:
    """Looks up schemas by id and archived records by file and offset, and caches what was fetched."""

    def __init__(
        self, *, claim_root: str | None = None, ask: Callable[[int], Registered] | None = None
    ) -> None:
        """`claim_root` is the directory of the archives; `ask` fetches a schema by its id and may raise
        UnavailableError. Nothing is fetched yet."""
        self._archive = Archive(claim_root) if claim_root else None
        self._schemas = Schemas(ask) if ask else None

    def schema(self, number: int) -> Schema:
        """Return the schema with that id. Raises FetchNeededError, PageError `unknown_schema` or
        `unsupported_schema`."""
        if self._schemas is None:
            raise PageError("unknown_schema", f"schema id {number}, but no schema registry is configured")
        return self._schemas.schema(number)

    def record(self, filename: str, offset: int, limit: int) -> ArchivedPage:
        """Return the page at byte `offset` of an archive, with a body of at most `limit` bytes.

        Raises FetchNeededError, PageError `bad_claim`, `claim_not_found`, `claim_damaged`, `too_large` or
        `bad_compression`.
        """
        if self._archive is None:
            raise PageError("bad_claim", "warc_filename, but no claim_root is set")
        return self._archive.record(filename, offset, limit)
