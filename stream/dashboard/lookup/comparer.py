"""Compares two pages in the child process of look-ups. It imports no more than fingerprinting needs."""

from __future__ import annotations

import msgspec

from stream.fingerprint.row import Row
from stream.judge.explain.shingle_diff import Shingled, diff
from stream.page_rows.page_fingerprinter import PageFingerprinter
from stream.text.segment import units


class Comparer(PageFingerprinter):
    """Fingerprints pages, and compares the shingles of two."""

    def compare(self, anchor: bytes, page: bytes, page_bytes: int) -> bytes | Row:
        """Return the `ShingleDiff` of two page messages in msgpack, or the row that rejects one of them."""
        sides = []
        for value in (anchor, page):
            read = self.read_page(self.decode(value, page_bytes))
            if isinstance(read, Row):
                return read
            text = self.normalise(read.text)
            sides.append(Shingled.of(text, units(text), self.scheme.shingle))
        return msgspec.msgpack.encode(diff(*sides))
