"""Indexes of others: run by the Python of their own environment, with nothing of ours imported.

    python table_peers.py METHOD FILE

FILE is what `bench_table_peers` writes. What is stored is added at once; the first line of the answer says
how long that took. Then every line on standard input, {"first", "end", "insert"}, has those batches looked
up and, if so asked, rows for which nothing was found added; a line says how long it took, and what was found.

Fingerprint peers are given fingerprints. MinHash peers are given signatures made beforehand, outside the
time.
"""

from __future__ import annotations

import json
import sys
import time
from itertools import pairwise

import numpy as np

K = 3
"""Largest distance of fingerprints."""
BANDS, BAND = 13, 5
"""Of MinHash peers: 994 of 1000 pairs of similarity 0.8 meet, as they do with five minima of ours."""
PERMUTATIONS = BANDS * BAND


class Faiss:
    """64-bit fingerprints in an index of FAISS."""

    def __init__(self) -> None:
        import faiss

        self.index = faiss.IndexBinaryMultiHash(64, 4, 16)

    @staticmethod
    def made(rows):
        return np.ascontiguousarray(rows).view(np.uint8).reshape(-1, 8)

    def add(self, first: int, rows) -> None:
        self.index.add(rows)

    def find(self, rows):
        edges, _, ids = self.index.range_search(rows, K + 1)  # finds what is nearer than its radius
        return np.repeat(np.arange(len(rows)), np.diff(edges.astype(np.int64))), ids


def pairs(answers):
    row = np.repeat(np.arange(len(answers)), [len(answer) for answer in answers])
    return row, np.array([number for answer in answers for number in answer], np.int64)


class Datasketch:
    def __init__(self) -> None:
        from datasketch import MinHashLSH

        self.index = MinHashLSH(num_perm=PERMUTATIONS, params=(BANDS, BAND))

    @staticmethod
    def made(sets):
        from datasketch import MinHash

        return MinHash.bulk([[each.encode() for each in one] for one in sets], num_perm=PERMUTATIONS)

    def add(self, first: int, rows) -> None:
        for number, row in enumerate(rows, first):
            self.index.insert(number, row)

    def find(self, rows):
        return pairs([self.index.query(row) for row in rows])


class Rensa:
    def __init__(self) -> None:
        from rensa import RMinHashLSH

        self.index = RMinHashLSH(threshold=0.8, num_perm=PERMUTATIONS, num_bands=BANDS)

    @staticmethod
    def made(sets):
        from rensa import RMinHash

        return RMinHash.from_token_sets(sets, PERMUTATIONS, 42)

    def add(self, first: int, rows) -> None:
        self.index.insert_many(rows, first)

    def find(self, rows):
        return pairs(self.index.query_all(rows))


METHODS = {
    "faiss MultiHash": Faiss,
    "datasketch": Datasketch,
    "rensa": Rensa,
}


def sets_of(words, starts):
    """Each document's distinct shingles of five words."""
    texts = [list(map(str, words[first:end].tolist())) for first, end in pairwise(starts.tolist())]
    return [list({" ".join(one[i : i + 5]) for i in range(len(one) - 4)}) for one in texts]


def main(name: str, path: str) -> None:
    index = METHODS[name]()
    with np.load(path) as given:
        stored = int(given["stored"])
        everything = sets_of(given["words"], given["starts"]) if "words" in given else given["rows"]
        batch = int(given["batch"])
        rows = index.made(everything)
    count = stored
    began = time.perf_counter()
    index.add(0, rows[:stored])
    sys.stdout.write(json.dumps({"seconds": time.perf_counter() - began}) + "\n")
    sys.stdout.flush()
    for line in sys.stdin:
        asked = json.loads(line)
        spent, numbers, found = 0.0, [], []
        for turn in range(asked["first"], asked["end"]):
            first = stored + turn * batch
            some = rows[first : first + batch]
            began = time.perf_counter()
            row, number = index.find(some)
            if asked["insert"]:
                new = np.ones(len(some), bool)
                new[row] = False
                fresh = np.flatnonzero(new)
                added = some[fresh] if isinstance(some, np.ndarray) else [some[i] for i in fresh.tolist()]
                index.add(count, added)
                count += len(added)
            spent += time.perf_counter() - began
            numbers.append(number)
            found.append(row + first)
        both = np.column_stack([np.concatenate(found), np.concatenate(numbers)]).astype(np.int64)
        sys.stdout.write(json.dumps({"seconds": spent, "pairs": both[both[:, 1] < stored].tolist()}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
