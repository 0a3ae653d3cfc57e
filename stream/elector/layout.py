"""Bytes of an elector's records: newest versions of URLs, members of clusters, and clusters.

A key of the family `members` is cluster (u64), rank and `since` (u64), big-endian, so the best member of a
cluster is the first one of its keys; the value is the digest of its URL. The part behind the cluster is the
member's *place*. With a lifetime, the family `seen` has the page with which each URL was seen last, so those
that were not seen for long are its first keys.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from stream.elector.policy import Policy, Ranked

CLUSTER: Final = struct.Struct(">Q")
"""Key of a cluster, and prefix of its members' keys."""
NOBODY: Final = bytes(16)
"""In place of the digest of a URL that is kept."""
FORGOTTEN: Final = b"\xff" * 16
"""In place of the digest of a URL that was told, and is forgotten."""
NEVER: Final = -1
"""In place of numbers that were told."""
VERSION: Final = np.dtype(
    [
        ("cluster", "<i8"),
        ("since", "<i8"),
        ("page", "<i8"),
        ("fetched_at", "<i8"),
        ("quality", "<f8"),
        ("length", "<u4"),
        ("first_url", "<u4"),
    ]
)
"""The newest version of a URL, which is in a cluster since the page `since`. Its URL follows, and after it
`first_url` bytes: how the URL was spelled when it began the cluster, if it did and the spelling differs."""
_NUMBERS: Final = struct.Struct("<qqqqdII")
SEEN_VALUE: Final = struct.Struct("<q16s")
"""Value of the family `seen`, by page (u64 BE): log time at which that was judged, and digest of its URL."""


@dataclass(frozen=True, slots=True)
class Version:
    """A stored version."""

    cluster: int
    since: int
    page: int
    fetched_at: int
    quality: float
    length: int
    url: bytes
    first_url: bytes
    """The URL as it was spelled when it began the cluster; of no meaning if it did not."""

    @classmethod
    def of(cls, value: bytes) -> Self:
        """Decode a value of the family `versions`."""
        cluster, since, page, fetched_at, quality, length, first = _NUMBERS.unpack_from(value)
        end = len(value) - first
        url = value[_NUMBERS.size : end]
        return cls(cluster, since, page, fetched_at, quality, length, url, value[end:] or url)

    @property
    def is_first(self) -> bool:
        """Whether it is still where it began a cluster."""
        return self.cluster == self.since


def expired_version(cluster: int) -> bytes:
    """In place of the version of a URL that was not seen for a lifetime, until it is told that the cluster
    keeps another one."""
    return CLUSTER.pack(cluster)


def expired_from(value: bytes | None) -> int | None:
    """The cluster of such a value; None for a version, and for none."""
    return CLUSTER.unpack(value)[0] if value is not None and len(value) == CLUSTER.size else None


class MemberKeys:
    """Keys of members by the ranks of a policy."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._type = np.dtype([("cluster", ">u8"), *policy.rank_type, ("since", ">u8")])
        self.place_bytes: Final = self._type.itemsize - CLUSTER.size

    def of(self, cluster: NDArray[np.int64], since: NDArray[np.int64], pages: Ranked) -> list[bytes]:
        """Return the keys of n members."""
        keys = np.empty(len(cluster), self._type)
        keys["cluster"], keys["since"] = cluster, since
        for field, rank in self._policy.ranks(pages).items():
            keys[field] = rank
        return split(keys.tobytes(), self._type.itemsize)

    def since_of(self, place: bytes) -> int:
        """The first page of a member's stay, by its place."""
        return int.from_bytes(place[-8:], "big")


@dataclass(slots=True)
class Cluster:
    """What is known of a cluster, and what was told of it. Of a cluster without a record, its first URL is
    the only member, and nothing was told."""

    members: int
    place: bytes
    """Of the best member; of no meaning if there is none."""
    best: bytes
    """Digest of the best member's URL, or NOBODY."""
    kept: bytes
    """Digest of the URL that was told; of the cluster's first URL if none was. NOBODY: it was told that no
    page is left. FORGOTTEN: nothing may be said of it any more."""
    kept_page: int
    """Its version that was told."""
    as_of: int
    """The last page that was seen when it was told; NEVER."""
    told_members: int
    """How many members were told; NEVER."""
    kept_url: bytes = b""
    """Its URL as it was told; empty for the first URL as long as that stays: its version has it."""

    def forget_told(self) -> None:
        """Drop what was told."""
        self.kept, self.kept_page, self.kept_url = FORGOTTEN, NEVER, b""

    @property
    def was_told(self) -> bool:
        return self.as_of != NEVER

    @property
    def is_due(self) -> bool:
        """Whether there is something to tell: another URL is kept, or there are twice as many members."""
        if self.best != self.kept:
            return True
        return self.was_told and 0 < self.members >= 2 * self.told_members

    def is_plain(self, since: int, cluster: int) -> bool:
        """Whether it needs no record: its first URL, which came with the page `cluster`, is its only member.
        `since` is that of its best member."""
        return not self.was_told and self.members == 1 and since == cluster

    @classmethod
    def new(cls, page: int, url: bytes, members: int = 0, place: bytes = b"") -> Self:
        """A cluster of which nothing was told, which the page `page` of this URL began."""
        return cls(members, place, url if members else NOBODY, url, page, NEVER, NEVER)


class Clusters:
    """Encodes clusters."""

    def __init__(self, place_bytes: int) -> None:
        self._head = struct.Struct(f"<q{place_bytes}s16s16sqqq")

    def encode(self, each: Cluster) -> bytes:
        """Return the value of the family `clusters`."""
        head = self._head.pack(
            each.members, each.place, each.best, each.kept, each.kept_page, each.as_of, each.told_members
        )
        return head + each.kept_url

    def decode(self, value: bytes) -> Cluster:
        """Decode such a value."""
        members, place, best, kept, page, as_of, told_members = self._head.unpack_from(value)
        return Cluster(members, place, best, kept, page, as_of, told_members, value[self._head.size :])


def split(data: bytes, size: int) -> list[bytes]:
    """Cut into pieces of equal size."""
    return [data[at : at + size] for at in range(0, len(data), size)]


def heads_of(values: Sequence[bytes]) -> NDArray[Any]:
    """The numbers (n,) of stored versions, of the type VERSION."""
    return np.frombuffer(b"".join([value[: VERSION.itemsize] for value in values]), VERSION)
