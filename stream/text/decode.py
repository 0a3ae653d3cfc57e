"""Decoding of page bytes in any charset.

Sources of the charset, in order of precedence: byte order mark, `charset` of the message, `charset=` of the
content type, the page's own meta tag, detection. This is the order of the WHATWG HTML standard, with the
message's field added.
"""

from __future__ import annotations

import codecs
import re
from typing import Final

import cchardet
from resiliparse.parse.encoding import detect_encoding, map_encoding_to_html5

from stream.errors import PageError

META_BYTES: Final = 1024
"""Bytes of the page that are searched for a charset declaration (WHATWG: "prescan the first 1024 bytes")."""
SAMPLE_BYTES: Final = 65_536
"""Bytes of the page that the detector reads; it takes 50 ms per MB."""
MAX_CONTENT_TYPE: Final = 1024
"""Characters of a content type that are searched for a charset."""

_BOMS: Final = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
# No two \s* in a row: they would backtrack quadratically over a thousand blanks.
_CHARSET = re.compile(r"""charset\s*=\s*(?:["']\s*)?([^\s"';>]+)""", re.IGNORECASE)
_META = re.compile(rb"""<meta\b[^>]{0,500}?\bcharset\s*=\s*(?:["']\s*)?([^\s"'/>;]+)""", re.IGNORECASE)
_XML = re.compile(rb"""^\s*<\?xml\b[^>]{0,200}?\bencoding\s*=\s*["']([^"']+)""", re.IGNORECASE)

# Python codecs that cover less than what browsers decode under the same label -> the wider codec.
_WIDER: Final = {
    "gbk": "gb18030",
    "big5": "big5hkscs",
    "shift_jis": "cp932",
    "euc_kr": "cp949",
    "iso8859-11": "cp874",
}
# Labels used by pages or by the detector that are not in the WHATWG table.
_EXTRA: Final = {
    "cp936": "gb18030",
    "ms936": "gb18030",
    "cp932": "cp932",
    "cp949": "cp949",
    "uhc": "cp949",
    "johab": "johab",
    "cp950": "cp950",
    "big5hkscs": "big5hkscs",
    "hz-gb-2312": "hz",
    "iso-2022-kr": "iso2022_kr",
    "x-mac-cyrillic": "mac_cyrillic",
    "mac-cyrillic": "mac_cyrillic",
    "ibm855": "cp855",
    "utf-32": "utf-32",
    "utf-32le": "utf-32-le",
    "utf-32be": "utf-32-be",
}


def codec(label: str) -> str | None:
    """The Python codec for a charset label as pages write it, or None for an unknown one."""
    name = label.strip().strip("\"'").lower()
    if not name.isascii():
        return None
    for spelling in (name, name.replace("_", "-")):
        mapped = map_encoding_to_html5(spelling, fallback_utf8=False)
        if mapped is not None:
            return _WIDER.get(mapped, mapped)
        if spelling in _EXTRA:
            return _EXTRA[spelling]
    return None


def decode(body: bytes, charset: str | None = None, content_type: str | None = None) -> str:
    """The text of `body`. Malformed sequences become U+FFFD; a byte order mark is dropped.

    `charset` is a field of the message, `content_type` the HTTP header. Raises PageError `unknown_charset` if
    one of them names an unknown charset. An unknown charset in a meta tag is ignored, as in browsers.
    """
    for mark, name in _BOMS:
        if body.startswith(mark):
            return body[len(mark) :].decode(name, "replace")
    label = charset or _charset_of(content_type)
    if label is not None:
        name_or_none = codec(label)
        if name_or_none is None:
            raise PageError("unknown_charset", label[:100])
        return body.decode(name_or_none, "replace")
    declared = _declared(body)
    if declared is not None:
        return body.decode(declared, "replace")
    return body.decode(_detected(body), "replace")


def _charset_of(content_type: str | None) -> str | None:
    match = _CHARSET.search(content_type, 0, MAX_CONTENT_TYPE) if content_type else None
    return match.group(1) if match else None


def _declared(body: bytes) -> str | None:
    head = body[:META_BYTES]
    match = _META.search(head) or _XML.search(head)
    if match is None:
        return None
    name = codec(match.group(1).decode("ascii", "replace"))
    # The tag was readable as ASCII, so the page is not UTF-16 whatever it says (WHATWG prescan, step 3).
    return "utf-8" if name is not None and name.startswith("utf-16") else name


def _detected(body: bytes) -> str:
    sample = body[:SAMPLE_BYTES]
    try:
        # Text in another charset is practically never valid UTF-8. Not final: the sample may end inside a
        # character.
        codecs.getincrementaldecoder("utf-8")().decode(sample, final=False)
    except UnicodeDecodeError:
        guess = cchardet.detect(sample)["encoding"]
        name = codec(guess) if guess else None
        return name or codec(detect_encoding(sample) or "utf-8") or "utf-8"
    return "utf-8"
