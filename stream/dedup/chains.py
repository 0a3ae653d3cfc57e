"""Chains: pages that are alike, or alike through others, are one cluster, as in batch tools."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stream.fingerprint.lanes import from_integers
from stream.fingerprint.scheme import Scheme
from stream.judge.rule import Rule
from stream.offline.verified_match import Sketched, SketchedFile, Verified
from stream.sources.rows import RowsSource

CHUNK: Final = 8192
"""Pages whose columns are made at once."""
Numbers = NDArray[np.int64]


class Components:
    """Union-find over n pages. The root of a component is its first page."""

    def __init__(self, count: int) -> None:
        self._parent = np.arange(count)

    def join(self, one: Iterable[int], two: Iterable[int]) -> None:
        """Join the components of pairs of pages."""
        parent = self._parent
        for a, b in zip(one, two, strict=True):
            first, second = self._root(a), self._root(b)
            if first < second:
                parent[second] = first
            else:
                parent[first] = second

    def roots(self) -> Numbers:
        """The root of each page."""
        roots = self._parent
        while not np.array_equal(above := roots[roots], roots):
            roots = above
        return roots

    def _root(self, page: int) -> int:
        parent = self._parent
        while (above := int(parent[page])) != page:
            parent[page] = parent[above]
            page = above
        return page


def find_chains(
    source: RowsSource, scheme: Scheme, rule: Rule, links: tuple[Numbers, Numbers], threads: int
) -> tuple[Numbers, Numbers]:
    """Return the distinct pages of `links`, by number, and for each the first page of its chain.

    Chains join the pairs of `links`, and those of `neardup match --verified` among these pages. Their columns
    are held in memory: 0.3 kB each with the default scheme.
    """
    pages = np.unique(links[0])
    components = Components(len(pages))
    components.join(*(np.searchsorted(pages, each).tolist() for each in links))
    compared: list[Numbers] = []

    def chunks() -> Iterator[Sketched]:
        for part in _ready(source, scheme, pages):
            compared.append(np.array([place for place, _, _ in part]))
            sketches = np.frombuffer(b"".join(sketch for _, _, sketch in part), "<u8").astype(np.uint64)
            yield Sketched.of(
                from_integers([fingerprint for _, fingerprint, _ in part], scheme.width),
                sketches.reshape(len(part), -1),
                [],
            )

    verified = Verified(SketchedFile(chunks()), None, rule, threads=threads)
    places = np.concatenate(compared) if compared else np.zeros(0, np.int64)
    for pairs in verified.pairs():
        components.join(places[pairs.row].tolist(), places[pairs.stored].tolist())
    return pages, pages[components.roots()]


def _ready(source: RowsSource, scheme: Scheme, pages: Numbers) -> Iterator[list[tuple[int, int, bytes]]]:
    """Yield place in `pages`, fingerprint and sketch of those that have one, in chunks."""
    part: list[tuple[int, int, bytes]] = []
    places = iter(enumerate(pages.tolist()))
    place, wanted = next(places, (0, -1))
    for number, (_, row, _) in enumerate(source.placed(scheme)):
        if number != wanted:
            continue
        if row.ready:
            part.append((place, row.fingerprint, row.sketch))
        place, wanted = next(places, (0, -1))
        if len(part) == CHUNK:
            yield part
            part = []
    if part:
        yield part
