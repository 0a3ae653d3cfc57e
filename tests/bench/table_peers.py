"""Indexes of others: run by the Python of their own environment, with nothing of ours imported.

    python table_peers.py METHOD FILE

FILE is what `bench_table_peers` writes. What is stored is added at once; the first line of the answer says
how long that took. Then every line on standard input, {"first", "end", "insert"}, has those batches looked
up and, if so asked, rows for which nothing was found added; a line says how long it took, and what was found.

Fingerprint peers are given fingerprints. MinHash peers are given signatures made beforehand, outside the
time, but for gaoya, which takes tokens only: the time it needs to sign them is measured and subtracted.
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

    def __init__(self, index) -> None:
        self.index = index

    @staticmethod
    def made(rows):
        return np.ascontiguousarray(rows).view(np.uint8).reshape(-1, 8)

    def add(self, first: int, rows) -> None:
        self.index.add(rows)

    def find(self, rows):
        edges, _, ids = self.index.range_search(rows, K + 1)  # finds what is nearer than its radius
        return np.repeat(np.arange(len(rows)), np.diff(edges.astype(np.int64))), ids


def multi_hash():
    import faiss

    return Faiss(faiss.IndexBinaryMultiHash(64, 4, 16))


def binary_hash():
    import faiss

    index = faiss.IndexBinaryHash(64, 20)
    index.nflip = K
    return Faiss(index)


def flat():
    import faiss

    return Faiss(faiss.IndexBinaryFlat(64))


class OneByOne:
    """An index that is asked for one row after the other."""

    def add(self, first: int, rows) -> None:
        for number, row in enumerate(rows, first):
            self.insert(number, row)

    def find(self, rows):
        return self.pairs([self.query(row) for row in rows])

    @staticmethod
    def pairs(answers):
        row = np.repeat(np.arange(len(answers)), [len(answer) for answer in answers])
        return row, np.array([number for answer in answers for number in answer], np.int64)


class Simhash(OneByOne):
    def __init__(self) -> None:
        import logging

        from simhash import SimhashIndex

        logging.getLogger("simhash").setLevel(logging.ERROR)
        self.index = SimhashIndex([], k=K)

    @staticmethod
    def made(rows):
        from simhash import Simhash as One

        return [One(row) for row in rows.tolist()]

    def insert(self, number, row) -> None:
        self.index.add(str(number), row)

    def query(self, row):
        return list(map(int, self.index.get_near_dups(row)))


class Datasketch(OneByOne):
    def __init__(self) -> None:
        from datasketch import MinHashLSH

        self.index = MinHashLSH(num_perm=PERMUTATIONS, params=(BANDS, BAND))

    @staticmethod
    def made(sets):
        from datasketch import MinHash

        return MinHash.bulk([[each.encode() for each in one] for one in sets], num_perm=PERMUTATIONS)

    def insert(self, number, row) -> None:
        self.index.insert(number, row)

    def query(self, row):
        return self.index.query(row)


class Rensa(OneByOne):
    def __init__(self) -> None:
        from rensa import RMinHashLSH

        self.index = RMinHashLSH(threshold=0.8, num_perm=PERMUTATIONS, num_bands=BANDS)

    @staticmethod
    def made(sets):
        from rensa import RMinHash

        return RMinHash.from_token_sets(sets, PERMUTATIONS, 42)

    def add(self, first, rows) -> None:
        self.index.insert_many(rows, first)

    def find(self, rows):
        return self.pairs(self.index.query_all(rows))


class Gaoya(OneByOne):
    """Candidates are compared by their signatures, and wanted where these are at least 0.7 alike."""

    def __init__(self) -> None:
        from gaoya.minhash import MinHashStringIndex

        self.index, self.empty = (
            MinHashStringIndex(32, 0.7, BANDS, BAND, id_container="smallvec").minhash_index for _ in range(2)
        )

    @staticmethod
    def made(sets):
        return sets

    def insert(self, number, row) -> None:
        self.index.insert_tokens(number, row)

    def query(self, row):
        return self.index.query_tokens(row)

    def seconds_to_sign(self, rows) -> float:
        """What looking up takes where there is nothing to find."""
        began = time.perf_counter()
        for row in rows:
            self.empty.query_tokens(row)
        return time.perf_counter() - began


METHODS = {
    "faiss MultiHash": multi_hash,
    "faiss Hash": binary_hash,
    "faiss flat": flat,
    "simhash": Simhash,
    "datasketch": Datasketch,
    "rensa": Rensa,
    "gaoya": Gaoya,
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
            added = some[:0]
            if asked["insert"]:
                new = np.ones(len(some), bool)
                new[row] = False
                fresh = np.flatnonzero(new)
                added = some[fresh] if isinstance(some, np.ndarray) else [some[i] for i in fresh.tolist()]
                index.add(count, added)
                count += len(added)
            spent += time.perf_counter() - began
            if hasattr(index, "seconds_to_sign"):
                spent -= index.seconds_to_sign(some) + index.seconds_to_sign(added)
            numbers.append(number)
            found.append(row + first)
        pairs = np.column_stack([np.concatenate(found), np.concatenate(numbers)]).astype(np.int64)
        sys.stdout.write(json.dumps({"seconds": spent, "pairs": pairs[pairs[:, 1] < stored].tolist()}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
