"""Decoding of page bytes in any charset.

Sources of the charset, in order of precedence: byte order mark, `charset` of the message, `charset=` of the
content type, what the page declares itself, detection. This is the order of the WHATWG HTML standard, with
the message's field added.
"""

from __future__ import annotations

import codecs
import re
from typing import Final, Literal

import cchardet
from resiliparse.parse.encoding import detect_encoding, map_encoding_to_html5

from stream.errors import PageError
from stream.text.declared_charset import label_of_xml, labels_of_meta

SAMPLE_BYTES: Final = 65_536
"""Bytes of the page that the detector reads; it takes 50 ms per MB."""

Kind = Literal["text", "html", "xml"]
"""What a page is. Plain text declares no charset."""
_BOMS: Final = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # begins with that of UTF-16
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_ESCAPES: Final = (
    (re.compile(rb"\x1b\$(?:[@B]|\([@BD])|\x1b\((?:I|J)"), "iso-2022-jp"),
    (re.compile(rb"\x1b\$\)C"), "iso-2022-kr"),
)
"""Escape sequences of charsets all of whose bytes are ASCII."""
_WIDE: Final = 1024
"""Bytes from which UTF-16 without a byte order mark is told, by the zero bytes of its ASCII characters."""
_NO_TEXT: Final = re.compile("[\0-\x08\x0b\x0e-\x1f\ufffd\ufffe\uffff]")

# Python codecs that cover less than what browsers decode under the same label -> the wider codec.
_WIDER: Final = {
    "gbk": "gb18030",
    "big5": "big5hkscs",
    "shift_jis": "cp932",
    "euc_kr": "cp949",
    "iso8859-11": "cp874",
    "iso2022_jp": "iso2022_jp_ext",
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
    "csiso2022kr": "iso2022_kr",
    "x-user-defined": "cp1252",  # as in a meta tag
    "x-mac-cyrillic": "mac_cyrillic",
    "x-mac-ukrainian": "mac_cyrillic",
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


def decode(body: bytes, charset: str | None = None, header: str | None = None, kind: Kind = "html") -> str:
    """The text of `body`. Malformed sequences become U+FFFD; a byte order mark is dropped.

    `charset` is a field of the message, `header` the label in the HTTP header. Raises PageError
    `unknown_charset` if the message names an unknown charset. One in the header or in the page is ignored, as
    in browsers.
    """
    for mark, name in _BOMS:
        if body.startswith(mark):
            return body[len(mark) :].decode(name, "replace")
    if charset:
        named = codec(charset)
        if named is None:
            raise PageError("unknown_charset", charset[:100])
    else:
        named = codec(header) if header else None
    return body.decode(named or _declared(body, kind) or detected(body), "replace")


def _declared(body: bytes, kind: Kind) -> str | None:
    if kind == "text":
        return None
    of_xml = label_of_xml(body)
    if kind == "xml" and of_xml and (name := codec(of_xml)):
        return _of_ascii(name)
    for label in labels_of_meta(body):
        if name := codec(label):
            return _of_ascii(name)
    return _of_ascii(name) if of_xml and (name := codec(of_xml)) else None


def _of_ascii(name: str) -> str:
    """The codec for a declaration that was readable as ASCII: of no UTF-16, whatever it says (WHATWG prescan,
    step 3)."""
    return "utf-8" if name.startswith("utf-16") else name


def detected(body: bytes) -> str:
    """The codec that the bytes look like."""
    sample = body[:SAMPLE_BYTES]
    if name := utf_16(sample):
        return name
    try:
        # Text in another charset is practically never valid UTF-8. Not final: the sample may end inside a
        # character.
        codecs.utf_8_decode(sample, "strict", False)
    except UnicodeDecodeError:
        guess = cchardet.detect(sample)["encoding"]
        name = codec(guess) if guess else None
        return name or codec(detect_encoding(sample) or "utf-8") or "utf-8"
    for escape, label in _ESCAPES if b"\x1b" in sample else ():
        if escape.search(sample) and (name := codec(label)):
            return name
    return "utf-8"


def utf_16(body: bytes) -> str | None:
    """The codec of UTF-16 without a byte order mark, if the bytes are such text with markup or of a Latin
    script."""
    sample = body[: min(_WIDE, len(body) & ~1)]
    if b"\0" not in sample:
        return None
    zeros = sample[::2].count(0), sample[1::2].count(0)
    if 8 * max(zeros) <= len(sample):
        return None
    name = "utf-16-be" if zeros[0] > zeros[1] else "utf-16-le"
    return None if _NO_TEXT.search(sample.decode(name, "replace")[:-1]) else name
