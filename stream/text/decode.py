"""Page bytes of any charset -> str.

The order of belief is that of the WHATWG HTML standard, with the publisher's word put before the page's: byte
order mark, `charset` of the message, `charset=` of the content type, the page's own meta tag, detection.
"""

from __future__ import annotations

import codecs
import re
from typing import Final

import cchardet
from resiliparse.parse.encoding import detect_encoding, map_encoding_to_html5

from stream.errors import PageError

META_BYTES: Final = 1024
"""How far a charset is looked for in the page itself (WHATWG: "prescan the first 1024 bytes")."""
SAMPLE_BYTES: Final = 65_536
"""How many bytes the detector reads: it takes 50 ms a MB."""
MAX_CONTENT_TYPE: Final = 1024
"""Characters of a content type that are read."""

_BOMS: Final = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
# Blanks belong to one \s* each: between two in a row, a thousand blanks could be shared in a thousand ways.
_CHARSET = re.compile(r"""charset\s*=\s*(?:["']\s*)?([^\s"';>]+)""", re.IGNORECASE)
_META = re.compile(rb"""<meta\b[^>]{0,500}?\bcharset\s*=\s*(?:["']\s*)?([^\s"'/>;]+)""", re.IGNORECASE)
_XML = re.compile(rb"""^\s*<\?xml\b[^>]{0,200}?\bencoding\s*=\s*["']([^"']+)""", re.IGNORECASE)

# Where Python's codec is narrower than the encoding browsers use under that name.
_WIDER: Final = {
    "gbk": "gb18030",
    "big5": "big5hkscs",
    "shift_jis": "cp932",
    "euc_kr": "cp949",
    "iso8859-11": "cp874",
}
# Names that pages and the detector use although the WHATWG table has no such label.
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
    """The text of `body`; malformed sequences become U+FFFD, a byte order mark is dropped.

    `charset` is the message's own field, `content_type` the HTTP header. Raises PageError `unknown_charset`
    when one of them names a charset that nobody knows; a meta tag that does is ignored, as browsers do.
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
    found = _CHARSET.search(content_type, 0, MAX_CONTENT_TYPE) if content_type else None
    return found.group(1) if found else None


def _declared(body: bytes) -> str | None:
    head = body[:META_BYTES]
    found = _META.search(head) or _XML.search(head)
    if found is None:
        return None
    name = codec(found.group(1).decode("ascii", "replace"))
    # The tag was readable as ASCII, so the page is not UTF-16 whatever it says (WHATWG prescan, step 3).
    return "utf-8" if name is not None and name.startswith("utf-16") else name


def _detected(body: bytes) -> str:
    sample = body[:SAMPLE_BYTES]
    try:
        # Text in another charset is practically never valid UTF-8; the end may be cut inside a character.
        codecs.getincrementaldecoder("utf-8")().decode(sample, final=False)
    except UnicodeDecodeError:
        guess = cchardet.detect(sample)["encoding"]
        name = codec(guess) if guess else None
        return name or codec(detect_encoding(sample) or "utf-8") or "utf-8"
    return "utf-8"
