"""Compressed files: sorted fingerprints in blocks with checksums. `schemas/compressed.md` has the format."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Final, NoReturn

import numpy as np
import xxhash

from stream.errors import FingerprintFileError
from stream.fingerprint.lanes import WIDTHS, words_of
from stream.fingerprint.row import WORD
from stream.offline.compressed_blocks import LEAST_BLOCK, MOST_BLOCK, Compressed
from stream.output import writing

MAGIC: Final = b"\x89NDINDX\n"
VERSION: Final = 1
_HEADER: Final = struct.Struct("<8sHHIQQ8s16x")
_CHECK: Final = struct.Struct("<Q")
HEADER_BYTES: Final = _HEADER.size + _CHECK.size
NO_SCHEME: Final = "0" * 16


def write_compressed(path: Path, compressed: Compressed, scheme: str | None) -> int:
    """Write a compressed file (see `writing`) and return its size in bytes.

    `scheme` is the id of the fingerprints' scheme. Raises OutputError.
    """
    blocks = np.ascontiguousarray(compressed.blocks)
    header = _HEADER.pack(
        MAGIC,
        VERSION,
        compressed.width,
        blocks.shape[1],
        compressed.count,
        len(blocks),
        bytes.fromhex(scheme or NO_SCHEME),
    )
    keys = compressed.keys.astype("<u4" if compressed.width < WORD else "<u8")
    directory = b"".join(
        (
            compressed.lengths.tobytes(),
            compressed.counts.astype("<u2").tobytes(),
            np.array([_check(block) for block in blocks], "<u4").tobytes(),
            keys.tobytes(),
        )
    )
    with writing(path) as file:
        file.write(header + _CHECK.pack(xxhash.xxh3_64_intdigest(header)))
        file.write(directory + _CHECK.pack(xxhash.xxh3_64_intdigest(directory)))
        file.write(blocks.tobytes())
    return file.bytes


class CompressedFile:
    """A compressed file opened for reading: its directory in memory, its blocks memory-mapped.

    Raises FingerprintFileError, which names the file, if it is damaged, truncated, or of another format.
    """

    def __init__(self, path: Path) -> None:
        self.path: Final = path
        try:
            content = np.memmap(path, np.uint8, "r") if path.stat().st_size else np.zeros(0, np.uint8)
        except OSError as error:
            raise FingerprintFileError(f"file {path}: {error.strerror}") from None
        if bytes(content[:8]) != MAGIC:
            self._refuse("it is not a compressed file: the magic number is missing")
        if len(content) < HEADER_BYTES:
            self._refuse("its header is truncated")
        raw = content[:HEADER_BYTES].tobytes()
        _, version, width, block_bytes, count, blocks, scheme = _HEADER.unpack(raw[: _HEADER.size])
        if version != VERSION:
            self._refuse(f"version {version}; this program reads {VERSION}")
        if xxhash.xxh3_64_intdigest(raw[: _HEADER.size]) != _CHECK.unpack(raw[_HEADER.size :])[0]:
            self._refuse("its header is damaged: the checksum differs")
        if width not in WIDTHS or block_bytes % 8 or not LEAST_BLOCK <= block_bytes <= MOST_BLOCK:
            self._refuse(f"width {width} or blocks of {block_bytes} bytes: not supported by the format")
        words = words_of(width)
        key_bytes = 4 if width < WORD else words * 8
        parts = (width + 1, blocks * 2, blocks * 4, blocks * key_bytes)
        start = HEADER_BYTES
        end = start + sum(parts)
        if len(content) != end + _CHECK.size + blocks * block_bytes:
            self._refuse(f"{len(content)} bytes, but {end + _CHECK.size + blocks * block_bytes}"
                         " by its header")  # fmt: skip
        directory = content[start:end].tobytes()
        if (
            xxhash.xxh3_64_intdigest(directory)
            != _CHECK.unpack(content[end : end + _CHECK.size].tobytes())[0]
        ):
            self._refuse("its directory is damaged: the checksum differs")
        first, second, third = np.cumsum(parts[:-1]).tolist()
        keys = np.frombuffer(directory[third:], "<u4" if width < WORD else "<u8")
        self.width: Final[int] = width
        self.scheme: Final[str | None] = None if scheme.hex() == NO_SCHEME else scheme.hex()
        self.bytes: Final[int] = len(content)
        self._checks = np.frombuffer(directory[second:third], "<u4")
        self._compressed = Compressed(
            width,
            np.frombuffer(directory[:first], np.uint8),
            np.frombuffer(directory[first:second], "<u2").astype(np.uint16),
            keys.astype(np.uint64).reshape(blocks, words),
            np.asarray(content[end + _CHECK.size :]).reshape(blocks, block_bytes),
        )
        self.count: Final[int] = count
        if self._compressed.count != count:
            self._refuse(f"{self._compressed.count} fingerprints, but {count} by its header")

    @property
    def blocks(self) -> int:
        """Number of blocks."""
        return len(self._checks)

    def read(self, start: int, end: int) -> np.ndarray[tuple[int, ...], np.dtype[np.uint64]]:
        """The fingerprints (n, lanes) of the blocks [start, end), ascending. Raises FingerprintFileError."""
        for number in range(start, min(end, self.blocks)):
            if _check(self._compressed.blocks[number]) != int(self._checks[number]):
                self._refuse(f"block {number} is damaged: the checksum differs")
        try:
            return self._compressed.decode(np.arange(start, min(end, self.blocks)))
        except ValueError as error:
            self._refuse(f"blocks {start} to {end}: {error}")

    def _refuse(self, what: str) -> NoReturn:
        raise FingerprintFileError(f"file {self.path}: {what}")


def is_compressed_file(start: bytes) -> bool:
    """Whether a file with these first bytes is a compressed file, even of another version or damaged."""
    return start.startswith(MAGIC)


def _check(block: np.ndarray[tuple[int, ...], np.dtype[np.uint8]]) -> int:
    return int(xxhash.xxh3_64_intdigest(block.tobytes()) & 0xFFFFFFFF)
