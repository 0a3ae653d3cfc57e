"""Web archives that are cut and glued: what was made is judged, rejected, passed over or damage."""

from __future__ import annotations

import bz2
import gzip
import lzma
import random
import re
from collections.abc import Callable
from itertools import accumulate
from typing import ClassVar, Final

import zstandard

from stream.pages.page import PageMessageError, decode_page
from stream.sources.warc import WarcSource
from tests.fuzz.decoder import Decoder

LIMIT: Final = 1 << 16
PACKS: Final[tuple[Callable[[bytes], bytes], ...]] = (
    bytes,
    lambda record: gzip.compress(record, 1),
    lambda record: zstandard.compress(record, 1),
    bz2.compress,
    lambda record: lzma.compress(record, preset=0),
)
GLUE: Final = (b"", b"", b"", b"\0" * 9)
"""What may stand between members."""
GAP: Final = b"\r\n \0"
LETTERS: Final = b"abcdefghij klmnopqrs<p>tuvwxyz0123456789\r\n"


class GluedArchives(Decoder):
    """`WarcSource` over archives of whole and cut records, with the oracle of what each of them is."""

    name: ClassVar = "glued archives"
    bytes_alone: ClassVar = False

    def __enter__(self) -> GluedArchives:
        self._path = self.directory() / "crawl.warc"
        return self

    def make(self, rng: random.Random) -> bytes:
        """A first byte for each record, which tells what it is, a zero byte, and the archive."""
        pack = rng.choice(PACKS)
        kinds, parts, records = bytearray(), [], []
        for number in range(rng.randrange(1, 7)):
            kind, record, after = _record(rng, number)
            data = pack(record + after)
            if rng.random() < 0.25:
                # The first bytes of a file tell its compression.
                kind, data = b"c", data[: rng.randrange(1 if parts else 10, len(data))]
            kinds += kind
            parts.append(data + (rng.choice(GLUE) if kind != b"c" else b""))
            records.append(record)
        if pack is bytes:
            _mark_swallowed(kinds, parts, records)
        if pack is bytes and rng.random() < 0.5:
            whole = b"".join(parts)
            size = rng.randrange(50, 5000)
            pack = rng.choice(PACKS[1:])
            parts = [pack(whole[start : start + size]) for start in range(0, len(whole), size)]
        return bytes(kinds) + b"\0" + b"".join(parts)

    def check(self, data: bytes) -> str:
        kinds, _, archive = data.partition(b"\0")
        self._path.write_bytes(archive)
        source = WarcSource(str(self._path))
        source.strict = False
        places: set[str | None] = set()
        outcomes: dict[int, str] = {}
        for message in source:
            number = int((message.url_hint or "").rpartition("/")[2])
            places.add(message.place)
            assert number not in outcomes, "a record is read twice"
            try:
                decode_page(message.value, LIMIT)
                outcomes[number] = "j"
            except PageMessageError as error:
                outcomes[number] = "t" if error.reason == "too_large" else "b"
        passed = sum(source.passed_over.values())
        assert len(places) == len(outcomes), "two pages have one place"
        assert list(outcomes) == sorted(outcomes), "pages are out of order"
        for number, kind in enumerate(kinds.decode()):
            assert kind in "pc" or outcomes.get(number) == kind, f"record {number} is {outcomes.get(number)}"
            assert kind != "p" or number not in outcomes, f"record {number} is a page"
        cut, runs = kinds.count(b"c"), len(re.findall(rb"c+", kinds))
        read = len(outcomes) + passed
        assert kinds.count(b"p") <= passed, "a record is neither passed over nor read"
        assert read <= len(kinds), "more records are read than were made"
        # What is cut one behind the other may be one place that cannot be read.
        assert read + source.damage_count >= len(kinds) - cut + runs, "a record is lost without a word"
        # What is read of a cut member may have bytes of the next one, which look like records.
        assert source.damage_count <= 4 * cut, "damage where there is none"
        return f"{runs} cut" if cut else "whole"


def _mark_swallowed(kinds: bytearray, parts: list[bytes], records: list[bytes]) -> None:
    """Count records as cut that a cut one before them has as its content, up to where its length ends before
    another record: nothing tells it from a page that shows an archive, which anybody may send."""
    starts = [0, *accumulate(map(len, parts))]
    for cut, record in enumerate(records):
        end = starts[cut] + len(record)
        for last in range(cut + 1, len(records)):
            least = starts[last] + min(len(records[last].rstrip(GAP)), len(parts[last]))
            if kinds[cut] == ord("c") and least <= end <= starts[last + 1]:
                kinds[cut : last + 1] = b"c" * (last + 1 - cut)


def _record(rng: random.Random, number: int) -> tuple[bytes, bytes, bytes]:
    """A letter that tells what the record is, the record, and the empty lines behind it."""
    end = rng.choice(("\r\n", "\r\n", "\n"))
    body = bytes(rng.choices(LETTERS, k=rng.choice((0, 3, 50, 3000))))
    kind, status, coding, letter = "response", 200, "", b"j"
    match rng.randrange(10):
        case 0:
            kind, letter = rng.choice(("request", "metadata", "revisit", "warcinfo", "", "odd")), b"p"
        case 1:
            status, letter = 404, b"p"
        case 2:
            body, letter = b"a" * (LIMIT + 1), b"t"
        case 3:
            coding, body, letter = "gzip", bytes(range(256)), b"b"
        case 4:
            coding, body = "gzip", gzip.compress(body)
        case 5:
            coding = rng.choice(("gzip", "br", "zstd", "klingon"))
    fields = [f"HTTP/1.1 {status} OK", "Content-Type: text/html"]
    fields += [f"Content-Encoding: {coding}"] if coding else []
    content = "".join(each + end for each in (*fields, "")).encode() + body
    lines = [
        rng.choice(("WARC/1.0", "WARC/1.1", "WARC/0.18")),
        f"WARC-Type: {kind}",
        f"WARC-Target-URI: http://a.example/{number}",
        "WARC-Date: 2026-01-02T03:04:05Z",
        "Content-Type: application/http; msgtype=response",
        f"Content-Length: {len(content)}",
    ]
    after = rng.choice((end * 2, end * 2, end * 3, "")).encode()
    return letter, "".join(each + end for each in (*lines, "")).encode() + content, after
