"""Text -> fingerprint, margins and sketch, against the `simhash` package, interleaved on the same texts.

    python -m tests.bench.bench_fingerprint [directory with revisions-zh.jsonl.xz and revisions-en.jsonl.xz]

The peer makes a fingerprint only, from 4-grams of characters; ours also segments, keeps margins and sketches.
"""

from __future__ import annotations

import cProfile
import json
import lzma
import pstats
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from stream.errors import NeardupError
from stream.fingerprint.fingerprinter import Fingerprinter

TEXT_BYTES = 4800
"""A web page's main text."""
TEXTS = 200


def run(rounds: int = 5, data: Path | None = None) -> dict[str, Any]:
    """Per language: median MB/s of ours and of the peer, their ratio (median of the rounds' ratios), and the
    share of our time spent outside segmenting and hashing. Raises NeardupError without the `bench` extra."""
    try:
        from simhash import Simhash
    except ImportError:
        raise NeardupError("the peer is missing: pip install 'neardup-stream[bench]'") from None
    fingerprinter = Fingerprinter()
    fingerprinter.warm()
    report: dict[str, Any] = {}
    for language in ("zh", "en"):
        texts = list(_revisions(data, language)) if data else _generated(language)
        size = sum(len(text.encode()) for text in texts) / 1e6
        ours, peers = [], []
        for _ in range(rounds):
            ours.append(size / _seconds(fingerprinter.text, texts))
            peers.append(size / _seconds(Simhash, texts))
        report[language] = {
            "texts": len(texts),
            "megabytes": round(size, 2),
            "ours_mb_s": round(statistics.median(ours), 2),
            "simhash_mb_s": round(statistics.median(peers), 2),
            "ratio": round(statistics.median(a / b for a, b in zip(ours, peers, strict=True)), 2),
            "ours_us_a_text": round(size / statistics.median(ours) / len(texts) * 1e6, 1),
            "share_outside_segment_and_hash": _share(fingerprinter, texts),
        }
    return report


def _seconds(function: Callable[[str], object], texts: list[str]) -> float:
    """Processor time: neither side waits for anything, and a busy machine must not decide the ratio."""
    began = time.process_time()
    for text in texts:
        function(text)
    return time.process_time() - began


def _share(fingerprinter: Fingerprinter, texts: list[str]) -> float:
    profile = cProfile.Profile()
    profile.runcall(lambda: [fingerprinter.text(text) for text in texts])
    inside, total = 0.0, 0.0
    stats: dict[tuple[str, int, str], Any] = pstats.Stats(profile).stats  # type: ignore[attr-defined]
    for (_, _, name), (_, _, own, cumulative, _) in stats.items():
        total += own
        if name in ("tokens", "words", "han", "hash_tokens", "hash_characters", "hash_text", "normalise"):
            inside += cumulative
    return round(1 - inside / total, 3)


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


if __name__ == "__main__":
    print(json.dumps(run(data=Path(sys.argv[1]) if sys.argv[1:] else None), indent=2))  # noqa: T201
