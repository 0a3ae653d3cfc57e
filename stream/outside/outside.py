"""Everything outside of messages that a process may ask for."""

from __future__ import annotations

from stream.errors import PageError
from stream.outside.claims import Archive
from stream.outside.options import OutsideOptions
from stream.outside.registry import Registry
from stream.outside.schema import Schema
from stream.outside.warc_record import ArchivedPage


class Outside:
    """Schemas and archived records by what messages say of them; what was fetched is kept."""

    def __init__(self, options: OutsideOptions) -> None:
        """Asks nobody yet."""
        self._archive = Archive(options.claim_root) if options.claim_root else None
        self._registry = (
            Registry(
                options.schema_registry_url, options.schema_registry_user, options.schema_registry_password
            )
            if options.schema_registry_url
            else None
        )

    def schema(self, number: int) -> Schema:
        """The schema of that id. Raises WantedError, PageError `unknown_schema` or `unsupported_schema`."""
        if self._registry is None:
            raise PageError("unknown_schema", f"schema id {number}, and no schema_registry_url is set")
        return self._registry.schema(number)

    def record(self, filename: str, offset: int, limit: int) -> ArchivedPage:
        """The page at that byte of an archive, its body of at most `limit` bytes.

        Raises WantedError, PageError `bad_claim`, `claim_not_found`, `claim_damaged`, `too_large` or
        `bad_compression`.
        """
        if self._archive is None:
            raise PageError("bad_claim", "warc_filename, and no claim_root is set")
        return self._archive.record(filename, offset, limit)
