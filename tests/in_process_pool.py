"""Fingerprints within the process, where children are not what is tested and their start costs seconds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from stream.children.child import ChildConfiguration
from stream.fingerprint.row import Row
from stream.page_rows.page_fingerprinter import PageFingerprinter


class InProcessPool:
    """Stands in for `ChildPool` in a scan: `stream.local.scan.ChildPool`."""

    def __init__(self, _processes: int, configuration: ChildConfiguration, *_: object, at_once: bool) -> None:
        self._fingerprinter = PageFingerprinter(configuration.scheme, configuration.seed)
        self._page_bytes = configuration.page_bytes

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def fingerprint(self, chunk: Sequence[bytes | None]) -> list[Row]:
        """The rows of page messages."""
        return [self._fingerprinter.message(value, self._page_bytes) for value in chunk]
