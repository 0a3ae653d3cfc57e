"""Text -> fingerprint, margins and sketch, against peers, interleaved on the same texts.

Ours also segments, keeps margins and sketches. Of the peers, `simhash` makes a fingerprint only, of 4-grams
of characters, in Python with NumPy. rensa makes 128 minima in Rust, and fast-dedup a SimHash or 128 minima in
C++; both are given sets of five words (Chinese: characters), which are cut before the clock starts.
"""

from __future__ import annotations

import json
import lzma
import random
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import xxhash

from stream.errors import NeardupError
from stream.fingerprint.fingerprinter import Fingerprinter
from stream.fingerprint.seed import PUBLIC_SEED, hash_keys, unit_keys
from stream.fingerprint.tokens_compiled import scanned_tokens
from stream.text.normalise import normalise
from stream.text.normalise_compiled import normalised_points
from stream.text.segment import segment

TEXT_BYTES = 4800
"""A web page's main text."""
TEXTS = 200
WORDS = 5
MINIMA = 128
BATCH = 16
"""Texts segmented at once: about as many as the fingerprinter takes."""


def run(rounds: int = 5, data: Path | None = None) -> dict[str, Any]:
    """Per language: microseconds a text of ours, of segmenting and hashing alone (compiled, and plainly by
    the libraries), of simhash by its own 4-grams, and of the other peers; ratios are medians of the rounds'
    ratios. Raises NeardupError without the peers."""
    try:
        from fast_dedup import MinHash, SimHash
        from rensa import RMinHash
        from simhash import Simhash
    except ImportError as error:
        raise NeardupError(f"a peer is missing ({error}): `make bench` installs it") from None

    def added(made: Any, shingles: set[str], *weight: int) -> None:
        for each in shingles:
            made.update(each, *weight)

    fingerprinter = Fingerprinter()
    fingerprinter.warm()
    report: dict[str, Any] = {}
    for language in ("zh", "en"):
        texts = list(_revisions(data, language)) if data else _generated(language)
        size = sum(len(text.encode()) for text in texts) / 1e6
        sets = [_shingles(text, language) for text in texts]
        seconds: dict[str, list[float]] = {}
        works: dict[str, Callable[[], object]] = {
            "ours": lambda texts=texts: fingerprinter.texts(texts),  # type: ignore[misc]
            "segment_and_hash": lambda texts=texts: _segment_and_hash(texts),  # type: ignore[misc]
            "plain_segment_and_hash": lambda texts=texts: _plain_segment_and_hash(texts),  # type: ignore[misc]
            "simhash": lambda texts=texts: [Simhash(text) for text in texts],  # type: ignore[misc]
            "rensa": lambda sets=sets: RMinHash.digest_matrix_from_token_sets(sets, MINIMA, 42),  # type: ignore[misc]
            "fast_dedup_minhash": lambda sets=sets: [added(MinHash(MINIMA), each) for each in sets],  # type: ignore[misc]
            "fast_dedup_simhash": lambda sets=sets: [added(SimHash(), each, 1) for each in sets],  # type: ignore[misc]
        }
        for _ in range(rounds):
            for name, work in works.items():
                seconds.setdefault(name, []).append(_seconds(work))
        median = {name: statistics.median(each) for name, each in seconds.items()}

        def ratio(of: str, to: str, seconds: dict[str, list[float]] = seconds) -> float:
            return round(statistics.median(x / y for x, y in zip(seconds[of], seconds[to], strict=True)), 2)

        report[language] = {
            "texts": len(texts),
            "megabytes": round(size, 2),
            **{f"{name}_us_a_text": round(each / len(texts) * 1e6, 1) for name, each in median.items()},
            "ours_mb_s": round(size / median["ours"], 2),
            "times_simhash": ratio("simhash", "ours"),
            "times_rensa": ratio("rensa", "ours"),
            "times_fast_dedup_minhash": ratio("fast_dedup_minhash", "ours"),
            "times_fast_dedup_simhash": ratio("fast_dedup_simhash", "ours"),
            "times_segment_and_hash": ratio("ours", "segment_and_hash"),
            "times_plain_segment_and_hash": ratio("ours", "plain_segment_and_hash"),
        }
    return report


def _seconds(work: Callable[[], object]) -> float:
    """Processor time: neither side waits for anything, and a busy machine must not decide the ratio."""
    began = time.process_time()
    work()
    return time.process_time() - began


def _segment_and_hash(texts: list[str]) -> None:
    """What no fingerprint of words can do without: normalised, cut, every token hashed."""
    for first in range(0, len(texts), BATCH):
        points = normalised_points(texts[first : first + BATCH])
        scanned_tokens(points, hash_keys(PUBLIC_SEED), unit_keys(PUBLIC_SEED))


def _plain_segment_and_hash(texts: list[str]) -> None:
    """The same by the libraries: Unicode's normalisation, rjieba, xxh3."""
    for text in texts:
        for token in segment(normalise(text), "rjieba"):
            xxhash.xxh3_64_intdigest(token)


def _shingles(text: str, language: str) -> set[str]:
    words = text.split() if language == "en" else list(text)
    joint = " " if language == "en" else ""
    return {joint.join(words[first : first + WORDS]) for first in range(len(words) - WORDS + 1)}


def _revisions(data: Path, language: str) -> Iterator[str]:
    with lzma.open(data / f"revisions-{language}.jsonl.xz", "rt", encoding="utf-8") as lines:
        for number, line in enumerate(lines):
            if number == TEXTS:
                return
            text = json.loads(line)["a"].encode()[:TEXT_BYTES].decode(errors="ignore")
            yield text.encode("ascii", "ignore").decode() if language == "en" else text


def _generated(language: str) -> list[str]:
    """Text of words with Zipf's frequencies; seeded."""
    rng = random.Random(language)
    if language == "zh":
        words = [chr(rng.randint(0x4E00, 0x7000)) + chr(rng.randint(0x4E00, 0x7000)) for _ in range(5000)]
        words += list("的一是了我不人在他有这个上们来到时大地为子中你说生国年着就那和要")
        ends, count = ["", "", "", "", "，", "。\n"], TEXT_BYTES // 6
    else:
        letters = "etaoinshrdlucmfwypvbgkjqxz"
        words = ["".join(rng.choices(letters, range(26, 0, -1), k=rng.randint(2, 9))) for _ in range(5000)]
        ends, count = [" ", " ", " ", " ", " ", ", ", ".\n"], TEXT_BYTES // 7
    shares = [1 / (rank + 3) for rank in range(len(words))]
    rng.shuffle(words)
    return [
        "".join(word + rng.choice(ends) for word in rng.choices(words, shares, k=count)) for _ in range(TEXTS)
    ]
