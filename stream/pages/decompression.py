"""Decompression of gzip, deflate and zstd with a limit on the output, whatever the input claims."""

from __future__ import annotations

import io
import zlib
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from typing import Final

import zstandard

from stream.errors import PageError

GZIP_MAGIC: Final = b"\x1f\x8b"
ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
MAX_WINDOW: Final = 1 << 27
"""Largest zstd window accepted, in bytes. A decoder allocates it up front. RFC 8878 asks decoders to support
at least 8 MiB."""
MAX_PARTS: Final = 1 << 16
"""Most gzip members or zstd frames in one body. Even an empty one takes some microseconds."""

_FIRST: Final = 1 << 9
_STEP: Final = 1 << 16


def inflate(data: bytes, limit: int, what: str) -> bytes:
    """`data`, decompressed if it begins with the magic number of gzip or zstd; at most `limit` bytes.

    Raises PageError `too_large` or `bad_compression`, with `what` in the detail.
    """
    if data.startswith(GZIP_MAGIC):
        return gunzip(data, limit, what)
    if data.startswith(ZSTD_MAGIC):
        return unzstd(data, limit, what)
    if len(data) > limit:
        raise too_large(limit, what)
    return data


def gunzip(data: bytes, limit: int, what: str, *, strict: bool = True) -> bytes:
    """Decompress all members of a gzip stream. Zero padding after the last is allowed, as in gzip(1). If not
    `strict`, other trailing bytes are ignored, and of a truncated stream what can be is decompressed."""
    out = bytearray()
    place = 0
    for _ in range(MAX_PARTS):
        part, place, whole = _inflate(data, place, zlib.MAX_WBITS | 16, limit - len(out), limit, what)
        out += part
        if not whole:
            return _of_truncated(bytes(out), what, strict)
        while data[place : place + 1] == b"\0":
            place += 1
        if place == len(data) or not (strict or data.startswith(GZIP_MAGIC, place)):
            return bytes(out)
    raise PageError("bad_compression", f"{what}: more than {MAX_PARTS} gzip members")


def undeflate(data: bytes, limit: int, what: str, *, strict: bool = True) -> bytes:
    """Decompress the Content-Encoding `deflate`: zlib as in RFC 9110, or raw deflate, which many servers
    send. If not `strict`, of a truncated stream what can be is decompressed."""
    try:
        out, _, whole = _inflate(data, 0, zlib.MAX_WBITS, limit, limit, what)
    except PageError as error:
        if error.reason == "too_large":
            raise
        out, _, whole = _inflate(data, 0, -zlib.MAX_WBITS, limit, limit, what)
    return out if whole else _of_truncated(out, what, strict)


def _of_truncated(out: bytes, what: str, strict: bool) -> bytes:
    if strict or not out:
        raise PageError("bad_compression", f"{what}: the compressed stream ends early")
    return out


def _inflate(
    data: bytes, place: int, window: int, room: int, limit: int, what: str
) -> tuple[bytes, int, bool]:
    """Decompress the zlib stream at `place` to at most `room` bytes. Returns the output, the stream's end,
    and whether the stream is whole."""
    stream = zlib.decompressobj(window)
    out = bytearray()
    try:
        for piece in _pieces(data, place):
            out += stream.decompress(piece, room + 1 - len(out))
            if len(out) > room:
                raise too_large(limit, what)
            place += len(piece)
            if stream.eof:
                return bytes(out), place - len(stream.unused_data), True
    except zlib.error as error:
        raise PageError("bad_compression", f"{what}: {error}") from None
    return bytes(out), place, False


def _pieces(data: bytes, place: int) -> Iterator[bytes]:
    """Yield `data` from `place` on, in pieces of which the first is small.

    A decoder copies the input after the end of a stream, so a body of many tiny streams would otherwise
    take quadratic time.
    """
    end = min(place + _FIRST, len(data))
    while place < len(data):
        yield data[place:end]
        place, end = end, min(end + _STEP, len(data))


def unzstd(data: bytes, limit: int, what: str, *, strict: bool = True) -> bytes:
    """Decompress all frames of a zstd stream. If not `strict`, trailing bytes are ignored, and of a truncated
    stream what can be is decompressed.

    Only the library's unbounded decoder notices a truncated frame. A first pass with the bounded reader
    therefore measures the size, in one small buffer, at 1 GB/s.
    """
    decoder = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW)
    out = []
    try:
        reader = decoder.stream_reader(io.BytesIO(data), read_across_frames=True)
        buffer = bytearray(_STEP)
        size = 0
        with nullcontext() if strict else suppress(zstandard.ZstdError):  # at trailing bytes
            while count := reader.readinto(buffer):
                size += count
                if size > limit:
                    raise too_large(limit, what)
        place = parts = 0
        while place < len(data) and (strict or not parts or data.startswith(ZSTD_MAGIC, place)):
            frame = decoder.decompressobj()
            for piece in _pieces(data, place):
                out.append(frame.decompress(piece))
                place += len(piece)
                if frame.eof:
                    break
            else:
                return _of_truncated(b"".join(out), what, strict)
            place -= len(frame.unused_data)
            parts += 1
            if parts > MAX_PARTS:
                raise PageError("bad_compression", f"{what}: more than {MAX_PARTS} zstd frames")
    except zstandard.ZstdError as error:
        raise PageError("bad_compression", f"{what}: {error}") from None
    return b"".join(out)


def too_large(limit: int, what: str) -> PageError:
    """Return the error for content of more than `limit` bytes after decompression."""
    return PageError("too_large", f"{what} is over {limit} bytes")
