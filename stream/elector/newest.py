"""The newest version of each URL among judged pages, and where it was before."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import compress
from typing import Self

import numpy as np
from numpy.typing import NDArray

from stream.elector.judged_pages import NO_CLUSTER, JudgedPages
from stream.elector.layout import VERSION, Version, expired_from, heads_of, split
from stream.elector.policy import Ranked
from stream.elector.state import State
from stream.messages.row_columns import digests_in
from stream.tables.store.rocks import VERSIONS

NO_KEY = b""
"""In place of the key of a member, for a URL that is in no cluster."""


@dataclass(frozen=True, slots=True, eq=False)
class Newest:
    """The m URLs of a batch, ascending by digest, with their newest version and the one before the batch."""

    digest: list[bytes]
    cluster: NDArray[np.int64]
    """(m,): NO_CLUSTER for versions that are too short."""
    since: NDArray[np.int64]
    """(m,): the first page of the stay in that cluster."""
    key: list[bytes]
    """Keys as members; NO_KEY for none."""
    value: list[bytes]
    """Values of the family `versions`; of no meaning without a cluster."""
    before: list[bytes | None]
    """Values before the batch."""
    key_before: list[bytes]
    began: NDArray[np.bool_]
    """(m,): whether this stay began in the batch."""
    page: NDArray[np.int64]
    """(m,): the newest version."""
    seen: NDArray[np.int64]
    """(m,): log time of its record."""
    expired: list[bytes]
    """Digests of the URLs that had expired, of which a cluster is still to be told."""

    @classmethod
    def of(cls, pages: JudgedPages, state: State) -> Self:
        """Look up what was before."""
        order, ends, stays_from, whole = _by_url(pages)
        rows, first_rows = order[ends], order[stays_from]
        digest = digests_in(pages.digest[rows])
        stored = state.store.get(VERSIONS, digest)
        gone = [expired_from(value) is not None for value in stored]
        before = [None if is_gone else value for value, is_gone in zip(stored, gone, strict=True)]
        there = np.flatnonzero([value is not None for value in before])
        values = [value for value in before if value is not None]
        old = heads_of(values)
        cluster = pages.cluster[rows]
        since = pages.page[first_rows]
        cluster_before = np.full(len(rows), NO_CLUSTER)
        cluster_before[there] = old["cluster"]
        stayed = whole & (cluster_before == cluster) & (cluster != NO_CLUSTER)
        since_before = np.full(len(rows), NO_CLUSTER)
        since_before[there] = old["since"]
        since[stayed] = since_before[stayed]
        urls = [url or b"" for url in pages.url.take(rows).strings()]
        ranked = Ranked(pages.length[rows], pages.fetched_at[rows], pages.quality[rows], urls)
        key = state.keys.of(cluster, since, ranked)
        for place in np.flatnonzero(cluster == NO_CLUSTER).tolist():
            key[place] = NO_KEY
        respelled = (cluster == since) & (stayed | (rows != first_rows))
        first_urls = _first_urls(pages, urls, first_rows, before, np.flatnonzero(respelled), stayed)
        return cls(
            digest=digest,
            cluster=cluster,
            since=since,
            key=key,
            value=_encode(pages, rows, cluster, since, urls, first_urls),
            before=before,
            key_before=_keys_before(state, there, values, len(rows)),
            began=~stayed,
            page=pages.page[rows],
            seen=pages.seen[rows],
            expired=list(compress(digest, gone)),
        )


def _by_url(
    pages: JudgedPages,
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """Return rows in order of digest, then page; where each URL ends in that order; from where on its last
    pages are in one cluster; and whether all of its pages are."""
    n = len(pages)
    high, low = pages.digest.view(">u8").astype(np.uint64).T
    order = np.lexsort((low, high))
    high, low, cluster = high[order], low[order], pages.cluster[order]
    first = np.ones(n, bool)
    first[1:] = (high[1:] != high[:-1]) | (low[1:] != low[:-1])
    moved = first.copy()
    moved[1:] |= cluster[1:] != cluster[:-1]
    starts = np.flatnonzero(first)
    ends = np.append(starts[1:], n)[: len(starts)] - 1
    stays_from = np.maximum.accumulate(np.where(moved, np.arange(n), 0))[ends]
    return order, ends, stays_from, stays_from == starts


def _first_urls(
    pages: JudgedPages,
    urls: list[bytes],
    first_rows: NDArray[np.int64],
    before: list[bytes | None],
    places: NDArray[np.int64],
    stayed: NDArray[np.bool_],
) -> dict[int, bytes]:
    """Index of a URL -> how it was spelled when it began its cluster, where that differs from now. `places`
    are those that began theirs with another page than the newest."""
    spelled = pages.url.take(first_rows[places]).strings()
    first_urls = {}
    for place, url in zip(places.tolist(), spelled, strict=True):
        if stayed[place]:
            value = before[place]
            assert value is not None  # noqa: S101 (it stayed)
            url = Version.of(value).first_url
        if url != urls[place]:
            first_urls[place] = url or b""
    return first_urls


def _encode(
    pages: JudgedPages,
    rows: NDArray[np.int64],
    cluster: NDArray[np.int64],
    since: NDArray[np.int64],
    urls: list[bytes],
    first_urls: dict[int, bytes],
) -> list[bytes]:
    heads = np.zeros(len(rows), VERSION)
    heads["cluster"], heads["since"] = cluster, since
    for name in ("page", "fetched_at", "quality", "length"):
        heads[name] = getattr(pages, name)[rows]
    for place, url in first_urls.items():
        heads["first_url"][place] = len(url)
    values = [head + url for head, url in zip(split(heads.tobytes(), VERSION.itemsize), urls, strict=True)]
    for place, url in first_urls.items():
        values[place] += url
    return values


def member_keys(state: State, values: list[bytes]) -> list[bytes]:
    """Keys as members (n,) of versions, given by values of the family `versions`."""
    old, urls = heads_of(values), list[bytes]()
    if state.policy.hosts:
        urls = [Version.of(value).url for value in values]
    length, fetched_at, quality = (np.ascontiguousarray(old[name]) for name in Ranked._fields[:3])
    return state.keys.of(old["cluster"], old["since"], Ranked(length, fetched_at, quality, urls))


def _keys_before(state: State, there: NDArray[np.int64], values: list[bytes], count: int) -> list[bytes]:
    """Keys as members (count,) of the versions before, of which there are `there`."""
    keys = [NO_KEY] * count
    for place, key in zip(there.tolist(), member_keys(state, values), strict=True):
        keys[place] = key
    return keys
