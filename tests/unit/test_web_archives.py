"""A record of an archive costs itself, never what follows it, however servers and crawlers write it."""

from __future__ import annotations

import bz2
import gzip
import lzma
import time
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from stream.errors import PageError
from stream.pages.headers import MAX_HEADERS
from stream.pages.http_response import http_response
from stream.pages.members import Members
from stream.pages.page import PageMessageError, decode_page
from stream.pages.web_archive import ArchiveReader, ArchiveRecord
from stream.sources.warc import WarcSource
from tests.unit.test_sources import BODY, brotli, warc_record

LIMIT = 1 << 20
URL = "http://a.example/"
BINARY = bytes(range(256)) * 4
LONG = b"<html><body><p>" + b" ".join(b"word%d" % number for number in range(3000)) + b"</p></body></html>"
LARGE = b"<p>" + b" ".join(b"word%x" % (number * 7919 % 1_000_003) for number in range(100_000))


def http(head: str, body: bytes = BODY, *, end: str = "\n", fields: str = "", url: str = URL) -> bytes:
    """A response record whose HTTP header is `head`, with line ends made `end`."""
    return around(head.replace("\n", end).encode("latin-1") + body, fields=fields, url=url)


def around(
    content: bytes, *, fields: str = "", length: object = None, url: str = URL, version: str = "WARC/1.0"
) -> bytes:
    size = len(content) if length is None else length
    head = (
        f"{version}\r\nWARC-Type: response\r\nWARC-Target-URI: {url}\r\nWARC-Date: 2026-01-02T03:04:05Z\r\n"
        f"{fields}Content-Type: application/http; msgtype=response\r\nContent-Length: {size}\r\n\r\n"
    )
    return head.encode() + content + b"\r\n\r\n"


def read(path: Path, data: bytes) -> tuple[list[str], WarcSource]:
    """What becomes of the pages of an archive: `judged` or a reason."""
    path.write_bytes(data)
    source = WarcSource(str(path))
    source.strict = False
    outcomes = []
    for message in source:
        try:
            page = decode_page(message.value, LIMIT)
            outcomes.append("judged" if page.body in (BODY, LONG) else repr(page.body)[:60])
        except PageMessageError as error:
            outcomes.append(error.reason)
    return outcomes, source


OK = "HTTP/1.1 200 OK\nContent-Type: text/html\n"
HEADERS = {
    "CRLF": http(OK + "\n", end="\r\n"),
    "LF": http(OK + "\n"),
    "CR CR LF": http(OK + "\n", end="\r\r\n"),
    "mixed": http("HTTP/1.1 200 OK\r\nContent-Type: text/html\nServer: x\r\n\n"),
    "a long body behind LF": http(OK + "\n", LONG),
    "a folded field": http(OK + "X-Long: a\n b\n\tc\n\n", end="\r\n"),
    "a folded type": http("HTTP/1.1 200 OK\nContent-Type:\n text/html\n\n", end="\r\n"),
    "a space before the colon": http("HTTP/1.1 200 OK\nContent-Type : text/html\n\n"),
    "lower case": http("http/1.1 200 ok\ncontent-type: text/html\n\n"),
    "no space behind the colon": http("HTTP/1.1 200 OK\nContent-Type:text/html\n\n"),
    "a line without a colon": http(OK + "what is this\n\n"),
    "a line that begins with a space": http("HTTP/1.1 200 OK\n odd\nContent-Type: text/html\n\n"),
    "Latin-1 in a field": http(OK + "X-City: K\xf6ln\n\n"),
    "no reason phrase": http("HTTP/1.1 200\nContent-Type: text/html\n\n"),
    "two spaces in the status line": http("HTTP/1.1  200  OK\nContent-Type: text/html\n\n"),
    "HTTP/2": http("HTTP/2 200\nContent-Type: text/html\n\n"),
    "HTTP without a version": http("HTTP 200 OK\nContent-Type: text/html\n\n"),
    "ICY": http("ICY 200 OK\nContent-Type: text/html\n\n"),
    "an empty line before the status line": http("\n" + OK + "\n", end="\r\n"),
    "100 Continue before it": http("HTTP/1.1 100 Continue\n\n" + OK + "\n", end="\r\n"),
    "no status line": http("Content-Type: text/html\nServer: x\n\n"),
    "two types": http(OK + "Content-Type: text/html\n\n"),
    "no type of the record": http(OK + "\n").replace(
        b"Content-Type: application/http; msgtype=response\r\n", b""
    ),
    "WARC fields with LF": http(OK + "\n").replace(b"\r\n", b"\n"),
    "WARC/0.18": around((OK + "\n").encode() + BODY, version="WARC/0.18"),
    "WARC/1.1 with a space": around((OK + "\n").encode() + BODY, version="WARC/1.1 "),
    "lower-case fields": http(OK + "\n").replace(b"WARC-Target-URI", b"warc-target-uri"),
    "a folded WARC field": http(OK + "\n", fields="WARC-Odd: a\r\n b\r\n"),
    "a WARC field that is not UTF-8": http(OK + "\n", fields="X: y\r\n").replace(b"X: y", b"X: \xff"),
    "a WARC line without a colon": http(OK + "\n", fields="what\r\n"),
    "an address in brackets": http(OK + "\n", url=f"<{URL}>"),
    "a long header": http(OK + "".join(f"X-{number}: {'x' * 99}\n" for number in range(2000)) + "\n"),
    "a long WARC header": http(
        OK + "\n", fields="".join(f"X-{number}: {'x' * 99}\r\n" for number in range(2000))
    ),
    "no gap": http(OK + "\n")[:-4],
    "one line end behind it": http(OK + "\n")[:-2],
    "empty lines behind it": http(OK + "\n") + b"\r\n\n\n\r\n",
    "zero bytes behind it": http(OK + "\n") + bytes(100),
    "LF alone behind it": http(OK + "\n")[:-4] + b"\n\n",
}
"""Records of one page each."""


@pytest.mark.parametrize("name", HEADERS)
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_headers_that_are_written_otherwise_cost_nothing(
    name: str, pack: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    after = warc_record("http://a.example/after")
    outcomes, source = read(tmp_path / "a.warc", b"".join(map(pack, (HEADERS[name], after, HEADERS[name]))))
    assert outcomes == ["judged"] * 3
    assert not source.damages


DATES = {
    "2026-01-02T03:04:05Z": 1767323045000, "2026-01-02T03:04:05.123456Z": 1767323045123,
    "2026-01-02T04:04:05+01:00": 1767323045000, "2026-01-02T03:04:05": 1767323045000,
    "2026-01-02": 1767312000000, "Fri, 02 Jan 2026 03:04:05 GMT": 1767323045000,
    "20260102030405": None, "2026": None, "2026-13-01T00:00:00Z": None, "yesterday": None, "": None,
    "0000-01-01T00:00:00Z": None, "9999-12-31T23:59:59-14:00": None,
}  # fmt: skip
"""Milliseconds of what archivers write as the time of a record."""


@pytest.mark.parametrize("written", DATES)
def test_a_date_is_a_time_or_none(written: str, tmp_path: Path) -> None:
    record = warc_record(date=written)
    (message,) = _messages(tmp_path, record)
    assert decode_page(message, LIMIT).fetched_at == DATES[written]


COSTLY = {
    "no Content-Length": http(OK + "\n").replace(b"Content-Length", b"Content-Size"),
    "an empty Content-Length": around(b"x", length=""),
    "a negative Content-Length": around(b"x", length=-1),
    "a Content-Length in words": around(b"x", length="many"),
    "a Content-Length beyond numbers": around(b"x", length="9" * 5000),
    "a Content-Length beyond the file": around((OK + "\n").encode() + BODY, length=10_000),
    "a Content-Length beyond memory": around((OK + "\n").encode() + BODY, length=10**12),
    "no record": b"these are no fields\r\n\r\nnor is this\r\n\r\n",
    "an endless header": b"WARC/1.0\r\n" + b"X: y\r\n" * 300_000,
    "a truncated record": http(OK + "\n")[:-30],
    "a truncated header": http(OK + "\n")[:60],
}
"""Records that cannot be read."""


@pytest.mark.parametrize("name", COSTLY)
@pytest.mark.parametrize("pack", [bytes, gzip.compress, zstandard.compress, bz2.compress, lzma.compress])
def test_what_cannot_be_read_costs_one_record(
    name: str, pack: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    if name.endswith("beyond memory") and pack is bytes:
        pytest.skip("so many bytes are passed over, and none of them is kept to look for a record")
    pages = [warc_record(f"http://a.example/{number}") for number in range(3)]
    outcomes, source = read(tmp_path / "a.warc", b"".join(map(pack, (pages[0], COSTLY[name], *pages[1:]))))
    assert outcomes == ["judged"] * 3
    assert [each.pages for each in source.damages] == [1]
    with pytest.raises(PageError, match=r"damaged_source: .*a\.warc record at byte \d+: "):
        list(WarcSource(source.name))


HOSTILE = {
    "a field of very many lines": http(OK + "X: a\n" + " b\n" * 300_000 + "\n"),
    "a list of very many lines": http(OK + "Link: a\n" * 120_000 + "\n"),
    "headers that do not end": b"WARC/1.0\n" * 300_000,
    "records within one another": b"WARC/1.0\nContent-Length: 9000000\n\n" * 250_000,
}
"""What takes minutes if it is read again and again."""


@pytest.mark.parametrize("name", HOSTILE)
def test_archives_take_linear_time(name: str, tmp_path: Path) -> None:
    began = time.process_time()
    read(tmp_path / "a.warc", HOSTILE[name])
    assert time.process_time() - began < 10, "quadratic, it would take minutes"


def test_of_a_long_gap_only_the_beginning_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "a.warc"
    path.write_bytes(http(OK + "\n") + bytes(5 << 20) + http(OK + "\n"))
    with path.open("rb") as file:
        records = list(ArchiveReader(Members(file), LIMIT))
    assert [len(each.gap) for each in records if isinstance(each, ArchiveRecord)] == [MAX_HEADERS, 4]


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress, bz2.compress, lzma.compress])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_a_damaged_member_costs_its_record(
    pack: Callable[[bytes], bytes], share: float, tmp_path: Path
) -> None:
    members = [pack(warc_record(f"http://a.example/{number}", LONG)) for number in range(5)]
    members[2] = members[2][: int(share * len(members[2]))]
    outcomes, source = read(tmp_path / "a.warc", b"".join(members))
    assert outcomes == ["judged"] * 4
    assert len(source.damages) == 1
    assert f" {len(members[0] + members[1])}: " in source.damages[0].error


def test_bytes_behind_the_last_member_are_damage_and_the_records_behind_them_are_read(tmp_path: Path) -> None:
    member = gzip.compress(warc_record())
    outcomes, source = read(tmp_path / "a.warc.gz", member + b"neither member nor padding" + member)
    assert outcomes == ["judged"] * 2
    assert [each.pages for each in source.damages] == [1]


def test_a_page_about_archives_is_one_page(tmp_path: Path) -> None:
    """Its text has what a record begins with; its length tells that it goes on."""
    inner = b"<p>" + warc_record("http://inner.example/") + b"</p>"
    outcomes, source = read(tmp_path / "a.warc", warc_record(body=inner) + warc_record())
    assert (len(outcomes), outcomes[1], source.damages) == (2, "judged", [])


def cut(body: bytes, share: float = 0.6) -> bytes:
    return body[: int(len(body) * share)]


RAW = zlib.compressobj(wbits=-15)
DEFLATED = RAW.compress(LONG) + RAW.flush()
BODIES = {
    "gzip": ("gzip", gzip.compress(BODY), "judged"),
    "x-gzip": ("x-gzip", gzip.compress(BODY), "judged"),
    "GZIP": (" GZIP ", gzip.compress(BODY), "judged"),
    "deflate": ("deflate", zlib.compress(BODY), "judged"),
    "raw deflate": ("deflate", DEFLATED, "judged"),
    "br": ("br", brotli(BODY), "judged"),
    "zstd": ("zstd", zstandard.compress(BODY), "judged"),
    "two": ("deflate, gzip", gzip.compress(zlib.compress(BODY)), "judged"),
    "two members": ("gzip", gzip.compress(BODY[:9]) + gzip.compress(BODY[9:]), "judged"),
    "twice": ("gzip, gzip", gzip.compress(gzip.compress(BODY)), "judged"),
    "what the crawler accepts": ("gzip, deflate, br", gzip.compress(BODY), "judged"),
    "said twice, done once": ("gzip, gzip", gzip.compress(BODY), "judged"),
    "bytes behind gzip": ("gzip", gzip.compress(BODY) + b"\r\n<!-- x -->", "judged"),
    "bytes behind zstd": ("zstd", zstandard.compress(BODY) + b"\r\n", "judged"),
    "none": ("none", BODY, "judged"),
    "a charset": ("UTF-8", BODY, "judged"),
    **{
        f"decoded, with {name}": (name, BODY, "judged")
        for name in ("gzip", "x-gzip", "deflate", "br", "zstd", "compress", "br, gzip")
    },
    **{f"empty, with {name}": (name, b"", "b''") for name in ("gzip", "deflate", "br", "zstd")},
    **{
        f"not {name}": (name, BINARY, "bad_compression")
        for name in ("gzip", "deflate", "br", "zstd", "compress", "gzip, br")
    },
    "damaged gzip": ("gzip", gzip.compress(LONG)[:-8] + bytes(8), "bad_compression"),
    "gzip of which nothing is left": ("gzip", gzip.compress(LONG)[:12], "bad_compression"),
    "large gzip": ("gzip", gzip.compress(bytes(LIMIT + 1)), "too_large"),
    "large br": ("br", brotli(bytes(LIMIT + 1)), "too_large"),
    "large zstd": ("zstd", zstandard.compress(bytes(LIMIT + 1)), "too_large"),
    "large deflate": ("deflate", zlib.compress(bytes(LIMIT + 1)), "too_large"),
    "large": ("identity", bytes(LIMIT + 1), "too_large"),
    "as large as may be": ("identity", b"a" * LIMIT, "b'aaa"),
    "too many": (", ".join(["gzip"] * 9), gzip.compress(BODY), "bad_compression"),
}
"""Content-Encoding, the stored body, and what becomes of it."""


@pytest.mark.parametrize("name", BODIES)
def test_a_body_is_decoded_or_has_its_own_reason(name: str, tmp_path: Path) -> None:
    coding, body, expected = BODIES[name]
    records = http(f"{OK}Content-Encoding: {coding}\n\n", body) + warc_record("http://a.example/after")
    outcomes, source = read(tmp_path / "a.warc", records)
    assert outcomes[0].startswith(expected)
    assert outcomes[1:] == ["judged"]
    assert not source.damages


@pytest.mark.parametrize(
    ("coding", "body"),
    [
        ("gzip", gzip.compress(LONG)), ("deflate", zlib.compress(LONG)), ("deflate", DEFLATED),
        ("zstd", zstandard.compress(LARGE)), ("br", brotli(LARGE)),
    ],
)  # fmt: skip
def test_of_a_truncated_body_what_decodes_is_judged(coding: str, body: bytes, tmp_path: Path) -> None:
    truncated = http(f"{OK}Content-Encoding: {coding}\n\n", cut(body), fields="WARC-Truncated: length\r\n")
    (message,) = _messages(tmp_path, truncated)
    found = decode_page(message, 16 * LIMIT).body
    assert found is not None
    assert len(found) > 100
    assert any(whole != found and whole.startswith(found) for whole in (LONG, LARGE))


def _messages(path: Path, data: bytes) -> list[bytes]:
    (path / "a.warc").write_bytes(data)
    return [message.value for message in WarcSource(str(path / "a.warc"))]


def chunks(*parts: bytes, end: bytes = b"\r\n", last: bytes = b"0\r\n\r\n", extension: bytes = b"") -> bytes:
    return b"".join(b"%x%b%b%b%b" % (len(part), extension, end, part, end) for part in parts) + last


@pytest.mark.parametrize(
    ("stored", "body"),
    [
        (chunks(BODY), BODY),
        (chunks(BODY[:5], BODY[5:]), BODY),
        (chunks(BODY[:5], BODY[5:], end=b"\n", last=b"0\n\n"), BODY),
        (chunks(BODY, extension=b";name=value"), BODY),
        (chunks(BODY, extension=b"   "), BODY),
        (chunks(BODY, last=b"0\r\nTrailer: x\r\n\r\n"), BODY),
        (chunks(BODY, last=b""), BODY),
        (chunks(BODY)[:-10], BODY[:-3]),
        (BODY, BODY),
        (b"", b""),
        (b"0\r\n\r\n", b""),
        (b"face\r\nis a word and no size" + BODY, b"is a word and no size" + BODY),
        (b"5\r\nthat is long and no chunk", b"5\r\nthat is long and no chunk"),
        (chunks(BODY) + b"more", BODY),
        (chunks(b"abc", last=b"no chunk"), b"abc"),
    ],
)
def test_chunks_are_undone_as_far_as_there_are_any(stored: bytes, body: bytes, tmp_path: Path) -> None:
    (message,) = _messages(tmp_path, http(f"{OK}Transfer-Encoding: chunked\n\n", stored))
    assert decode_page(message, LIMIT).body == body


def test_a_body_that_is_too_large_for_a_message_is_too_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stream.sources.warc.MAX_BODY", 1 << 21)
    large = bytes(1 << 22)
    image = warc_record("http://a.example/film", large, content_type="video/mp4")
    records = warc_record(body=large), image, warc_record(body=large, status="404 Not Found"), warc_record()
    outcomes, source = read(tmp_path / "a.warc", b"".join(records))
    assert outcomes == ["too_large", "judged"]
    assert source.passed_over == {"content_type": 1, "http_status": 1}


@pytest.mark.parametrize("pack", [bytes, gzip.compress, zstandard.compress, bz2.compress, lzma.compress])
def test_a_place_names_one_record(pack: Callable[[bytes], bytes], tmp_path: Path) -> None:
    records = [warc_record(f"http://a.example/{number}") for number in range(6)]
    members = [pack(b"".join(records[:4])), *map(pack, records[4:])]
    (tmp_path / "a.warc").write_bytes(b"".join(members))
    places = [message.place for message in WarcSource(str(tmp_path / "a.warc"))]
    size = len(records[0])
    inside = [
        f"record at byte {n * size}" if pack is bytes else f"record at byte 0+{n * size}" for n in (1, 2, 3)
    ]
    own = [f"record at byte {len(b''.join(members[:count]))}" for count in (1, 2)]
    assert places == ["record at byte 0", *inside, *own]


def with_dictionary(records: list[bytes], *, packed: bool) -> bytes:
    dictionary = zstandard.train_dictionary(2000, [LONG[n : n + 300] for n in range(0, len(LONG) - 300, 60)])
    content = dictionary.as_bytes()
    content = zstandard.compress(content) if packed else content
    frames = [zstandard.ZstdCompressor(dict_data=dictionary).compress(each) for each in records]
    return b"\x5d\x2a\x4d\x18" + len(content).to_bytes(4, "little") + content + b"".join(frames)


@pytest.mark.parametrize("packed", [False, True])
def test_an_archive_with_its_dictionary_is_read(packed: bool, tmp_path: Path) -> None:
    records = [warc_record(f"http://a.example/{number}", LONG) for number in range(3)]
    outcomes, source = read(tmp_path / "a.warc.zst", with_dictionary(records, packed=packed))
    assert (outcomes, source.damages) == (["judged"] * 3, [])
    assert source.bytes_read == source.total_bytes


def test_the_status_of_a_response_is_read_and_odd_ones_are_no_pages() -> None:
    assert http_response(b"HTTP/1.1 404 Not Found\n\n").status == 404
    assert http_response(b"HTTP/1.1 abc\n\nbody") == (0, {}, b"body")
    assert http_response(b"HTTP/1.1 2000 OK\n\n").status == 0
    assert http_response(b"<p>HTTP/0.9 has no header") == (200, {}, b"<p>HTTP/0.9 has no header")
    assert http_response(b"HTTPS is not a status line\n\nnor this").status == 200
    assert http_response(b"") == (200, {}, b"")
    assert http_response(b"HTTP/1.1 200 OK\nA: b") == (200, {"a": "b"}, b"")
