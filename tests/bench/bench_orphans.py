"""New copies of texts that known pages have, but whose anchors changed: how many are `unique` all the same.

    python -m tests.bench.bench_orphans [originals]

Each original has two mirrors. Then there are two rounds: the page that is a text's anchor changes, and both
mirrors are fetched again, as far as they still have the text, and so are the copies of earlier rounds. Among
these, in random order, comes a copy of each text at a URL that is new: as known pages have the text, it is no
unique page. Before rule 22 a recrawl changed nothing, so leaving recrawls out shows what would be without it.
"""

from __future__ import annotations

import json
import random
import sys
from collections import Counter
from typing import Any, Final

from stream import Index
from stream.local.index import Answer

MIRRORS: Final = 2
ROUNDS: Final = 2
WORDS: Final = 120
VOCABULARY: Final = 50_000
Fetch = tuple[int, str, bool]
"""Number of a text, URL of a page that has it, and whether the URL is new."""


class MirroredCrawl:
    """Pages that an index judges, and which of them have which text."""

    def __init__(self, index: Index, texts: int, *, recrawls: bool) -> None:
        self._index, self._recrawls, self._random = index, recrawls, random.Random(1)
        self._texts = [self._text() for _ in range(texts)]
        self._clusters: list[str | None] = [None] * texts
        """Cluster of the page that was judged last, of those with each text."""
        self._url_of: dict[str, str] = {}
        """Cluster -> URL of its anchor."""
        self._having = [[f"http://original.example/{each}"] for each in range(texts)]
        self._judge([(each, urls[0], True) for each, urls in enumerate(self._having)])
        for mirror in range(MIRRORS):
            self._judge(self._add_urls(f"mirror-{mirror}"))

    def _text(self) -> str:
        return " ".join(f"w{self._random.randrange(VOCABULARY)}" for _ in range(WORDS))

    def _add_urls(self, host: str) -> list[Fetch]:
        """Return a new URL for each text."""
        fetches = []
        for number, urls in enumerate(self._having):
            urls.append(f"http://{host}.example/{number}")
            fetches.append((number, urls[-1], True))
        return fetches

    def _judge(self, fetches: list[Fetch]) -> list[Answer]:
        answers = list(self._index.add_all((url, self._texts[number]) for number, url, _ in fetches))
        for (number, url, _), answer in zip(fetches, answers, strict=True):
            self._clusters[number] = answer.cluster
            if answer.cluster == answer.id:
                self._url_of[answer.id] = url
        return answers

    def round(self, number: int) -> dict[str, float]:
        """Change all anchors and fetch what is left. Returns shares of the new copies that are unique: of all
        of them, and of those that come after a page with the same text was fetched again."""
        changed = [self._url_of[cluster or ""] for cluster in self._clusters]
        for text, url in enumerate(changed):
            self._having[text].remove(url)
        list(self._index.add_all((url, self._text()) for url in changed))
        again = [(text, url, False) for text, urls in enumerate(self._having) for url in urls]
        fetches = again + self._add_urls(f"copy-{number}")
        self._random.shuffle(fetches)
        met: set[int] = set()
        counts: Counter[str] = Counter()
        after = []
        for text, _, is_new in fetches:
            after.append(text in met)
            if not is_new:
                met.add(text)
        judged = [place for place, each in enumerate(fetches) if each[2] or self._recrawls]
        answers = self._judge([fetches[place] for place in judged])
        for place, answer in zip(judged, answers, strict=True):
            if fetches[place][2]:
                counts["copies"] += 1
                counts["unique"] += answer.verdict == "unique"
                counts["copies after"] += after[place]
                counts["unique after"] += after[place] and answer.verdict == "unique"
        return {
            "copies": counts["copies"],
            "unique": round(counts["unique"] / counts["copies"], 4),
            "copies_after_a_recrawl": counts["copies after"],
            "unique_after_a_recrawl": round(counts["unique after"] / counts["copies after"], 4),
        }


def run(texts: int = 10_000) -> dict[str, Any]:
    """Figures of each round, with and without rule 22."""
    figures: dict[str, Any] = {}
    for recrawls in (False, True):
        with Index() as index:
            crawl = MirroredCrawl(index, texts, recrawls=recrawls)
            name = "judged again" if recrawls else "not judged again"
            figures[name] = [crawl.round(number) for number in range(1, ROUNDS + 1)]
    return figures


if __name__ == "__main__":
    sys.stdout.write(json.dumps(run(*map(int, sys.argv[1:])), indent=2) + "\n")
