"""gzip, deflate and zstd with a bound on what comes out, whatever the input claims."""

from __future__ import annotations

import io
import zlib
from collections.abc import Iterator
from typing import Final

import zstandard

from stream.errors import PageError

GZIP_MAGIC: Final = b"\x1f\x8b"
ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
MAX_WINDOW: Final = 1 << 27
"""Largest zstd window accepted, in bytes: a decoder allocates it before the first byte (RFC 8878 asks for at
least 8 MiB)."""
MAX_PARTS: Final = 1 << 16
"""Most gzip members or zstd frames in one body; each takes some microseconds, however little it holds."""

_FIRST: Final = 1 << 9
_STEP: Final = 1 << 16


def inflate(data: bytes, limit: int, what: str) -> bytes:
    """`data` decompressed where it begins like gzip or zstd, else as it is; at most `limit` bytes.

    Raises PageError `too_large` or `bad_compression`, naming `what`.
    """
    if data.startswith(GZIP_MAGIC):
        return gunzip(data, limit, what)
    if data.startswith(ZSTD_MAGIC):
        return unzstd(data, limit, what)
    if len(data) > limit:
        raise too_large(limit, what)
    return data


def gunzip(data: bytes, limit: int, what: str, *, strict: bool = True) -> bytes:
    """All members of a gzip stream. Zero padding behind the last is allowed, as in gzip(1); if not `strict`,
    so is anything else."""
    out = bytearray()
    place = 0
    for _ in range(MAX_PARTS):
        part, place = _inflated(data, place, zlib.MAX_WBITS | 16, limit - len(out), limit, what)
        out += part
        while data[place : place + 1] == b"\0":
            place += 1
        if place == len(data) or not (strict or data.startswith(GZIP_MAGIC, place)):
            return bytes(out)
    raise PageError("bad_compression", f"{what}: more than {MAX_PARTS} gzip members")


def undeflate(data: bytes, limit: int, what: str) -> bytes:
    """What Content-Encoding calls `deflate`: zlib by RFC 9110, and bare deflate as many servers send it."""
    try:
        return _inflated(data, 0, zlib.MAX_WBITS, limit, limit, what)[0]
    except PageError as error:
        if error.reason == "too_large":
            raise
        return _inflated(data, 0, -zlib.MAX_WBITS, limit, limit, what)[0]


def _inflated(data: bytes, place: int, window: int, room: int, limit: int, what: str) -> tuple[bytes, int]:
    """The stream that begins at `place`, of at most `room` bytes, and where it ends."""
    stream = zlib.decompressobj(window)
    out = bytearray()
    try:
        for piece in _pieces(data, place):
            out += stream.decompress(piece, room + 1 - len(out))
            if len(out) > room:
                raise too_large(limit, what)
            place += len(piece)
            if stream.eof:
                return bytes(out), place - len(stream.unused_data)
    except zlib.error as error:
        raise PageError("bad_compression", f"{what}: {error}") from None
    raise PageError("bad_compression", f"{what}: the compressed stream ends early")


def _pieces(data: bytes, place: int) -> Iterator[bytes]:
    """`data` from `place` on, in pieces: decoders copy what stands behind the end of a stream, and a page of
    a million tiny streams would be copied as often. So the first piece is small."""
    end = min(place + _FIRST, len(data))
    while place < len(data):
        yield data[place:end]
        place, end = end, min(end + _STEP, len(data))


def unzstd(data: bytes, limit: int, what: str) -> bytes:
    """All frames of a zstd stream.

    The library's bounded reader cannot tell a cut frame from a whole one, and its unbounded decoder can: so
    the size is measured first, in one small buffer, at a gigabyte a second.
    """
    decoder = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW)
    out = []
    try:
        reader = decoder.stream_reader(io.BytesIO(data), read_across_frames=True)
        buffer = bytearray(_STEP)
        size = 0
        while count := reader.readinto(buffer):
            size += count
            if size > limit:
                raise too_large(limit, what)
        place = parts = 0
        while place < len(data):
            frame = decoder.decompressobj()
            for piece in _pieces(data, place):
                out.append(frame.decompress(piece))
                place += len(piece)
                if frame.eof:
                    break
            else:
                raise PageError("bad_compression", f"{what}: zstd frame ends early")
            place -= len(frame.unused_data)
            parts += 1
            if parts > MAX_PARTS:
                raise PageError("bad_compression", f"{what}: more than {MAX_PARTS} zstd frames")
    except zstandard.ZstdError as error:
        raise PageError("bad_compression", f"{what}: {error}") from None
    return b"".join(out)


def too_large(limit: int, what: str) -> PageError:
    """The refusal of what decompresses to more than `limit` bytes."""
    return PageError("too_large", f"{what} is over {limit} bytes")
