"""Compresses what is written as the name of its file says."""

from __future__ import annotations

import bz2
import gzip
import lzma
from contextlib import nullcontext
from typing import Any, BinaryIO, Final

import zstandard

from stream.pages.members import Compression
from stream.stores.objects import AnyPath

_BY_SUFFIX: Final[dict[str, Compression]] = {".gz": "gzip", ".bz2": "bzip2", ".xz": "xz", ".zst": "zstd"}


def compression_by_name(path: AnyPath) -> Compression | None:
    """The compression that a file of this name has."""
    return _BY_SUFFIX.get(path.suffix.lower())


def compressing(kind: Compression | None, file: BinaryIO) -> Any:
    """A context manager: a file that compresses what is written to it."""
    match kind:
        case "gzip":
            return gzip.GzipFile("", "wb", fileobj=file, mtime=0)
        case "bzip2":
            return bz2.BZ2File(file, "wb")
        case "xz":
            return lzma.LZMAFile(file, "wb")
        case "zstd":
            return zstandard.ZstdCompressor().stream_writer(file, closefd=False)
    return nullcontext(file)
