"""The page message a crawler publishes: tolerant on input, strict about what it means.

The contract of other programs: `schemas/page.schema.json`.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from datetime import datetime
from typing import Any, Final

import msgspec

from stream.errors import PageError
from stream.messages.compression import GZIP_MAGIC, gunzip, inflate, unzstd

CONTENT: Final = ("html", "text", "body")
EARLIEST: Final = -62_135_596_800_000
"""0001-01-01 in milliseconds since the epoch: times that RFC 3339 can write."""
LATEST: Final = 253_402_300_799_999

_SURROGATES = re.compile("[\ud800-\udfff]")


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """One crawled page: a URL and exactly one of `html`, `text` or `body`."""

    url: str
    html: str | None = None
    text: str | None = None
    body: bytes | None = None
    """Raw bytes in any charset (base64 in JSON)."""
    content_type: str | None = None
    charset: str | None = None
    fetched_at: int | None = None
    """Milliseconds since the epoch."""


class PageMessageError(PageError):
    """A page message that does not decode; carries what could still be read of it."""

    def __init__(self, reason: str, detail: str, url: str | None, fetched_at: int | None) -> None:
        super().__init__(reason, detail)
        self.url = url
        self.fetched_at = fetched_at


class _Message(msgspec.Struct):
    """The JSON, field by field; unknown fields are skipped."""

    url: str | None = None
    html: str | None = None
    text: str | None = None
    body: str | None = None
    content_type: str | None = None
    content_encoding: str | None = None
    charset: str | None = None
    fetched_at: int | str | None = None


class _Known(msgspec.Struct):
    """What is worth saving of a message whose other fields have wrong types."""

    url: Any = None
    fetched_at: Any = None


def decode_page(value: bytes | None, page_bytes: int) -> Page:
    """The page in a message's value: JSON, plain or compressed by gzip or zstd.

    Neither the JSON nor a decompressed `body` may be over `page_bytes`, and no more is allocated. Raises
    PageMessageError with the reason `empty_message`, `malformed_json`, `missing_field`, `ambiguous_content`,
    `wrong_type`, `bad_base64`, `bad_compression` or `too_large`; it carries the URL where one could be read.
    """
    known = _Known()
    try:
        if not value:
            raise PageError("empty_message")
        document = inflate(value, page_bytes, "message")
        if not document.strip(b" \t\r\n"):
            raise PageError("empty_message")
        try:
            message = _parsed(document)
        except msgspec.ValidationError as error:
            known = _known(document)
            raise PageError("wrong_type", str(error)) from None
        known = _Known(message.url, message.fetched_at)
        return _page(message, page_bytes)
    except PageError as error:
        url = known.url if isinstance(known.url, str) else None
        raise PageMessageError(error.reason, error.detail, url, _time_or_none(known.fetched_at)) from None


def _page(message: _Message, page_bytes: int) -> Page:
    if message.url is None:
        raise PageError("missing_field", "url")
    present = [name for name in CONTENT if getattr(message, name) is not None]
    if not present:
        raise PageError("missing_field", "one of html, text, body")
    if len(present) > 1:
        raise PageError("ambiguous_content", " and ".join(present))
    return Page(
        url=message.url,
        html=message.html,
        text=message.text,
        body=_body(message, page_bytes),
        content_type=message.content_type,
        charset=message.charset,
        fetched_at=_time(message.fetched_at),
    )


def _parsed(document: bytes) -> _Message:
    """Raises msgspec.ValidationError, or PageError `malformed_json`."""
    try:
        return _MESSAGE.decode(document)
    except msgspec.ValidationError:
        raise
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        detail = str(error)
    except RecursionError:
        raise PageError("malformed_json", "nested too deeply") from None
    return msgspec.convert(_lenient(document, detail), _Message)


def _lenient(document: bytes, detail: str) -> Any:
    """JSON with escapes of lone surrogates, which crawlers do write; they become U+FFFD. Raises PageError."""
    if b"\\u" not in document:
        raise PageError("malformed_json", detail)
    try:
        fields = json.loads(document)
    except (ValueError, RecursionError):
        raise PageError("malformed_json", detail) from None
    if not isinstance(fields, dict):
        return fields
    return {
        name: _SURROGATES.sub("�", field) if isinstance(field, str) else field
        for name, field in fields.items()
    }


def _known(document: bytes) -> _Known:
    try:
        return _KNOWN.decode(document)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _Known()


def _body(message: _Message, page_bytes: int) -> bytes | None:
    if message.body is None:
        return None
    try:
        body = base64.b64decode(message.body, validate=True)
    except (binascii.Error, ValueError) as error:
        raise PageError("bad_base64", str(error)) from None
    encoding = (message.content_encoding or "identity").strip().lower()
    if encoding in ("gzip", "x-gzip"):
        # Clients that decompress and still copy the header are common.
        return gunzip(body, page_bytes, "body") if body.startswith(GZIP_MAGIC) else body
    if encoding == "zstd":
        return unzstd(body, page_bytes, "body")
    if encoding != "identity":
        raise PageError("bad_compression", f"content_encoding {encoding[:40]!r}: gzip or zstd")
    return body


def _time(moment: Any) -> int | None:
    """Milliseconds of an RFC 3339 string or a number of milliseconds. Raises PageError `wrong_type`."""
    if moment is None:
        return None
    if isinstance(moment, str):
        try:
            parsed = msgspec.convert(moment, datetime)
        except msgspec.ValidationError:
            raise PageError("wrong_type", f"fetched_at: {moment[:60]!r} is not RFC 3339") from None
        if parsed.tzinfo is None:
            raise PageError("wrong_type", f"fetched_at: {moment[:60]!r} has no UTC offset")
        whole = parsed.replace(microsecond=0).timestamp()
        moment = int(whole) * 1000 + parsed.microsecond // 1000
    if type(moment) is not int or not EARLIEST <= moment <= LATEST:
        raise PageError("wrong_type", "fetched_at: out of range, milliseconds are expected")
    return moment


def _time_or_none(moment: Any) -> int | None:
    try:
        return _time(moment)
    except PageError:
        return None


_MESSAGE = msgspec.json.Decoder(_Message)
_KNOWN = msgspec.json.Decoder(_Known)
