"""The body of a stored HTTP response: chunks joined, Content-Encoding undone, output bounded."""

from __future__ import annotations

import io
import zlib
from collections.abc import Callable
from typing import Final

from fastwarc.stream_io import BrotliReader, ChunkedReader, WarcReader, ZstdReader


class UndecodableError(Exception):
    """The body is not what its headers say, or too large once decoded."""


def decode_body(payload: bytes, transfer_encoding: str, content_encoding: str, limit: int) -> bytes:
    """The entity as served. Raises UndecodableError, also beyond `limit` bytes.

    Archives often keep the headers of a transfer whose body they store decoded: a body that is not chunked,
    or lacks the magic number of gzip or zstd, is taken as it is.
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
    if not payload.startswith(b"\x1f\x8b"):
        return payload
    parts: list[bytes] = []
    while payload.startswith(b"\x1f\x8b"):
        part, payload = _inflate(payload, zlib.MAX_WBITS | 16, limit)
        parts.append(part)
        limit -= len(part)
    return b"".join(parts)


def _zstd(payload: bytes, limit: int) -> bytes:
    if not payload.startswith(b"\x28\xb5\x2f\xfd"):
        return payload
    return _read(ZstdReader(io.BytesIO(payload)), limit)


def _brotli(payload: bytes, limit: int) -> bytes:
    return _read(BrotliReader(io.BytesIO(payload)), limit)


def _deflate(payload: bytes, limit: int) -> bytes:
    # RFC 9110 means zlib; many servers send bare deflate.
    try:
        return _inflate(payload, zlib.MAX_WBITS, limit)[0]
    except UndecodableError:
        return _inflate(payload, -zlib.MAX_WBITS, limit)[0]


def _inflate(payload: bytes, window: int, limit: int) -> tuple[bytes, bytes]:
    """What was deflated, and what follows. By zlib: fastwarc's reader takes a cut-off body for whole."""
    inflater = zlib.decompressobj(window)
    try:
        decoded = inflater.decompress(payload, limit + 1)
    except zlib.error as error:
        raise UndecodableError(str(error)) from error
    if len(decoded) > limit or not inflater.eof:
        raise UndecodableError(f"cut off, or more than {limit} bytes")
    return decoded, inflater.unused_data


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
                raise UndecodableError(f"more than {limit} bytes")
    except OSError as error:
        raise UndecodableError(str(error)) from error
    return b"".join(parts)
