"""The processor time allowed for a page, by its size and by earlier crashes of its host."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Final

BASE: Final = 0.1
"""Fraction of `page_deadline` allowed for an empty page; a page of `page_bytes` may take all of it. With the
defaults that is 1 s plus 0.56 s per MiB. Ordinary HTML takes 0.1 s per MiB."""
LEAST: Final = 0.25
"""Least fraction of that time left to a host. Each crash of its pages halves it."""
MAX_HOSTS: Final = 256
"""Hosts remembered. The host whose last crash is the longest ago is dropped first."""
MAX_NAME: Final = 255


def seconds(most: float, size: int, page_bytes: int, crashes: int = 0) -> float:
    """Processor time in seconds for a page of `size` bytes or characters whose host had `crashes` crashes.
    `most` is the setting `page_deadline`."""
    whole = most * (BASE + (1 - BASE) * min(1.0, size / page_bytes))
    return whole * max(LEAST, 0.5**crashes)


def host_of(url: str) -> str:
    """The host of a raw URL. Not validated; good enough to recognise the host again."""
    authority = url[: MAX_NAME + 16].partition("://")[2].partition("/")[0]
    return authority.rpartition("@")[2].partition(":")[0].lower()[:MAX_NAME]


class CrashedHosts:
    """Counts of children killed by pages, by host."""

    def __init__(self) -> None:
        self._crashes: OrderedDict[str, int] = OrderedDict()

    @property
    def crashes(self) -> Mapping[str, int]:
        """Crashes by host."""
        return self._crashes

    def note(self, host: str) -> None:
        """Count a crash. An empty `host` is unknown and not counted."""
        if host:
            self._crashes[host] = self._crashes.pop(host, 0) + 1
            if len(self._crashes) > MAX_HOSTS:
                self._crashes.popitem(last=False)
