"""Decodes the body of a stored HTTP response: Transfer-Encoding and Content-Encoding, with bounded output.

Archives often store a decoded body with the headers of the encoded one, and bodies that crawlers truncated.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from typing import Final

from fastwarc.stream_io import BrotliReader

from stream.errors import PageError
from stream.pages.content_type import is_binary
from stream.pages.decompression import GZIP_MAGIC, ZSTD_MAGIC, gunzip, too_large, undeflate, unzstd

MAX_CODINGS: Final = 8
"""Most content codings of one body."""

_WHAT: Final = "body"
_STEP: Final = 1 << 16
_CHUNK: Final = re.compile(rb"[ \t]*([0-9a-fA-F]{1,8})[ \t]*(?:;[^\n]*)?\r?\n")
_CHUNK_END: Final = re.compile(rb"\r?\n")


def decode_chunks(body: bytes, transfer_encoding: str) -> bytes:
    """Return a body without its chunks, up to where they end; one without chunks is returned as it is."""
    if "chunked" not in transfer_encoding.lower() or not (chunk := _CHUNK.match(body)):
        return body
    out = bytearray()
    while chunk and (size := int(chunk[1], 16)):
        start = chunk.end()
        out += body[start : start + size]
        end = _CHUNK_END.match(body, start + size)
        if end is None and start + size < len(body):
            return bytes(out) if len(out) > size else body  # the first one tells whether there are chunks
        chunk = _CHUNK.match(body, end.end()) if end else None
    return bytes(out)


def decode_content(body: bytes, content_encoding: str | None, limit: int) -> bytes:
    """Return a body without its content codings, at most `limit` bytes.

    Of a truncated body, what decodes is returned. A coding that the body does not have is ignored if another
    one is undone or if the body is text: then it was stored decoded. Raises PageError `too_large` or
    `bad_compression`.
    """
    names = [name.strip().lower() for name in (content_encoding or "").split(",")]
    names = [name for name in names if name not in ("", "identity")]
    if len(names) > MAX_CODINGS:
        raise PageError("bad_compression", f"{_WHAT}: {len(names)} content codings")
    undone, fault = False, None
    for name in reversed(names if body else ()):
        try:
            body, undone = _decode(body, name, limit), True
        except PageError as error:
            if error.reason == "too_large":
                raise
            fault = fault or error
    if fault and not undone and is_binary(body):
        raise fault
    if len(body) > limit:
        raise too_large(limit, _WHAT)
    return body


def _decode(body: bytes, name: str, limit: int) -> bytes:
    decoder = _DECODERS.get(name)
    if decoder is None:
        raise PageError("bad_compression", f"{_WHAT}: the content coding {name[:40]!r} is unknown")
    return decoder(body, limit)


def _gzip(body: bytes, limit: int) -> bytes:
    if not body.startswith(GZIP_MAGIC):
        raise PageError("bad_compression", f"{_WHAT}: no gzip")
    # Servers append newlines and worse. Browsers ignore bytes after the last member.
    return gunzip(body, limit, _WHAT, strict=False)


def _zstd(body: bytes, limit: int) -> bytes:
    if not body.startswith(ZSTD_MAGIC):
        raise PageError("bad_compression", f"{_WHAT}: no zstd")
    return unzstd(body, limit, _WHAT, strict=False)


def _deflate(body: bytes, limit: int) -> bytes:
    return undeflate(body, limit, _WHAT, strict=not is_binary(body))


def _brotli(body: bytes, limit: int) -> bytes:
    reader = BrotliReader(io.BytesIO(body))
    out = bytearray()
    try:
        while part := reader.read(_STEP):
            out += part
            if len(out) > limit:
                raise too_large(limit, _WHAT)
    except OSError as error:  # the reader does not tell truncated and damaged streams apart
        if not out or not is_binary(body):
            raise PageError("bad_compression", f"{_WHAT}: {error}") from None
    return bytes(out)


_DECODERS: Final[dict[str, Callable[[bytes, int], bytes]]] = {
    "gzip": _gzip,
    "x-gzip": _gzip,
    "deflate": _deflate,
    "br": _brotli,
    "zstd": _zstd,
}
