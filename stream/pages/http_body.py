"""Decodes the body of a stored HTTP response: Transfer-Encoding and Content-Encoding, with bounded output."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Final

from fastwarc.stream_io import BrotliReader, ChunkedReader, WarcReader

from stream.errors import PageError
from stream.pages.decompression import GZIP_MAGIC, ZSTD_MAGIC, gunzip, too_large, undeflate, unzstd

_WHAT: Final = "body"


def decode_body(payload: bytes, transfer_encoding: str, content_encoding: str, limit: int) -> bytes:
    """Return the decoded body, at most `limit` bytes. Raises PageError `too_large` or `bad_compression`.

    Archives often store a decoded body with the headers of the encoded one. A body that is not chunked, or
    lacks the magic number of gzip or zstd, is therefore returned as it is.
    """
    if "chunked" in transfer_encoding.lower() and _starts_with_chunk(payload):
        payload = _read(ChunkedReader(io.BytesIO(payload)), limit)
    for name in reversed([part.strip().lower() for part in content_encoding.split(",")]):
        decode = _DECODERS.get(name)
        if decode is not None:
            payload = decode(payload, limit)
    return payload


def _starts_with_chunk(payload: bytes) -> bool:
    size = payload[:32].partition(b"\r\n")[0].partition(b";")[0].strip()
    return bool(size) and all(byte in b"0123456789abcdefABCDEF" for byte in size)


def _gzip(payload: bytes, limit: int) -> bytes:
    # Servers append newlines and worse. Browsers ignore bytes after the last member.
    return gunzip(payload, limit, _WHAT, strict=False) if payload.startswith(GZIP_MAGIC) else payload


def _zstd(payload: bytes, limit: int) -> bytes:
    return unzstd(payload, limit, _WHAT) if payload.startswith(ZSTD_MAGIC) else payload


def _brotli(payload: bytes, limit: int) -> bytes:
    return _read(BrotliReader(io.BytesIO(payload)), limit)


def _deflate(payload: bytes, limit: int) -> bytes:
    return undeflate(payload, limit, _WHAT)


_DECODERS: Final[dict[str, Callable[[bytes, int], bytes]]] = {
    "gzip": _gzip,
    "x-gzip": _gzip,
    "deflate": _deflate,
    "br": _brotli,
    "zstd": _zstd,
}


def _read(reader: WarcReader, limit: int) -> bytes:
    parts, size = [], 0
    try:
        while part := reader.read(1 << 16):
            parts.append(part)
            size += len(part)
            if size > limit:
                raise too_large(limit, _WHAT)
    except OSError as error:
        raise PageError("bad_compression", f"{_WHAT}: {error}") from error
    return b"".join(parts)
