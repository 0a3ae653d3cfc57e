"""Fingerprints within the process, where children are not what is tested and their start costs seconds."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Self

from stream.children.child import ChildConfiguration
from stream.fingerprint.row import Row
from stream.page_rows.page_fingerprinter import PageFingerprinter


class InProcessPool:
    """Stands in for `ChildPool` in a scan or a worker."""

    crashes = 0

    def __init__(
        self, _processes: int, configuration: ChildConfiguration, *_: object, at_once: bool = True
    ) -> None:
        self._fingerprinter = PageFingerprinter(configuration.scheme, configuration.seed)
        self._page_bytes = configuration.page_bytes

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def fingerprint(
        self,
        values: Sequence[bytes | None],
        answered: Callable[[list[Row]], None] = lambda _: None,
        *,
        busy: bool = False,
    ) -> list[Row]:
        """The rows of page messages."""
        rows = [self._fingerprinter.message(value, self._page_bytes) for value in values]
        answered(rows)
        return rows

    async def fingerprint_alone(
        self, value: bytes | None, before: Callable[[], Awaitable[bool]], after: Callable[[], Awaitable[None]]
    ) -> Row | None:
        """The row of a page message, unless `before` returns False."""
        if not await before():
            return None
        (row,) = await self.fingerprint([value])
        await after()
        return row
