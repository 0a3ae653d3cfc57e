"""Policies: which page of a cluster is the best one. The elector, `neardup dedup` and their tests have them
from here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from stream.errors import SettingsError
from stream.text.url import host_of

Field = Literal["length", "fetched_at", "quality", "host"]
ORDERS: Final[dict[str, tuple[Field, ...]]] = {
    "first": (),
    "longest": ("length",),
    "newest": ("fetched_at",),
    "quality": ("quality", "length"),
    "hosts": ("host", "length"),
}
"""Name of a policy -> the fields by which it orders pages. The greatest is the best, of hosts the one that
the policy names first; pages without a value come last. Ties go to the URL that is in the cluster for the
longest time."""
MOST_HOSTS: Final = 65_535
_TYPES: Final[dict[Field, str]] = {"length": ">u4", "fetched_at": ">u8", "quality": ">u8", "host": ">u2"}
_SIGN: Final = np.uint64(1 << 63)


class Ranked(NamedTuple):
    """What policies look at, of n pages."""

    length: NDArray[np.uint32]
    fetched_at: NDArray[np.int64]
    """NO_TIME for none."""
    quality: NDArray[np.float64]
    """NaN for none."""
    url: Sequence[bytes]
    """As the crawler sent it."""


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy as the setting `elect` names it."""

    text: str
    fields: tuple[Field, ...]
    hosts: dict[str, int]
    """Host, as in URL keys -> its place."""

    @classmethod
    def parse(cls, text: str, option: str = "elect") -> Self:
        """Raises SettingsError for what is no policy. `option` names it in errors."""
        name, _, listed = text.partition("=")
        hosts = listed.split(",") if listed else []
        if name not in ORDERS or bool(hosts) != (name == "hosts"):
            raise SettingsError(
                f"{option}={text}: write first, longest, newest, quality or hosts=a.example,b.example"
            )
        if len(hosts) > MOST_HOSTS:
            raise SettingsError(f"{option}: {len(hosts):,} hosts; name at most {MOST_HOSTS:,}")
        for each in hosts:
            host = host_of(f"http://{each}/")
            if not host or host != each:
                better = host and f"; write {host}"
                raise SettingsError(f"{option}: {each!r} is no host as URL keys have it{better}")
        places = {host: place for place, host in reversed(list(enumerate(hosts)))}
        return cls(text, ORDERS[name], places)

    @property
    def rank_type(self) -> list[tuple[str, str]]:
        """Fields of the type of ranks: big-endian, so that their bytes sort as they do."""
        return [(field, _TYPES[field]) for field in self.fields]

    def ranks(self, pages: Ranked) -> dict[str, NDArray[Any]]:
        """Return for each field of `rank_type` a number of each of n pages (n,), the least for the best."""
        return {field: self._rank(field, pages) for field in self.fields}

    def _rank(self, field: Field, pages: Ranked) -> NDArray[Any]:
        match field:
            case "length":
                return ~pages.length
            case "fetched_at":
                return ~(pages.fetched_at.view(np.uint64) ^ _SIGN)  # NO_TIME is the least number
            case "quality":
                return _descending(pages.quality)
            case "host":
                return self.host_ranks([url.decode(errors="replace") for url in pages.url])

    def host_ranks(self, urls: Iterable[str]) -> NDArray[np.uint16]:
        """Return the place of each URL's host among those of the policy; their number for all others."""
        last = len(self.hosts)
        return np.array([self.hosts.get(host_of(url), last) for url in urls], np.uint16)


def _descending(values: NDArray[np.float64]) -> NDArray[np.uint64]:
    """Numbers that sort as `values` do from the greatest one on, NaN last; -0.0 equals 0.0."""
    bits = (values + 0.0).view(np.uint64)
    ascending = np.where(bits & _SIGN, ~bits, bits | _SIGN)
    return np.where(np.isnan(values), np.uint64(2**64 - 1), ~ascending)
