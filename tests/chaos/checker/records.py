"""The journal, unpacked by hand as `schemas/journal.md` has it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from tests.oracle import OraclePage

Place = tuple[str, int, int]
"""Topic id, partition and offset of a page message."""


@dataclass(slots=True)
class JournalContent:
    """Unpacks the journal's records in order, and tracks the expected offset of each partition."""

    uuid: str
    expected: dict[tuple[str, int], int] = field(default_factory=dict)
    """By topic id and partition, the offset of the next page to judge."""
    lost: dict[tuple[str, int], list[tuple[int, int]]] = field(default_factory=dict)
    """Offsets [start, end) that were declared lost to retention."""
    redelivered: int = 0

    def admit_rows(self, value: bytes, offset: int) -> Iterator[tuple[Place, OraclePage, str | None, int]]:
        """Place, page, URL and length of every row of a record that is to be judged."""
        content = msgspec.msgpack.decode(value)
        assert content["version"] == 6
        url, _ = columns(content)
        first = 0
        for source in content["ranges"]:
            rows = source[6]
            since = self._admit(source)
            for row in range(first, first + rows):
                page_offset = int.from_bytes(content["offset"][8 * row : 8 * row + 8], "little")
                if since is not None and page_offset >= since:
                    place = (source[2], source[3], page_offset)
                    length = int.from_bytes(content["length"][4 * row : 4 * row + 4], "little")
                    yield place, self._page(content, offset, row), url[row], length
                elif since is not None:
                    self.redelivered += 1
            first += rows

    def _admit(self, source: list[Any]) -> int | None:
        """Return the offset from which rows of a source range are judged; None if the range lies behind a
        gap."""
        _, _, topic_id, partition, start, end, _, opening, lost, *_ = source
        key = topic_id, partition
        expected = self.expected.get(key)
        if expected is None or start > expected:
            if not opening:
                return None
            # The log starts there: what lay below it is gone.
            self.lost.setdefault(key, []).append((expected or 0, start))
            expected = start
        if lost and end > expected:
            self.lost.setdefault(key, []).append((expected, end))
        self.expected[key] = max(expected, end)
        return int(expected)

    def _page(self, content: dict[str, Any], offset: int, row: int) -> OraclePage:
        size = len(content["sketch"]) // max(1, len(content["status"]))
        digest = content["url_digest"][16 * row : 16 * row + 16]
        return OraclePage(
            f"{self.uuid[:8]}.{offset}.{row}",
            digest.hex() if any(digest) else None,
            int.from_bytes(content["fingerprint"][8 * row : 8 * row + 8], "little"),
            content["sketch"][size * row : size * row + size],
            content["status"][row],
        )


def columns(content: dict[str, Any]) -> tuple[list[str | None], list[bytes | None]]:
    """URLs and message keys of a record of rows."""
    at, found = 0, []
    for name in ("url", "key"):
        column = []
        for row in range(len(content["status"])):
            size = int.from_bytes(content[name][4 * row : 4 * row + 4], "little", signed=True)
            if size == -2:  # as the URL
                column.append(found[0][row])
            elif size == -1:  # none
                column.append(None)
            else:
                column.append(content["strings"][at : at + size])
                at += size
        found.append(column)
    assert at == len(content["strings"])
    url, key = found
    return [each and each.decode() for each in url], key
