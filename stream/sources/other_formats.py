"""Formats that are not read, with what makes one of them that is."""

from __future__ import annotations

import re
from typing import Final, NamedTuple


class _Format(NamedTuple):
    begins: re.Pattern[bytes]
    name: str
    advice: str
    """With `{0}` for the file."""


_UNPACK: Final = "unpack it first, and name the files in it"
_PIPE: Final = "read it through a pipe, `{tool} -dc {{0}} | neardup scan - --format FORMAT`"
_CONVERT: Final = "make JSON Lines, CSV or Parquet of it first"
_FORMATS: Final = (
    _Format(re.compile(rb"filedesc:"), "an ARC archive, the format before WARC",
            "convert it first, `warcio recompress {0} NEW.warc.gz`"),
    _Format(re.compile(rb"PK\x03\x04"), "a ZIP file",
            _UNPACK + "; of a WACZ archive, `unzip {0} 'archive/*'`"),
    _Format(re.compile(rb".{257}ustar", re.DOTALL), "a TAR file", _UNPACK + ", `tar -xf {0}`"),
    _Format(re.compile(rb"7z\xbc\xaf\x27\x1c"), "a 7z file", _UNPACK + ", `7z x {0}`"),
    _Format(re.compile(rb"Rar!\x1a\x07"), "a RAR file", _UNPACK + ", `unrar x {0}`"),
    _Format(re.compile(rb"From: <Saved by|(?:[\w-]+:[^\n]*\n)*MIME-Version:", re.I), "an MHTML page",
            "save it as HTML"),
    _Format(re.compile(rb"ARROW1\0\0|\xff\xff\xff\xff.{4}\x10\0\0\0", re.DOTALL), "an Arrow file",
            "convert it first, `datasets.load_from_disk(DIRECTORY).to_parquet(NEW)`"),
    _Format(re.compile(rb"Obj\x01"), "an Avro file", _CONVERT),
    _Format(re.compile(rb"ORC"), "an ORC file", _CONVERT),
    _Format(re.compile(rb"version https://git-lfs"), "a pointer of Git LFS",
            "fetch what it stands for, `git lfs pull`"),
    _Format(re.compile(rb"\x04\x22\x4d\x18"), "compressed with LZ4", _PIPE.format(tool="lz4")),
    _Format(re.compile(rb"LZIP"), "compressed with lzip", _PIPE.format(tool="lzip")),
    _Format(re.compile(rb"\x1f\x9d"), "compressed with compress", _PIPE.format(tool="gzip")),
    _Format(re.compile(rb"\xff\x06\0\0sNaPpY"), "compressed with Snappy", _PIPE.format(tool="snzip")),
    _Format(re.compile(rb"\x5d\0\0"), "compressed with LZMA", _PIPE.format(tool="xz --format=lzma")),
)  # fmt: skip


def other_format(path: str, start: bytes) -> str | None:
    """Say what a file that begins so is, and what makes pages of it; None if it is of no such format."""
    for each in _FORMATS:
        if each.begins.match(start):
            return f"{each.name}; {each.advice.format(path)}"
    return None
