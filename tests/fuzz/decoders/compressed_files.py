"""Compressed files: damaged ones, some with corrected checksums, as an attacker would make."""

from __future__ import annotations

import random
import struct
from typing import ClassVar

import numpy as np
import xxhash

from stream.errors import FingerprintFileError
from stream.fingerprint.lanes import WIDTHS, words_of
from stream.offline.compressed_blocks import encode, sort_words
from stream.offline.compressed_file import HEADER_BYTES, CompressedFile, write_compressed
from tests.fuzz.decoder import Decoder
from tests.fuzz.mutate import damaged

CHECK = 8
KINDS = 12
"""Whole files that all others are made from."""


class CompressedFiles(Decoder):
    """`CompressedFile`, and everything in it."""

    name: ClassVar = "compressed files"

    def __enter__(self) -> CompressedFiles:
        self._directory = self.directory()
        self._whole = [self._file(number) for number in range(KINDS)]
        return self

    def _file(self, number: int) -> bytes:
        width = WIDTHS[number % len(WIDTHS)]
        rng = np.random.default_rng(number)
        count = (0, 1, 40, 700)[number // len(WIDTHS) % 4]
        prints = rng.integers(0, 1 << 32, (count, words_of(width)), np.uint64)
        if width > 32:
            prints = prints << np.uint64(32) | rng.integers(0, 1 << 32, prints.shape, np.uint64)
        path = self._directory / "whole"
        write_compressed(path, encode(sort_words(prints), width), None)
        return path.read_bytes()

    def make(self, rng: random.Random) -> bytes:
        data = rng.choice(self._whole)
        if rng.random() < 0.1:
            return data
        head, rest = data[:HEADER_BYTES], data[HEADER_BYTES:]
        if rng.random() < 0.5:
            rest = damaged(rng, rest)
        else:
            head = damaged(rng, head)
        return _checked(head, rest) if rng.random() < 0.7 else head + rest

    def check(self, data: bytes) -> str:
        path = self._directory / "file"
        path.write_bytes(data)
        try:
            file = CompressedFile(path)
            read = file.read(0, file.blocks)
        except FingerprintFileError as error:
            return str(error).removeprefix(f"file {path}: ").partition(":")[0].rstrip("0123456789 ")[:24]
        assert len(read) == file.count
        return "read"


def _checked(head: bytes, rest: bytes) -> bytes:
    """The file with corrected checksums, at the places given by its own sizes."""
    if len(head) != HEADER_BYTES:
        return head + rest
    fields = head[:-CHECK]
    _, _, width, block_bytes, _, blocks = struct.unpack_from("<8sHHIQQ", fields)
    key_bytes = 4 if width < 64 else width // 8
    end = width + 1 + blocks * (6 + key_bytes)
    made = bytearray(rest)
    if 0 <= end <= len(made) - CHECK and blocks < 1 << 16:
        start = end + CHECK
        for number in range(blocks):
            block = bytes(made[start + number * block_bytes :][:block_bytes])
            at = width + 1 + 2 * blocks + 4 * number
            made[at : at + 4] = (xxhash.xxh3_64_intdigest(block) & 0xFFFFFFFF).to_bytes(4, "little")
        made[end:start] = xxhash.xxh3_64_intdigest(bytes(made[:end])).to_bytes(CHECK, "little")
    return fields + xxhash.xxh3_64_intdigest(fields).to_bytes(CHECK, "little") + bytes(made)
