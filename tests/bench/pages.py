"""Pages that benchmarks publish or fingerprint, made or real."""

from __future__ import annotations

import json
import lzma
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from string import ascii_lowercase

TEXT_BYTES = 5000
COPIES = 0.3
AHEAD = 512
"""Pages published before their verdicts; copies are of pages further back, whose verdicts are there."""
LETTERS = ascii_lowercase
_MARKUP = re.compile(r"(?is)(<script.*?</script>|<style.*?</style>|<[^>]*>|&#?\w+;)")


@dataclass(frozen=True, slots=True)
class InputPages:
    """Page messages, and whether each was made as a copy."""

    values: list[bytes]
    copies: list[bool]


def texts(pages: int) -> InputPages:
    """Page messages with a text of 5 KB; copies differ from an earlier page by three words."""
    rng = random.Random(9)
    letters = "etaoinshrdlucmfwypvbgkjqxz"
    words = ["".join(rng.choices(letters, range(26, 0, -1), k=rng.randint(2, 9))) for _ in range(20_000)]
    shares = [1 / (rank + 3) for rank in range(len(words))]
    made: list[list[str]] = []
    copies = []
    for _ in range(pages):
        copies.append(len(made) > AHEAD and rng.random() < COPIES)
        if copies[-1]:
            text = list(made[rng.randrange(len(made) - AHEAD)])
            for _ in range(3):
                text[rng.randrange(len(text))] = rng.choice(words)
        else:
            text = rng.choices(words, shares, k=TEXT_BYTES // 6)
        made.append(text)
    return InputPages([_message(i, text=" ".join(text)) for i, text in enumerate(made)], copies)


def htmls(pages: int, bodies: list[str]) -> InputPages:
    """Page messages with these bodies; copies say what an earlier page of another URL says."""
    rng = random.Random(9)
    fresh = rotated(bodies)
    made: list[str] = []
    copies = []
    for _ in range(pages):
        copies.append(len(made) > AHEAD and rng.random() < COPIES)
        made.append(made[rng.randrange(len(made) - AHEAD)] if copies[-1] else next(fresh))
    return InputPages([_message(i, html=html) for i, html in enumerate(made)], copies)


def _message(number: int, **content: str) -> bytes:
    return json.dumps({"url": f"http://bench.example/{number}", **content}).encode()


def rotated(pages: list[str]) -> Iterator[str]:
    """The pages as they are, and then turn after turn, without end, with other letters outside of markup:
    there are fewer real pages than a run takes. Markup, lengths and frequencies stay; words are others."""
    for turn in count():
        letters = LETTERS[turn:] + LETTERS[:turn]
        if turn >= len(LETTERS):
            letters = "".join(random.Random(turn).sample(LETTERS, len(LETTERS)))
        table = str.maketrans(LETTERS + LETTERS.upper(), letters + letters.upper())
        for html in pages:
            parts = _MARKUP.split(html)  # what stands outside of markup at even places
            parts[::2] = [part.translate(table) for part in parts[::2]]
            yield "".join(parts)


def bodies(data: Path | None) -> list[str]:
    """Real HTML pages where there are data, else pages of our own of the same shape."""
    if data:
        with lzma.open(data / "web-html.jsonl.xz", "rt", encoding="utf-8") as lines:
            return [json.loads(line)["html"] for line in lines]
    rng = random.Random(4)
    words = ["".join(rng.choices("abcdefghilmnoprstu", k=rng.randint(2, 10))) for _ in range(4000)]
    made = []
    for _ in range(200):
        paragraphs = (" ".join(rng.choices(words, k=80)) for _ in range(12))
        links = "".join(f"<li><a href='/{rng.random()}'>{rng.choice(words)}</a></li>" for _ in range(600))
        text = "".join(f"<p>{paragraph}.</p>" for paragraph in paragraphs)
        made.append(f"<html><body><nav><ul>{links}</ul></nav><main>{text}</main></body></html>")
    return made


def real_texts(data: Path) -> list[str]:
    """Pieces of real texts of the length of a page."""
    with lzma.open(data / "revisions-en.jsonl.xz", "rt", encoding="utf-8") as lines:
        found = [json.loads(line)["a"] for line in lines]
    return [
        text[start : start + TEXT_BYTES]
        for text in found
        for start in range(0, len(text) - TEXT_BYTES, TEXT_BYTES)
    ]
