"""Many short byte strings in one buffer, the form in which compiled loops read and write text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from json.encoder import encode_basestring
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray


class Texts(NamedTuple):
    """n byte strings, concatenated."""

    data: NDArray[np.uint8]
    edges: NDArray[np.int64]
    """(n + 1,): string i is `data[edges[i]:edges[i + 1]]`."""

    @classmethod
    def of(cls, strings: Sequence[bytes]) -> Self:
        """Concatenate byte strings."""
        return cls(_writable(b"".join(strings)), _edges(map(len, strings), len(strings)))

    @classmethod
    def utf8(cls, strings: Sequence[str]) -> Self:
        """Concatenate strings, encoded in UTF-8."""
        joined = "".join(strings)
        if joined.isascii():  # nearly always
            return cls(_writable(joined.encode()), _edges(map(len, strings), len(strings)))
        return cls.of([each.encode() for each in strings])

    @classmethod
    def json(cls, strings: Sequence[str | None]) -> Self:
        """Concatenate JSON values: each string in quotes with escapes, None as null."""
        if strings and None not in strings:
            # Large batches rarely contain a character to escape, so check them as one string first.
            joined = '""'.join(strings)  # type: ignore[arg-type]
            data = _writable(f'"{joined}"'.encode())
            plain = not (data < 0x20).any() and not (data == ord("\\")).any()
            if plain and joined.isascii() and int((data == ord('"')).sum()) == 2 * len(strings):
                sizes = (len(each) + 2 for each in strings if each is not None)
                return cls(data, _edges(sizes, len(strings)))
        return cls.of([b"null" if each is None else encode_basestring(each).encode() for each in strings])

    def strings(self) -> list[bytes]:
        """Split the buffer into its strings."""
        data = self.data.tobytes()
        return [data[first:end] for first, end in pairwise(self.edges.tolist())]


def _writable(data: bytes) -> NDArray[np.uint8]:
    # Arrays over `bytes` are read-only, and Numba would compile the loops again for them.
    return np.frombuffer(bytearray(data), np.uint8)


def _edges(sizes: Iterable[int], count: int) -> NDArray[np.int64]:
    edges = np.zeros(count + 1, np.int64)
    np.cumsum(np.fromiter(sizes, np.int64, count), out=edges[1:])
    return edges
