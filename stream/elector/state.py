"""The elector's state in one RocksDB: newest versions of URLs by digest, members of clusters by rank, what
was told of clusters, and which of them are due. Journal and decisions are its write-ahead log."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Final, Self

import msgspec

from stream.elector.layout import (
    CLUSTER,
    NOBODY,
    SEEN_VALUE,
    Cluster,
    Clusters,
    MemberKeys,
    Version,
    expired_from,
)
from stream.elector.policy import Policy
from stream.errors import StateError
from stream.judge.forgetting import NamedHosts
from stream.messages.journal import Genesis
from stream.messages.row_columns import digests_in
from stream.tables.store.anchors import with_prefix
from stream.tables.store.failures import damage_error
from stream.tables.store.meta_record import META, OWNERS, begun, stored_in
from stream.tables.store.rocks import (
    CLUSTERS,
    DEFAULT,
    DUE,
    ELECTOR,
    MEMBERS,
    SEEN,
    VERSIONS,
    Store,
    Writes,
    unflushed_error,
)

FORGOTTEN_URLS: Final = b"forgotten/"
"""Prefix of records by the offset after that of a decision, u64 BE: digests of the URLs that it forgot."""
FORGOTTEN_HOSTS: Final = b"forgotten-hosts/"
"""The same of hosts, with a lifetime."""
FORGOTTEN_DOMAINS: Final = b"forgotten-domains/"
"""The same of domains."""
FORMAT: Final = 2
"""Format version of an elector's state directory."""


class Meta(msgspec.Struct, frozen=True, kw_only=True):
    """What a state belongs to, how far it has come, and how much it has."""

    version: int = FORMAT
    cluster: str
    """The Kafka cluster's id."""
    journal: str
    scheme: str
    options: str
    elect: str
    """The policy."""
    applied: int = 0
    """The next journal offset to apply."""
    last: bytes = b""
    """Digest of the journal record at `applied - 1`; empty before the first record."""
    decided: int = 0
    """The next offset of the decisions topic to apply."""
    ledger: int = 0
    """Offset of the newest ledger record in the decisions topic, or of its first part; 0 before any."""
    time: int = 0
    """Log time, in milliseconds since the epoch."""
    page: int = -1
    """The last page that was judged; -1 before the first."""
    page_time: int = 0
    """Log time of its record."""
    told_until: int = -1
    """The largest `as_of` of the topic when the state took over what the topic says. Nothing is told before
    the state has come so far."""
    positions: dict[int, int] = msgspec.field(default_factory=dict)
    """Partition of the topic -> the offset before which its records are known."""
    urls: int = 0
    """URLs that are in a cluster."""
    clusters: int = 0
    """Records of clusters: those with more than their first URL, or of which something was told."""
    due: int = 0
    """Clusters of which something is to be told."""
    forgotten: int = 0
    """The offset after that of the last decision that forgot pages, in the decisions topic; 0 before any."""
    erased: int = 0
    """Such an offset: what decisions before it forgot is erased from state and topic."""
    unseen: int = 0
    """A page: no URL in a cluster was seen last before it. Only with a lifetime."""


META_DECODER: Final = msgspec.msgpack.Decoder(Meta)


class State:
    """An elector's state, opened to write, or read-only in that of the last flush."""

    def __init__(self, store: Store, meta: Meta) -> None:
        self.store, self.meta = store, meta
        self.policy: Final = Policy.parse(meta.elect)
        self.keys: Final = MemberKeys(self.policy)
        self.encoding: Final = Clusters(self.keys.place_bytes)

    @classmethod
    def open(cls, path: Path, genesis: Genesis, cluster: str, elect: str, *, cache: int) -> Self:
        """Open or create a state. Raises StateError for one of another journal or policy."""
        fresh = Meta(
            cluster=cluster,
            journal=genesis.journal,
            scheme=genesis.scheme_id,
            options=genesis.options.id,
            elect=Policy.parse(elect).text,
        )
        expiring = genesis.options.lifetime is not None
        store = Store(path, cache, layout=ELECTOR, expiring=expiring)
        try:
            meta = begun(store, META_DECODER, fresh, OWNERS, ELECTOR.families)
            if meta.elect != fresh.elect:
                raise StateError(
                    f"state directory {path} elects by elect={meta.elect}, but the setting says"
                    f" elect={fresh.elect}; give the second elector an elector_name, or keep the policy"
                )
            state = cls(store, meta)
            if (due := sum(1 for _ in store.scan(DUE))) != meta.due:
                raise damage_error(path, f"has {due:,} clusters that are due, but {meta.due:,} were written")
        except BaseException:
            store.close()
            raise
        return state

    @classmethod
    def read(cls, path: Path, *, cache: int = 8 << 20) -> Self:
        """Open the state of the last flush, which another process may write to. Raises StateError."""
        store = Store(path, cache, read_only=True, layout=ELECTOR)
        try:
            if (meta := stored_in(store, META_DECODER, FORMAT)) is None:
                raise unflushed_error(path)
            return cls(store, meta)
        except BaseException:
            store.close()
            raise

    def versions(self, digests: Sequence[bytes]) -> list[Version | None]:
        """The newest version of each URL, given by digest; None for those that are in no cluster."""
        values = self.store.get(VERSIONS, list(digests))
        return [
            None if value is None or expired_from(value) is not None else Version.of(value)
            for value in values
        ]

    def expired_from(self, digests: Sequence[bytes]) -> list[int | None]:
        """The cluster in which each URL, given by digest, was not seen for a lifetime, if that is still to be
        told of it; None for others."""
        return list(map(expired_from, self.store.get(VERSIONS, list(digests))))

    def unseen(self, until: int, limit: int) -> list[tuple[int, bytes]]:
        """The URLs that were seen last at a log time up to `until`, at most `limit`, those first that were
        not seen for longest: page with which each was seen, and its digest."""
        urls = list[tuple[int, bytes]]()
        for key, value in islice(self.store.scan(SEEN, CLUSTER.pack(self.meta.unseen)), limit):
            seen, digest = SEEN_VALUE.unpack(value)
            if seen > until:
                break
            urls.append((CLUSTER.unpack(key)[0], digest))
        return urls

    def clusters(self, clusters: Sequence[int]) -> list[Cluster | None]:
        """The records of clusters; None for those that have none."""
        values = self.store.get(CLUSTERS, [CLUSTER.pack(each) for each in clusters])
        return [None if value is None else self.encoding.decode(value) for value in values]

    def first_members(self, clusters: Sequence[int]) -> list[Cluster | None]:
        """What is known of clusters that have no record: their first URL is the only member. None for those
        that never began."""
        entries = list[Cluster | None]()
        starts = [CLUSTER.pack(each) for each in clusters]
        for cluster, start, pair in zip(
            clusters, starts, self.store.first_from(MEMBERS, starts), strict=True
        ):
            if pair is None or not pair[0].startswith(start):
                entries.append(None)
            else:
                entries.append(Cluster.new(cluster, pair[1], 1, pair[0][len(start) :]))
        return entries

    def members(self, cluster: int, start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Places of the members of a cluster, best first, from a place on, with the digests of their URLs."""
        prefix = CLUSTER.pack(cluster)
        for key, digest in self.store.scan(MEMBERS, prefix + start):
            if not key.startswith(prefix):
                return
            yield key[len(prefix) :], digest

    def kept(self, cluster: int) -> tuple[Version | None, int] | None:
        """Return the page of a cluster that is kept, and how many members it has; None if there is no such
        cluster."""
        entry = self.clusters([cluster])[0]
        if entry is not None and entry.best == NOBODY:
            return None, 0
        digest = next((digest for _, digest in self.members(cluster)), None)
        if digest is None:
            return None
        return self.versions([digest])[0], entry.members if entry is not None else 1

    def due(self, limit: int, first: int = 0) -> list[int]:
        """Clusters of which something is to be told, at most `limit`, in their order, from `first` on. A scan
        passes over all that was told since RocksDB compacted the family."""
        return [CLUSTER.unpack(key)[0] for key, _ in islice(self.store.scan(DUE, CLUSTER.pack(first)), limit)]

    def clusters_told(self, urls: Collection[bytes]) -> list[int]:
        """Clusters of which it was told that one of these URLs is kept, given by digests: those that they are
        in, and clusters that they left, of which something is to be told since."""
        numbers = {each.cluster for each in self.versions(list(urls)) if each is not None}
        clusters = sorted(numbers | {CLUSTER.unpack(key)[0] for key, _ in self.store.scan(DUE)})
        entries = zip(clusters, self.clusters(clusters), strict=True)
        return [cluster for cluster, entry in entries if entry is not None and entry.kept in urls]

    def of_hosts(self, hosts: NamedHosts) -> set[bytes]:
        """Digests of URLs of these hosts that are in a cluster, or of which it was told that they are kept.
        Reads all."""
        entries = (self.encoding.decode(value) for _, value in self.store.scan(CLUSTERS))
        urls = {each.kept for each in entries if each.kept_url and hosts.of_url(each.kept_url.decode())}
        for digest, value in self.store.scan(VERSIONS):
            if expired_from(value) is None and hosts.of_url(Version.of(value).url.decode()):
                urls.add(digest)
        return urls

    def forgotten(self, prefix: bytes) -> set[bytes]:
        """Digests of what is forgotten, but not erased yet, by the prefix of their records."""
        values = [value for _, value in with_prefix(self.store, prefix)]
        return {each for value in values for each in digests_in(value)}

    @property
    def is_erased(self) -> bool:
        """Whether nothing is left of all that was forgotten."""
        return self.meta.erased == self.meta.forgotten

    @property
    def erasable(self) -> int:
        """The offset before which decisions forgot what is gone once it is replaced and compacted."""
        return self.meta.forgotten

    def compact(self) -> None:
        """Rewrite all files, without what was removed or replaced, while others may write."""
        self.store.flush()
        for family in ELECTOR.families:
            self.store.compact(family)

    def note_erased(self, erased: int) -> None:
        """Note that nothing is left of what decisions before the offset `erased` forgot, and drop its
        digests."""
        writes = self.store.batch()
        for prefix in (FORGOTTEN_URLS, FORGOTTEN_HOSTS, FORGOTTEN_DOMAINS):
            for key, _ in list(with_prefix(self.store, prefix)):
                if int.from_bytes(key, "big") <= erased:
                    writes.delete(DEFAULT, prefix + key)
        self.write(writes, msgspec.structs.replace(self.meta, erased=erased))
        self.store.compact(DEFAULT)

    def write(self, writes: Writes, meta: Meta) -> None:
        """Apply writes together with the meta record that belongs to them."""
        writes.put(DEFAULT, META, msgspec.msgpack.encode(meta))
        self.store.write(writes)
        self.meta = meta

    def close(self) -> None:
        """Flush, and release the directory."""
        self.store.flush_and_close()


def kind_of_elector(name: str) -> str:
    """The kind of the state of the elector with this name, which its directory below the namespace's is
    called by."""
    return f"elector{name and f'-{name}'}"
