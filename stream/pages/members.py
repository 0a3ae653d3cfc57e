"""Decompresses files that consist of members: those of gzip, streams of bzip2 and xz, frames of zstd."""

from __future__ import annotations

import bz2
import io
import lzma
import re
import zlib
from collections import deque
from typing import Any, Final, Literal, Protocol

import zstandard

from stream.pages.decompression import MAX_WINDOW, unzstd

DAMAGED: Final = (EOFError, OSError, zlib.error, lzma.LZMAError, zstandard.ZstdError)
"""Exceptions of reading a truncated or damaged file."""
Compression = Literal["gzip", "bzip2", "xz", "zstd"]
MAX_DICTIONARY: Final = 16 << 20
"""Bytes of the largest zstd dictionary that is read, decompressed."""
_BLOCK: Final = 1 << 16
_PIECE: Final = 1 << 14
"""Bytes that are read of a compressed file at once: what is behind a member's end is copied with each."""
_ZSTD_PIECE: Final = 1 << 10
"""Bytes of compressed zstd that are decompressed at once: its decoder takes no limit of the output, and four
bytes may stand for 128 KiB."""
_LONGEST: Final = 10
"""Bytes that tell the compression."""
_MAGIC: Final[dict[Compression, re.Pattern[bytes]]] = {
    "gzip": re.compile(rb"\x1f\x8b\x08"),
    # `BZh`, a digit, and the magic number of a block or of the end of an empty stream.
    "bzip2": re.compile(rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)"),
    "xz": re.compile(rb"\xfd7zXZ\x00"),
    "zstd": re.compile(rb"\x28\xb5\x2f\xfd"),
}
_SKIPPABLE: Final = re.compile(rb"[\x50-\x5f]\x2a\x4d\x18", re.DOTALL)
_DICTIONARY: Final = b"\x5d\x2a\x4d\x18"
"""The frame that begins a `.warc.zst` whose records were compressed with a dictionary, which it holds
(https://iipc.github.io/warc-specifications/specifications/warc-zstd/)."""
FRAME: Final = 8
"""Bytes of the header of a skippable frame: its magic number and size."""
_LINE_END: Final = b"\r\n"
_FIRST: Final = frozenset(b"\x1fB\xfd\x28" + bytes(range(0x50, 0x60)))
"""First bytes of files that may be compressed."""


class Readable(Protocol):
    """What compressed bytes are read from."""

    def read(self, size: int, /) -> bytes | None:
        """Return at most `size` bytes; none at the end."""
        ...


def compression_of_bytes(start: bytes) -> Compression | None:
    """The compression of a file that begins so."""
    if _SKIPPABLE.match(start):
        return "zstd"
    if start.startswith(b"\x1f\x8b"):
        return "gzip"
    return next((kind for kind, magic in _MAGIC.items() if magic.match(start)), None)


def dictionary_bytes(start: bytes) -> int:
    """Return the size of the frame with a dictionary that begins an archive, by its first FRAME bytes; 0 if
    it has none."""
    return _frame_bytes(start) if start.startswith(_DICTIONARY) and len(start) >= FRAME else 0


def _frame_bytes(start: bytes) -> int:
    """Return the size of a skippable frame that begins so."""
    return FRAME + int.from_bytes(start[FRAME // 2 : FRAME], "little")


class Members(io.RawIOBase):
    """The decompressed content of a file, over all its members; of a file that is not compressed, itself.

    Zero bytes between members and behind the last one are padding. Other bytes there are damage, and so is a
    truncated member: reading raises one of DAMAGED.
    """

    def __init__(self, file: Readable, start: int = 0) -> None:
        """`start` is the place in the file from which it is read."""
        self._file = file
        self._end = start
        """Place in the file behind the bytes that were read."""
        self._input = b""
        self._recent = b""
        """The last bytes that were read, to look for members behind damage."""
        self._output = b""
        """Content that was decompressed and is not returned yet,"""
        self._size = 0
        """and the size of all that was decompressed."""
        self._begun = False
        self.kind: Compression | None = None
        """How the file is compressed, once it was read."""
        self._stream: Any = None
        self._dictionary: zstandard.ZstdCompressionDict | None = None
        self._starts: deque[tuple[int, int]] = deque()
        """Where members begin: in the content, and in the file."""
        self.dictionary_frame = b""
        """The frame with the dictionary of a `.warc.zst`, as it is stored."""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = self.block()
        count = min(len(buffer), len(data))
        buffer[:count] = data[:count]
        self._output = data[count:]
        while len(self._starts) > 1:
            self._starts.popleft()
        return count

    def block(self) -> bytes:
        """Return the next bytes of the content; none at its end. Raises one of DAMAGED."""
        data, self._output = self._output, b""
        while not data:
            if self._stream is None and not self._begin_member():
                return b""
            if self.kind is None:
                data, self._input = self._input or self._file.read(_BLOCK) or b"", b""
                self._size += len(data)
                return data
            data = self._decompress()
            self._size += len(data)
        return data

    def place(self, offset: int) -> tuple[int, int]:
        """Return where in the file the member begins that has the byte at `offset` of the content, and the
        offset within its content. Offsets have to be asked for in ascending order."""
        if not self._starts:
            return self._end, 0
        while len(self._starts) > 1 and self._starts[1][0] <= offset:
            self._starts.popleft()
        content, start = self._starts[0]
        return (start + offset, 0) if self.kind is None else (start, offset - content)

    def skip_damage(self, start: bytes) -> int | None:
        """Go on with the next member whose content begins with `start`, line ends before it aside, after an
        error. Returns the offset of its content, or None if there is none."""
        if self.kind is None:
            return None
        place = self._starts[-1][1] + 1
        while True:
            origin = self._end - len(self._recent)
            if magic := _MAGIC[self.kind].search(self._recent, max(0, place - origin)):
                member, place = origin + magic.start(), origin + magic.start() + 1
                self._input, self._stream = self._recent[magic.start() :], self._new_stream()
                if data := self._beginning(start):
                    offset, self._output = self._size, data
                    self._size += len(data)
                    self._starts.append((offset, member))
                    return offset
            else:
                place = max(place, self._end - _LONGEST)
                if not self._read():
                    self._input, self._stream = b"", None
                    return None

    def _beginning(self, start: bytes) -> bytes:
        """Return the first bytes of the content of a member if it begins with `start`."""
        data = b""
        try:
            while len(data.lstrip(_LINE_END)) < len(start) and self._stream is not None:
                data += self._decompress()
        except DAMAGED:
            return b""
        return data if data.lstrip(_LINE_END).startswith(start) else b""

    def _read(self) -> bool:
        """Read more of the file. Returns whether there was more."""
        data = self._file.read(_PIECE) or b""
        self._end += len(data)
        self._input += data
        self._recent = self._recent[-_BLOCK:] + data
        return bool(data)

    def _begin_member(self) -> bool:
        """Begin the next member. Returns False at the end of the file. Raises one of DAMAGED."""
        while True:
            self._look()
            place = self._end - len(self._input)
            if not self._begun:
                self._begun = True
                self.kind = compression_of_bytes(self._input)
                self._starts.append((0, place))
                if self.kind is None:
                    self._stream = self._file
                    return True
            if not self._input:
                return False
            if self.kind == "zstd" and _SKIPPABLE.match(self._input):
                self._skip_frame()
                continue
            if compression_of_bytes(self._input) != self.kind:
                raise OSError(f"the bytes at {place} are no {self.kind} member")
            self._stream = self._new_stream()
            self._starts.append((self._size, place))
            return True

    def _look(self) -> None:
        """Remove padding from the input, and read what tells whether a member begins there. No more: the rest
        of what a pipe has may be long in coming."""
        while True:
            if self._begun:
                self._input = self._input.lstrip(b"\0")
            tells = self._begun or not self._input or self._input[0] in _FIRST
            if len(self._input) >= _LONGEST or not tells or not self._read():
                return

    def _skip_frame(self) -> None:
        """Skip a skippable frame, and take the dictionary in it if the file begins with one."""
        size = _frame_bytes(self._input)
        is_dictionary = len(self._starts) == 1 and self._size == 0 and self._input.startswith(_DICTIONARY)
        if is_dictionary and size > MAX_DICTIONARY:
            raise OSError(f"a dictionary of {size} bytes")
        frame = bytearray()
        while size and (self._input or self._read()):
            part, self._input = self._input[:size], self._input[size:]
            size -= len(part)
            if is_dictionary:
                frame += part
        if size:
            raise EOFError("a skippable frame is truncated")
        if is_dictionary:
            self.dictionary_frame = bytes(frame)
            content = self.dictionary_frame[FRAME:]
            if compression_of_bytes(content) == "zstd":
                content = unzstd(content, MAX_DICTIONARY, "dictionary")
            self._dictionary = zstandard.ZstdCompressionDict(content)

    def _new_stream(self) -> Any:
        match self.kind:
            case "gzip":
                return zlib.decompressobj(zlib.MAX_WBITS | 16)
            case "bzip2":
                return bz2.BZ2Decompressor()
            case "xz":
                return lzma.LZMADecompressor(lzma.FORMAT_XZ)
        decoder = zstandard.ZstdDecompressor(dict_data=self._dictionary, max_window_size=MAX_WINDOW)
        return decoder.decompressobj(write_size=_BLOCK)

    def _decompress(self) -> bytes:
        """Return more of the content of the member; none if that takes more input. Raises one of DAMAGED."""
        stream = self._stream
        if not self._input and getattr(stream, "needs_input", True) and not self._read():
            raise EOFError("the file is truncated")
        data: bytes
        if self.kind == "zstd":
            piece, rest = self._input[:_ZSTD_PIECE], self._input[_ZSTD_PIECE:]
            data = stream.decompress(piece)
        else:
            data = stream.decompress(self._input, _BLOCK)
            rest = stream.unconsumed_tail if self.kind == "gzip" and not stream.eof else b""
        self._input = stream.unused_data + rest if stream.eof else rest
        if stream.eof:
            self._stream = None
        return data
