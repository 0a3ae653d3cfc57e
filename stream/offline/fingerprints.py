"""Reads files of fingerprints, in chunks.

These are compressed files, NumPy arrays, lines of hex digits as `neardup fingerprint` prints them, JSON Lines
with a field `fingerprint`, such as verdicts, and state directories, of which the live anchors are read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from stream.errors import FingerprintFileError, SchemeMismatchError, SettingsError
from stream.fingerprint.lanes import WIDTHS, as_words
from stream.offline.compressed_file import CompressedFile, is_compressed_file
from stream.pages.members import DAMAGED
from stream.sources.compressed import decompressed, first_bytes, is_read_once, open_counting
from stream.sources.source import Source
from stream.tables.arrays import U64
from stream.tables.store.rocks import state_directory

CHUNK: Final = 1 << 16
"""Fingerprints per chunk."""
BLOCKS: Final = 384
"""Blocks of a compressed file per chunk; they contain about CHUNK fingerprints."""
_NPY: Final = b"\x93NUMPY"
_HEX: Final = re.compile(rb"([0-9a-fA-F]{8}|[0-9a-fA-F]{16}|[0-9a-fA-F]{32})(\s|$)")
_FINGERPRINT: Final = re.compile(rb'"fingerprint"\s*:')
_PAGE: Final = re.compile(rb'"(html|text|body)"\s*:')
_UNREADY: Final = re.compile(rb"\((insufficient|rejected)")


class _Record(msgspec.Struct):
    """The fields that are read from a JSON line."""

    fingerprint: str | msgspec.UnsetType | None = msgspec.UNSET
    url: str | None = None
    scheme: str | None = None


@dataclass(frozen=True, slots=True)
class NamedFingerprints:
    """Fingerprints, with names if the file has them."""

    words: U64
    """Shape (n, lanes)."""
    names: list[str] | None
    """URL of each, or the rest of its line; None if the format has no names."""


@dataclass(slots=True)
class FingerprintFile:
    """A file of fingerprints. Iterating yields its chunks in order, once. Raises FingerprintFileError,
    SettingsError."""

    name: str
    width: int
    scheme: str | None
    """Id of the scheme, if the file has it. In JSON Lines it may appear only in a later line."""
    chunks: Iterator[NamedFingerprints]
    count: int | None
    """Number of fingerprints, if known."""
    sources: Sequence[Source] = ()
    """What its pages are read from, if it has pages."""
    skipped: int = field(default=0)
    """Number of records without a fingerprint read so far."""

    def __iter__(self) -> Iterator[NamedFingerprints]:
        return self.chunks


def open_fingerprints(path: str, width: int | None = None) -> FingerprintFile | None:
    """The fingerprints at `path`, or None if it contains pages. `width` applies to NumPy arrays only, whose
    elements may be fingerprints of 32 or of 64 bits. Raises FingerprintFileError, SettingsError."""
    read_once = is_read_once(path)
    if not read_once and not Path(path).exists():
        raise SettingsError(f"source {path}: no such file or directory")
    if not read_once and Path(path).is_dir():
        directory = state_directory(Path(path))
        return None if directory is None else _state(directory)
    start = b"" if read_once else first_bytes(path, 4096)
    if is_compressed_file(start):
        return _index(path)
    if start.startswith(_NPY):
        return _array(path, width)
    first = next((line for line in start.splitlines() if line.strip()), b"")
    if digits := _HEX.match(first.strip()):
        return _lines(path, len(digits[1]) * 4)
    if read_once or _UNREADY.match(first.strip()):
        return _lines(path, 64)
    if (
        first.lstrip(b"\xef\xbb\xbf").startswith(b"{")
        and _FINGERPRINT.search(start)
        and not _PAGE.search(start)
    ):
        return _records(path)
    return None


def is_fingerprint(line: bytes) -> bool:
    """Whether a line is a fingerprint or a record with one, rather than a page message."""
    text = line.strip()
    record = text.startswith(b"{") and _FINGERPRINT.search(text) and not _PAGE.search(text)
    return bool(record or _HEX.match(text) or _UNREADY.match(text))


def _state(directory: Path) -> FingerprintFile:
    from stream.judge.state.live import (
        live_anchors,  # imports compiled loops, which takes a third of a second
    )

    anchors = live_anchors(directory)
    words = anchors.fingerprints
    return FingerprintFile(str(directory), anchors.width, anchors.scheme, _slices(words), len(words))


def _index(path: str) -> FingerprintFile:
    compressed = CompressedFile(Path(path))
    chunks = (
        NamedFingerprints(compressed.read(first, first + BLOCKS), None)
        for first in range(0, compressed.blocks, BLOCKS)
    )
    return FingerprintFile(path, compressed.width, compressed.scheme, chunks, compressed.count)


def _array(path: str, width: int | None) -> FingerprintFile:
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise FingerprintFileError(f"source {path}: {error}") from None
    if array.dtype == np.uint32 and array.ndim == 1:
        array, width = array.astype(np.uint64), width or 32
    width = width or (128 if array.ndim == 2 and array.shape[1] == 2 else 64)
    try:
        words = as_words(array, width)
    except SettingsError as error:
        raise FingerprintFileError(f"source {path}: {error}") from None
    return FingerprintFile(path, width, None, _slices(words), len(words))


def _slices(words: U64) -> Iterator[NamedFingerprints]:
    for first in range(0, len(words), CHUNK):
        yield NamedFingerprints(np.asarray(words[first : first + CHUNK]), None)


def _lines(path: str, width: int) -> FingerprintFile:
    def chunks() -> Iterator[NamedFingerprints]:
        digits: list[bytes] = []
        names: list[str] = []
        for number, line in enumerate(_read_lines(path), 1):
            parts = line.split(maxsplit=1)
            if not parts:
                continue
            if _UNREADY.match(line.strip()):
                file.skipped += 1
                continue
            if len(parts[0]) * 4 != width or not _HEX.match(parts[0]):
                raise FingerprintFileError(f"source {path} line {number}: expected {width // 4} hex digits")
            digits.append(parts[0])
            names.append(parts[1].strip().decode(errors="replace") if len(parts) > 1 else "")
            if len(digits) == CHUNK:
                yield _from_hex(b"".join(digits), names, width)
                digits, names = [], []
        if digits:
            yield _from_hex(b"".join(digits), names, width)

    file = FingerprintFile(path, width, None, chunks(), None)
    return file


def _records(path: str) -> FingerprintFile:
    decode = msgspec.json.Decoder(_Record).decode

    def chunks() -> Iterator[NamedFingerprints]:
        digits: list[bytes] = []
        names: list[str] = []
        for number, line in enumerate(_read_lines(path), 1):
            where = f"source {path} line {number}"
            if not line.strip():
                continue
            try:
                record = decode(line.removeprefix(b"\xef\xbb\xbf"))
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise FingerprintFileError(f"{where}: {error}") from None
            if record.fingerprint is msgspec.UNSET:
                raise FingerprintFileError(f"{where}: it has no field `fingerprint`, unlike the lines before")
            if record.fingerprint is None:  # of a page that is too short, or rejected
                file.skipped += 1
                continue
            if record.scheme is not None and file.scheme not in (None, record.scheme):
                raise SchemeMismatchError(
                    f"{where}: scheme {record.scheme}, but the lines before have {file.scheme}"
                )
            file.scheme = record.scheme or file.scheme
            encoded = record.fingerprint.encode()
            if len(encoded) * 4 != width or not _HEX.fullmatch(encoded):
                raise FingerprintFileError(f"{where}: `fingerprint` is not {width // 4} hex digits")
            digits.append(encoded)
            names.append(record.url or "")
            if len(digits) == CHUNK:
                yield _from_hex(b"".join(digits), names, width)
                digits, names = [], []
        if digits:
            yield _from_hex(b"".join(digits), names, width)

    width, scheme = _first_record(path)
    file = FingerprintFile(path, width, scheme, chunks(), None)
    return file


def _first_record(path: str) -> tuple[int, str | None]:
    """Width and scheme id of the first line that has a fingerprint."""
    for number, line in enumerate(_read_lines(path), 1):
        try:
            record = msgspec.json.decode(line.removeprefix(b"\xef\xbb\xbf"), type=_Record)
        except (msgspec.DecodeError, UnicodeDecodeError):
            break  # reported when the chunks are read
        if isinstance(record.fingerprint, str):
            width = len(record.fingerprint) * 4
            if width not in WIDTHS:
                what = f"{record.fingerprint!r} is not a fingerprint"
                raise FingerprintFileError(f"source {path} line {number}: {what}")
            return width, record.scheme
    return 64, None


def _read_lines(path: str) -> Iterator[bytes]:
    with open_counting(path) as raw:
        try:
            yield from decompressed(raw)
        except DAMAGED as error:
            raise FingerprintFileError(f"source {path}: {error}") from error


def _from_hex(digits: bytes, names: list[str], width: int) -> NamedFingerprints:
    kind = ">u4" if width < 64 else ">u8"
    words = np.frombuffer(bytes.fromhex(digits.decode()), kind).astype(np.uint64)
    return NamedFingerprints(words.reshape(len(names), -1), names)
