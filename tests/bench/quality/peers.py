"""Peers name duplicates: run by the Python of their own environment, with nothing of ours imported.

    python peers.py METHOD... < [{"text", "shingles"}, ...] > {METHOD: [number or null, ...], ...}

Every peer works as a stream does: a text that is like an earlier one that was itself not like any is named
its duplicate (the best where the peer ranks, else the oldest), any other is added to the index. MinHash peers
are given the true shingles, fingerprint peers the text, with their own ways of cutting it.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Callable, Iterator

Pages = list[dict]
PERMUTATIONS = 256
"""Of datasketch; rensa has half as many."""


def named(pages: Pages, made: Iterator, find: Callable, add: Callable) -> list:
    answer = []
    for number, one in zip(range(len(pages)), made, strict=False):
        like = find(one)
        answer.append(like)
        if like is None:
            add(number, one)
    return answer


def by_distance(pages: Pages, made: Iterator, k: int) -> list:
    """Nearest earlier fingerprint within k bits, by looking at all of them."""
    kept: list = []

    def find(one: int) -> int | None:
        near = [((one ^ other).bit_count(), number) for number, other in kept]
        return min(near)[1] if near and min(near)[0] <= k else None

    return named(pages, made, find, lambda number, one: kept.append((number, one)))


def simhash(pages: Pages) -> list:
    from simhash import Simhash, SimhashIndex

    index = SimhashIndex([], k=3)

    def find(one: Simhash) -> int | None:
        return min(map(int, index.get_near_dups(one)), default=None)

    made = (Simhash(page["text"]) for page in pages)
    return named(pages, made, find, lambda number, one: index.add(str(number), one))


def datasketch(pages: Pages) -> list:
    from datasketch import MinHash, MinHashLSH

    index, kept = MinHashLSH(threshold=0.8, num_perm=PERMUTATIONS), {}

    def made() -> Iterator[MinHash]:
        for page in pages:
            one = MinHash(num_perm=PERMUTATIONS)
            one.update_batch([each.encode() for each in page["shingles"]])
            yield one

    def find(one: MinHash) -> int | None:
        met = [(-one.jaccard(kept[number]), number) for number in index.query(one)]
        best = min(met, default=None)
        return None if best is None or -best[0] < 0.8 else best[1]

    def add(number: int, one: MinHash) -> None:
        kept[number] = one
        index.insert(number, one)

    return named(pages, made(), find, add)


def rensa(pages: Pages) -> list:
    from rensa import RMinHash, RMinHashLSH

    index, kept = RMinHashLSH(threshold=0.8, num_perm=128, num_bands=16), {}

    def made() -> Iterator[RMinHash]:
        for page in pages:
            one = RMinHash(num_perm=128, seed=42)
            one.update(page["shingles"])
            yield one

    def find(one: RMinHash) -> int | None:
        met = [(-one.jaccard(kept[number]), number) for number in index.query(one)]
        best = min(met, default=None)
        return None if best is None or -best[0] < 0.8 else best[1]

    def add(number: int, one: RMinHash) -> None:
        kept[number] = one
        index.insert(number, one)

    return named(pages, made(), find, add)


def trafilatura(pages: Pages) -> list:
    from trafilatura.deduplication import Simhash

    return by_distance(pages, (Simhash(page["text"]).hash for page in pages), 3)


def text_dedup(pages: Pages) -> list:
    """Its SimHash settings: sets of 3-grams of what \\W separates, 64 bits, distance 3."""
    import numpy as np

    def made() -> Iterator[int]:
        for page in pages:
            tokens = [token for token in re.split(r"\W", page["text"].lower()) if token]
            grams = {" ".join(tokens[i : i + 3]) for i in range(max(1, len(tokens) - 2))}
            digests = b"".join(
                hashlib.md5(gram.encode(), usedforsecurity=False).digest()[:8] for gram in grams
            )
            bits = np.unpackbits(np.frombuffer(digests, np.uint8)).reshape(-1, 64)
            yield int.from_bytes(
                np.packbits(2 * bits.sum(axis=0, dtype=np.int64) > len(bits)).tobytes(), "big"
            )

    return by_distance(pages, made(), 3)


METHODS: dict[str, Callable[[Pages], list]] = {
    "simhash k=3": simhash,
    "datasketch 256 verified": datasketch,
    "rensa 128 verified": rensa,
    "trafilatura Simhash": trafilatura,
    "text-dedup settings": text_dedup,
}

if __name__ == "__main__":
    given = json.load(sys.stdin)
    json.dump({name: METHODS[name](given) for name in sys.argv[1:]}, sys.stdout)
