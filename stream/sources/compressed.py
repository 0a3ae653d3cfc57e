"""Reads plain, gzip, bzip2, xz and zstd files; the compression is detected by the first bytes."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import sys
import zlib
from typing import BinaryIO, Final, Literal, cast

import zstandard

from stream.errors import PageError, SettingsError
from stream.objects import path_of

STDIN: Final = "-"
DAMAGED: Final = (EOFError, OSError, zlib.error, lzma.LZMAError, zstandard.ZstdError)
"""Exceptions of reading a truncated or damaged file."""
Compression = Literal["gzip", "bzip2", "xz", "zstd"]
_PEEK: Final = 16
_BLOCK: Final = 1 << 16
_XZ: Final = b"\xfd7zXZ\x00"
_BZIP2_BLOCKS: Final = (b"1AY&SY", b"\x17rE8P\x90")
"""The magic numbers that follow `BZh` and a digit: of a block, or of the end of an empty stream."""


class CountingFile(io.RawIOBase):
    """A binary file that counts the bytes read from it, to report progress: from `start` on, where the file
    is."""

    def __init__(self, file: BinaryIO, *, owned: bool = True, start: int = 0) -> None:
        self._file = file
        self._owned = owned
        self.bytes_read = start

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        # read1, so that lines from a pipe arrive as they are written, not when a buffer is full.
        data = cast(io.BufferedReader, self._file).read1(len(buffer))
        buffer[: len(data)] = data
        self.bytes_read += len(data)
        return len(data)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        # fastwarc finds its position with a seek by 0 bytes, and panics if that raises.
        if (offset, whence) not in ((0, io.SEEK_CUR), (self.bytes_read, io.SEEK_SET)):
            raise io.UnsupportedOperation("seek")
        return self.bytes_read

    def close(self) -> None:
        if self._owned:
            self._file.close()
        super().close()


def open_counting(path: str) -> CountingFile:
    """Open a file, an object, or standard input for `-`. Raises PageError."""
    if path == STDIN:
        return CountingFile(sys.stdin.buffer, owned=False)
    try:
        return CountingFile(path_of(path).open("rb"))
    except OSError as error:
        raise PageError("damaged_source", f"{path}: cannot be opened: {error.strerror}") from None


def decompressed(raw: CountingFile) -> io.BufferedReader:
    """The decompressed content of a file, over all members or frames."""
    buffered = io.BufferedReader(raw, 1 << 16)
    match _compression(buffered.peek(_PEEK)[:_PEEK]):
        case "gzip":
            return cast(io.BufferedReader, gzip.GzipFile(fileobj=buffered))
        case "bzip2":
            return io.BufferedReader(cast(io.RawIOBase, bz2.BZ2File(buffered)), 1 << 16)
        case "xz":
            return io.BufferedReader(cast(io.RawIOBase, lzma.LZMAFile(buffered)), 1 << 16)
        case "zstd":
            reader = zstandard.ZstdDecompressor().stream_reader(buffered, read_across_frames=True)
            return io.BufferedReader(cast(io.RawIOBase, reader), 1 << 16)
    return cast(io.BufferedReader, buffered)


def _compression(start: bytes) -> Compression | None:
    if start.startswith(b"\x1f\x8b"):
        return "gzip"
    if start.startswith(b"BZh") and start[4:10] in _BZIP2_BLOCKS:
        return "bzip2"
    if start.startswith(_XZ):
        return "xz"
    if start.startswith(b"\x28\xb5\x2f\xfd") or (start[1:4] == b"\x2a\x4d\x18" and start[0] & 0xF0 == 0x50):
        return "zstd"
    return None


def behind_empty_member(path: str, start: int) -> int | None:
    """Return where the first member behind an empty one begins, at or behind the member at `start`; None if
    there is none, or the file is not compressed with gzip. Empty members are left where files are
    concatenated. All is decompressed up to there: raises one of DAMAGED."""
    with path_of(path).open("rb") as file:
        file.seek(start)
        if _compression(file.read(_PEEK)) != "gzip":
            file.seek(start)
            rest = decompressed(CountingFile(file, owned=False))
            while rest.read(_BLOCK):
                pass
            return None
        file.seek(start)
        empty_before, data = False, b""
        while data := data or file.read(_BLOCK):
            if not (data := data.lstrip(b"\0")):  # padding
                continue
            place = file.tell() - len(data)
            member, empty = zlib.decompressobj(zlib.MAX_WBITS | 16), True
            while not member.eof:
                if not data and not (data := file.read(_BLOCK)):
                    raise EOFError("the last member is truncated")
                empty &= not member.decompress(data)
                data = member.unused_data
            if empty_before and not empty:
                return place
            empty_before |= empty
    return None


def compression_of(path: str) -> Compression | None:
    """How the file is compressed. Raises PageError."""
    with open_counting(path) as raw:
        return _compression(io.BufferedReader(raw, _PEEK).peek(_PEEK)[:_PEEK])


def first_bytes(path: str, count: int = 512) -> bytes:
    """The first bytes of a file after decompression; empty if that fails. Raises SettingsError."""
    try:
        with open_counting(path) as raw:
            return decompressed(raw).read(count)
    except PageError as error:
        raise SettingsError(f"source {error.detail}") from None
    except DAMAGED:
        return b""
