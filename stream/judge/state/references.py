"""References to the baselines of a URL (rule 20), as the family `urls` has them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, cast

import numpy as np
from numpy.typing import NDArray

from stream.judge.state.page_numbers import PageNumbers

ANCHOR: Final = ord("a")
DUPLICATE: Final = ord("d")
REFERENCE: Final = np.dtype([("kind", "u1"), ("number", "<u8")])
"""Kind and number of an anchor or duplicate. A value of the family `urls` consists of references to the URL's
baselines, newest first."""
BYTES: Final = np.dtype(("V", REFERENCE.itemsize))
"""One reference as bytes."""


def references_to(kind: int, numbers: NDArray[np.int64]) -> list[bytes]:
    """References to anchors or duplicates (m,)."""
    references = np.zeros(len(numbers), REFERENCE)
    references["kind"], references["number"] = kind, numbers
    return cast(list[bytes], references.view(BYTES).tolist())


def each_of(value: bytes) -> list[bytes]:
    """The references of a value."""
    size = REFERENCE.itemsize
    return [value[at : at + size] for at in range(0, len(value), size)]


def are_there(values: bytes, first: PageNumbers) -> NDArray[np.bool_]:
    """Whether the page of each reference of back-to-back values is there, (m,): those before the `first` ones
    are gone."""
    fields = np.frombuffer(values, REFERENCE)
    there: NDArray[np.bool_] = fields["number"] >= np.where(fields["kind"] == ANCHOR, *first).astype(
        np.uint64
    )
    return there


def without_gone(value: bytes, first: PageNumbers) -> bytes:
    """The references of a value to pages that are there."""
    kept: bytes = np.frombuffer(value, REFERENCE)[are_there(value, first)].tobytes()
    return kept


def all_gone(values: Sequence[bytes], first: PageNumbers) -> NDArray[np.bool_]:
    """Whether no page of each of these values (n,) is there."""
    sizes = np.fromiter(map(len, values), np.int64, len(values)) // REFERENCE.itemsize
    there = np.cumsum(are_there(b"".join(values), first), dtype=np.int64)
    until = np.append(0, there)[np.cumsum(sizes)]
    gone: NDArray[np.bool_] = np.diff(until, prepend=0) == 0
    return gone
