"""Ids of forgotten pages, which a dashboard keeps, as `decisions` that say them may be trimmed."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from pathlib import Path
from typing import Final, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from stream.durable import replace_file

NAME: Final = "forgotten-ids"
VERSION: Final = 1
LEAST_JOINED: Final = 4096
"""Ids that are sorted into the others at once, at least. Of a long history, each decision has a few."""
JOINED_SHARE: Final = 16
"""They are also at least the others' number divided by this."""


class _Noted(msgspec.Struct, kw_only=True):
    """What the file has."""

    version: int = VERSION
    journal: str
    ids: bytes
    """Packed ids, ascending, i64 LE each."""


class ForgottenIds:
    """A set of packed ids of pages of a journal."""

    def __init__(self, journal: str) -> None:
        self._journal = journal
        self._ids = array("q")  # ascending; an eighth of the memory of a set
        self._added = set[int]()
        """Those that are not among them yet."""
        self._written = -1

    def __len__(self) -> int:
        self._join()
        return len(self._ids)

    def __contains__(self, page: int) -> bool:
        place = bisect_left(self._ids, page)
        return page in self._added or (place < len(self._ids) and self._ids[place] == page)

    def add(self, pages: NDArray[np.int64]) -> None:
        """Add pages."""
        self._added.update(pages.tolist())
        if len(self._added) > max(LEAST_JOINED, len(self._ids) // JOINED_SHARE):
            self._join()

    def _join(self) -> None:
        if self._added:
            before = np.frombuffer(self._ids, np.int64)
            added = np.fromiter(self._added, np.int64, len(self._added))
            self._ids = array("q", np.union1d(before, added).tobytes())
            self._added.clear()

    def write(self, directory: Path) -> None:
        """Replace the file in the directory of a dashboard, if there are more ids than it has. Raises
        OSError."""
        if self._written != len(self):
            ids = np.frombuffer(self._ids, np.int64).astype("<i8").tobytes()
            replace_file(directory / NAME, msgspec.msgpack.encode(_Noted(journal=self._journal, ids=ids)))
            self._written = len(self)

    @classmethod
    def read(cls, directory: Path, journal: str) -> Self | None:
        """The ids of the file in a directory; None if there is none, it cannot be read, or it is about
        another journal."""
        try:
            noted = _DECODER.decode((directory / NAME).read_bytes())
        except (OSError, msgspec.DecodeError):
            return None
        if (noted.version, noted.journal) != (VERSION, journal) or len(noted.ids) % 8:
            return None
        ids = cls(journal)
        ids._ids = array("q", np.unique(np.frombuffer(noted.ids, "<i8")).astype(np.int64).tobytes())
        ids._written = len(ids)
        return ids


_DECODER: Final = msgspec.msgpack.Decoder(_Noted)
