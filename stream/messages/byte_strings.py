"""Many short byte strings in one buffer, the form in which compiled loops read and write text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

NO_STRING: Final = -1
"""Size of a string that is None."""


class Texts(NamedTuple):
    """n byte strings, concatenated."""

    data: NDArray[np.uint8]
    edges: NDArray[np.int64]
    """(n + 1,): string i is `data[edges[i]:edges[i + 1]]`."""

    @classmethod
    def of(cls, strings: Sequence[bytes]) -> Self:
        """Concatenate byte strings."""
        return cls(_writable(b"".join(strings)), _edges(map(len, strings), len(strings)))

    def column(self) -> StringColumn:
        """Return the strings as a column in the same buffer."""
        return StringColumn(self.data, self.edges[:-1], np.diff(self.edges))

    def strings(self) -> list[bytes]:
        """Split the buffer into its strings."""
        data = self.data.tobytes()
        return [data[first:end] for first, end in pairwise(self.edges.tolist())]


class StringColumn(NamedTuple):
    """n byte strings, some of which may be None, at any places of one buffer, which columns may share."""

    data: NDArray[np.uint8]
    starts: NDArray[np.int64]
    """(n,)"""
    sizes: NDArray[np.int64]
    """(n,), or NO_STRING for None."""

    @classmethod
    def of(cls, strings: Sequence[bytes | None]) -> Self:
        """Concatenate byte strings."""
        sizes = np.array([NO_STRING if each is None else len(each) for each in strings], np.int64)
        data = _writable(b"".join([each for each in strings if each]))
        return cls(data, starts_of(sizes), sizes)

    @classmethod
    def utf8(cls, strings: Sequence[str | None]) -> Self:
        """Concatenate strings, encoded in UTF-8."""
        return cls.of([None if each is None else each.encode() for each in strings])

    @classmethod
    def joined(cls, columns: Sequence[StringColumn]) -> Self:
        """Concatenate columns and their buffers."""
        buffers = np.array([len(each.data) for each in columns], np.int64)
        before = (np.cumsum(buffers) - buffers).tolist()
        return cls(
            np.concatenate([each.data for each in columns]),
            np.concatenate([each.starts + first for each, first in zip(columns, before, strict=True)]),
            np.concatenate([each.sizes for each in columns]),
        )

    @classmethod
    def none(cls, rows: int) -> Self:
        """A column of None."""
        return cls(np.zeros(0, np.uint8), np.zeros(rows, np.int64), np.full(rows, NO_STRING))

    def take(self, rows: NDArray[np.int64]) -> Self:
        """Return some of the strings, in the same buffer."""
        return self._replace(starts=self.starts[rows], sizes=self.sizes[rows])

    def strings(self) -> list[bytes | None]:
        """Copy the strings out of the buffer."""
        data = self.data.tobytes()
        return [
            None if size < 0 else data[start : start + size]
            for start, size in zip(self.starts.tolist(), self.sizes.tolist(), strict=True)
        ]

    def texts(self) -> list[str | None]:
        """Decode the strings."""
        return [None if each is None else each.decode() for each in self.strings()]

    def text(self, row: int) -> str:
        """Decode one string; None is empty."""
        start = int(self.starts[row])
        return self.data[start : start + max(0, int(self.sizes[row]))].tobytes().decode()


def starts_of(sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return where strings of these sizes, which may be NO_STRING, start if they stand back to back."""
    lengths = np.maximum(sizes, 0)
    starts: NDArray[np.int64] = np.cumsum(lengths) - lengths
    return starts


def _writable(data: bytes) -> NDArray[np.uint8]:
    # Arrays over `bytes` are read-only, and Numba would compile the loops again for them.
    return np.frombuffer(bytearray(data), np.uint8)


def _edges(sizes: Iterable[int], count: int) -> NDArray[np.int64]:
    edges = np.zeros(count + 1, np.int64)
    np.cumsum(np.fromiter(sizes, np.int64, count), out=edges[1:])
    return edges
