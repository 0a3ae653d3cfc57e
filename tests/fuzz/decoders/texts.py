"""Texts in every script: compiled loops and reference functions agree."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import ClassVar

import numpy as np

from stream.fingerprint.fingerprinter import Fingerprinter
from stream.fingerprint.seed import PUBLIC_SEED, hash_keys, unit_keys
from stream.fingerprint.tokens import plain_tokens
from stream.fingerprint.tokens_compiled import scanned_tokens
from stream.text.normalise import reference
from stream.text.normalise_compiled import encoded, normalised_points
from tests.fuzz.decoder import Decoder
from tests.fuzz.mutate import STRINGS

KEYS = hash_keys(PUBLIC_SEED), unit_keys(PUBLIC_SEED)
SEPARATOR = "\n%\n"
CHARACTERS = "aZ09_ -,.。，你好世界々ｶﾞがéàﷺ각가ᄀᆨＡⅣ\0ไที่ខ្មែहि்ণ\u0308\u00ad\u200b\u0345ßŒσς𠀀😀👩\u200d👩"
RANGES = ((0, 0x250), (0x300, 0x600), (0x900, 0x1100), (0x1100, 0x1200), (0x3040, 0x3100), (0x4E00, 0x9FFF),
          (0xAC00, 0xD7A4), (0xF900, 0xFFFE), (0x1D000, 0x1F900), (0x20000, 0x2A6D0))  # fmt: skip


class TextsTwice(Decoder):
    """`normalised_points` and `scanned_tokens` against the standard library and `plain_tokens`."""

    name: ClassVar = "texts"

    def __init__(self) -> None:
        super().__init__()
        self._fingerprinter = Fingerprinter()

    def make(self, rng: random.Random) -> bytes:
        texts = [_text(rng) for _ in range(rng.choice((1, 2, 8)))]
        return SEPARATOR.join(texts).encode("utf-8", "replace")

    def check(self, data: bytes) -> str:
        texts = data.decode("utf-8", "replace").split(SEPARATOR)
        points = normalised_points(texts)
        assert [bytes(each) for each in encoded(points)] == [reference(text).encode() for text in texts]
        scanned, plain = scanned_tokens(points, *KEYS), plain_tokens(points, *KEYS, "rjieba")
        assert np.array_equal(scanned.bounds, plain.bounds)
        assert np.array_equal(scanned.hashes, plain.hashes)
        assert np.array_equal(scanned.unit_bounds, plain.unit_bounds)
        assert np.array_equal(scanned.units, plain.units)
        counts = [end - start for start, end in pairwise(scanned.bounds.tolist())]
        if len(texts) > 1:
            for found, count in zip(self._fingerprinter.texts(texts), counts, strict=True):
                assert found.tokens == count
        return "tokens" if any(counts) else "no tokens"


def _text(rng: random.Random) -> str:
    parts = []
    for _ in range(rng.choice((1, 3, 9))):
        match rng.randrange(4):
            case 0:
                parts.append(rng.choice(STRINGS))
            case 1:
                first, end = rng.choice(RANGES)
                parts.append("".join(chr(rng.randrange(first, end)) for _ in range(rng.choice((1, 5, 60)))))
            case 2:
                parts.append("".join(rng.choices(CHARACTERS, k=rng.choice((2, 20, 150)))))
            case _:
                parts.append(rng.choice(CHARACTERS) * rng.choice((1, 2, 40)))
    return "".join(parts)
