"""How much processor time a page may take: by its size, and by what its host's pages have done before."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Final

BASE: Final = 0.1
"""Share of `page_deadline` that an empty page may take; one of `page_bytes` may take all of it. By default
that is 1 s and 0.56 s a MiB; ordinary HTML takes 0.1 s a MiB."""
LEAST: Final = 0.25
"""Share of that left to a host after two crashes: each halves it."""
MAX_HOSTS: Final = 256
"""Hosts that are remembered; those whose last crash is the longest ago are forgotten first."""
MAX_NAME: Final = 255


def seconds(most: float, size: int, page_bytes: int, crashes: int = 0) -> float:
    """Processor time for a page of `size` bytes or characters, of a host with so many crashes; `most` is the
    setting `page_deadline`."""
    whole = most * (BASE + (1 - BASE) * min(1.0, size / page_bytes))
    return whole * max(LEAST, 0.5**crashes)


def host_of(url: str) -> str:
    """The host in a URL as it was sent, good enough to know it again."""
    authority = url[: MAX_NAME + 16].partition("://")[2].partition("/")[0]
    return authority.rpartition("@")[2].partition(":")[0].lower()[:MAX_NAME]


class CrashedHosts:
    """Hosts whose pages ended children, and how often."""

    def __init__(self) -> None:
        self._crashes: OrderedDict[str, int] = OrderedDict()

    @property
    def crashes(self) -> Mapping[str, int]:
        """By host."""
        return self._crashes

    def note(self, host: str) -> None:
        """One more crash, of a host that may be unknown."""
        if host:
            self._crashes[host] = self._crashes.pop(host, 0) + 1
            if len(self._crashes) > MAX_HOSTS:
                self._crashes.popitem(last=False)
