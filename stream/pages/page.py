"""The page message that a crawler publishes: tolerant of encodings, strict about meaning.

Its contract is `schemas/page.schema.json` or, in Avro, `schemas/page.avsc`.
"""

from __future__ import annotations

import base64
import binascii
from datetime import datetime
from decimal import Decimal
from math import isfinite, nan
from numbers import Real
from typing import Any, Final, NamedTuple

import msgspec

from stream.errors import PageError
from stream.pages.decompression import inflate, too_large
from stream.pages.http_body import decode_content
from stream.pages.outside.outside import Outside
from stream.pages.scrapy_cluster import CrawlRecord, is_crawl_record
from stream.pages.times import milliseconds, page_time
from stream.text.lenient_json import decode

PAGE_BYTES: Final = 16 << 20
"""Default of the setting `page_bytes`."""
CONTENT: Final = ("html", "text", "body")
MESSAGE_CONTENT: Final = (*CONTENT, "warc_filename")
"""Fields of a message of which it has one."""
FRAME: Final = 5
"""Length of the header of a framed message: a zero byte and the schema id in 4 bytes, big-endian (Confluent's
wire format)."""
NAMES: Final = 12
"""Most names of fields that the detail of a rejection lists."""
_JSON_GROWTH: Final = 6
"""Most bytes in JSON of a byte of text, as in `\\u0001`."""
_OTHER_FIELDS: Final = 1 << 20
"""Bytes of a message that are not its content."""
_BYTES_OF_CHARACTER: Final = 4
"""Most bytes of a character in UTF-8."""
_NAME_BYTES: Final = 32
"""Most characters of a field's name in the detail of a rejection."""


NO_CONTENT: Final = "one of `html`, `text`, `body` and `warc_filename` is missing"
"""The detail of a page without content."""


class Page(msgspec.Struct, frozen=True, kw_only=True, gc=False):
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
    redirected_from: str | None = None
    """The URL that was asked for, if redirects led from there to `url`."""
    canonical_url: str | None = None
    """The canonical URL that the response names. Absent, an HTML page is searched for it."""
    quality: float | None = None
    """A number of your own: higher is better to keep. No verdict depends on it. NaN, as of a message that has
    what is no finite number, counts as none."""


_ABSENT: Final = msgspec.Raw()


class PageMessageError(PageError):
    """A page message that cannot be decoded. Carries its URL and time if these could be read."""

    def __init__(self, reason: str, detail: str, url: str | None, fetched_at: int | None) -> None:
        super().__init__(reason, detail)
        self.url = url
        self.fetched_at = fetched_at


class _Message(CrawlRecord, kw_only=True):
    """All fields of a page message; unknown ones are ignored."""

    text: str | None = None
    content_encoding: str | None = None
    warc_filename: str | None = None
    warc_offset: int | None = None
    omitted_bytes: int | None = None
    canonical_url: str | None = None
    quality: msgspec.Raw = _ABSENT
    """As it is written: a value of another type, or a number out of range, costs no page."""


class _Parsed(NamedTuple):
    """A message as it is parsed."""

    message: _Message
    body: bytes | None
    """The body if it came as bytes."""
    quality: object


class _ReadableFields(msgspec.Struct):
    """The fields that are still read from a message whose other fields have wrong types."""

    url: Any = None
    fetched_at: Any = None


def decode_page(value: bytes | None, page_bytes: int, outside: Outside | None = None) -> Page:
    """Return the page in a message's value: JSON, or Avro or JSON framed with a schema id; plain, gzip or
    zstd.

    Neither `html`, `text` nor the decoded `body` may exceed `page_bytes`, and what the message may have
    follows from it, however its content is escaped. Schemas and archived records that the message refers to
    come from `outside`.

    Raises FetchNeededError if one of these has to be fetched first. Raises PageMessageError with the reason
    `empty_message`, `malformed_json`, `missing_field`, `ambiguous_content`, `wrong_type`, `bad_base64`,
    `bad_compression`, `too_large`, `http_status`, or one of the reasons of `Outside` and `Schema`.
    """
    try:
        if not value:
            raise PageError("empty_message")
        document = inflate(value, _JSON_GROWTH * page_bytes + _OTHER_FIELDS, "message")
        fields = _decode_framed(document, outside) if document[:1] == b"\0" else document
        if isinstance(fields, bytes) and not fields.strip(b" \t\r\n"):
            raise PageError("empty_message")
    except PageError as error:
        raise PageMessageError(error.reason, error.detail, None, None) from None
    return _page_of(fields, page_bytes, outside)


def page_of_fields(fields: dict[str, Any], page_bytes: int) -> Page:
    """Return the page in the fields of a message (see `stream.pages.fields`). It equals that of their JSON,
    in half the time. Raises PageMessageError like `decode_page`."""
    if _is_as_in_json(fields):
        return _page_of(fields, page_bytes, None)
    return decode_page(msgspec.json.encode(fields), page_bytes)


def _is_as_in_json(fields: dict[str, Any]) -> bool:
    """Return whether JSON leaves the fields as they are: of bytes it makes strings, and None of floats that
    are not finite."""
    return all(
        isinstance(value, str | int)
        or (name == "body" and isinstance(value, bytes))
        or (name == "quality" and isinstance(value, float) and isfinite(value))
        for name, value in fields.items()
    )


def _page_of(fields: bytes | dict[str, Any], page_bytes: int, outside: Outside | None) -> Page:
    readable = _ReadableFields()
    try:
        try:
            parsed = _parse(fields)
        except msgspec.ValidationError as error:
            readable = _readable_fields(fields)
            raise PageError("wrong_type", str(error)) from None
        readable = _ReadableFields(parsed.message.url, parsed.message.fetched_at)
        return _page(parsed, page_bytes, outside)
    except PageError as error:
        url = readable.url if isinstance(readable.url, str) else None
        detail = error.detail
        if error.reason == "missing_field":
            detail = f"{detail}; the page has {_names(fields)}"
        raise PageMessageError(error.reason, detail, url, _time_or_none(readable.fetched_at)) from None


def _decode_framed(document: bytes, outside: Outside | None) -> bytes | dict[str, Any]:
    """Return the fields of a framed message, decoded by its schema."""
    if len(document) <= FRAME:
        raise PageError("malformed_json", "a zero byte, and no schema id with a record after it")
    number = int.from_bytes(document[1:FRAME], "big")
    if outside is None:
        raise PageError("unknown_schema", f"schema id {number}, but no schema registry is configured")
    return outside.schema(number).fields(document[FRAME:])


def _page(parsed: _Parsed, page_bytes: int, outside: Outside | None) -> Page:
    message, raw, quality = parsed
    if is_crawl_record(message):
        message.translate()
    if not message.url:
        raise PageError("missing_field", "`url` is missing")
    content = {name: getattr(message, name) for name in MESSAGE_CONTENT}
    if raw is not None:
        content["body"] = raw
    present = [name for name, value in content.items() if value] or [
        name for name, value in content.items() if value is not None
    ][:1]
    if not present and message.omitted_bytes is not None:
        raise PageError("too_large", f"a body of {message.omitted_bytes} bytes, which the message omits")
    if not present:
        raise PageError("missing_field", NO_CONTENT)
    if len(present) > 1:
        raise PageError("ambiguous_content", f"{' and '.join(present)} are set; a page has one of them")
    (only,) = present
    page = Page(
        url=message.url,
        html=_within(message.html, page_bytes, "html") if only == "html" else None,
        text=_within(message.text, page_bytes, "text") if only == "text" else None,
        body=_body(message, raw, page_bytes) if only == "body" else None,
        content_type=message.content_type or None,
        charset=message.charset or None,
        fetched_at=page_time(message.fetched_at),
        redirected_from=message.redirected_from or None,
        canonical_url=message.canonical_url or None,
        quality=quality_of(quality),
    )
    if only == "warc_filename":
        return _fill_from_archive(page, message, page_bytes, outside)
    return page


def _fill_from_archive(page: Page, message: _Message, page_bytes: int, outside: Outside | None) -> Page:
    """Return the page with the body, content type and time of the archived record that the message names."""
    if message.warc_offset is None:
        raise PageError("missing_field", "`warc_offset` is missing")
    if outside is None or message.warc_filename is None:
        raise PageError("bad_claim", "warc_filename, but no archive is configured")
    archived = outside.record(message.warc_filename, message.warc_offset, page_bytes)
    return msgspec.structs.replace(
        page,
        body=archived.body,
        content_type=page.content_type or archived.content_type,
        fetched_at=archived.fetched_at if page.fetched_at is None else page.fetched_at,
        canonical_url=page.canonical_url or archived.canonical_url,
    )


def _parse(fields: bytes | dict[str, Any]) -> _Parsed:
    """Parse a message. Raises msgspec.ValidationError or PageError."""
    if isinstance(fields, dict):
        return _of_fields(fields)
    try:
        message = decode(_MESSAGE, fields, b"quality")
        return _Parsed(message, None, _json_value(message.quality))
    except msgspec.ValidationError:
        raise
    except UnicodeDecodeError as error:
        detail = f"not UTF-8; Latin-1, perhaps: {error}"
    except msgspec.DecodeError as error:
        detail = str(error)
    except RecursionError:
        detail = "nested too deeply"
    raise PageError("malformed_json", detail)


def _of_fields(fields: dict[str, Any]) -> _Parsed:
    raw, fetched_at, quality = map(fields.get, ("body", "fetched_at", "quality"))
    if isinstance(raw, bytes):
        fields = {**fields, "body": None}
    if isinstance(fetched_at, datetime):
        fields = {**fields, "fetched_at": milliseconds(fetched_at)}
    if "quality" in fields:
        fields = {**fields, "quality": _ABSENT}
    message = msgspec.convert(fields, _Message)
    return _Parsed(message, raw if isinstance(raw, bytes) else None, quality)


def _json_value(raw: msgspec.Raw) -> object:
    """Return a value as JSON has it; of a number out of range, its text."""
    if raw == _ABSENT:
        return None
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return bytes(raw)


def _readable_fields(document: bytes | dict[str, Any]) -> _ReadableFields:
    if isinstance(document, dict):
        return _ReadableFields(document.get("url"), document.get("fetched_at"))
    try:
        return decode(_READABLE_FIELDS, document)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _ReadableFields()


def _names(document: bytes | dict[str, Any]) -> str:
    """Return the names of the fields that are set, for messages: the first NAMES of them."""
    try:
        fields = document if isinstance(document, dict) else decode(_ANY_FIELDS, document)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return "fields that cannot be read"
    names = [name for name, value in fields.items() if value is not None and value != _NULL]
    listed = ", ".join(
        f"`{name[:_NAME_BYTES]}`" if name.isprintable() else repr(name[:_NAME_BYTES])
        for name in names[:NAMES]
    )
    if len(names) > NAMES:
        listed += f" and {len(names) - NAMES:,} more"
    return listed or "no fields"


def _body(message: _Message, raw: bytes | None, page_bytes: int) -> bytes | None:
    body = raw
    if message.body is not None:
        try:
            body = base64.b64decode(message.body, validate=True)
        except (binascii.Error, ValueError) as error:
            raise PageError(
                "bad_base64", f"{error}; a `body` that is text belongs in `text` or `html`"
            ) from None
    if body is None:
        return None
    return decode_content(body, message.content_encoding, page_bytes)


def _within(content: str | None, page_bytes: int, name: str) -> str | None:
    """Return the content. Raises PageError `too_large`."""
    if (
        content is not None
        and _BYTES_OF_CHARACTER * len(content) > page_bytes
        and len(content.encode("utf-8", "surrogatepass")) > page_bytes
    ):
        raise too_large(page_bytes, f"`{name}`")
    return content


def quality_of(value: object) -> float | None:
    """Return the quality of a page: None if there is none, and NaN for what is no finite number."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, Real | Decimal):
        return nan
    try:
        number = float(value)
    except (OverflowError, ValueError):
        return nan
    return number if isfinite(number) else nan


def _time_or_none(moment: Any) -> int | None:
    try:
        return page_time(moment)
    except PageError:
        return None


_MESSAGE = msgspec.json.Decoder(_Message)
_READABLE_FIELDS = msgspec.json.Decoder(_ReadableFields)
_ANY_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_NULL: Final = msgspec.Raw(b"null")
