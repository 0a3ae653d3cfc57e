"""MinHash of rensa with its LSH: run by the Python of its own environment, with nothing of ours imported.

    python rensa_minhash.py DIRECTORY OUTPUT

Sets of five words, 128 permutations, 16 bands of 8. A page is dropped if one that is kept shares a band, and
their estimated similarity is at least .8. It is a library, so what is around it is one process of Python.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from rensa import RMinHash, RMinHashLSH

WORDS = 5
ALIKE = 0.8
PERMUTATIONS = 128


def main(directory: Path, output: Path) -> None:
    index = RMinHashLSH(threshold=ALIKE, num_perm=PERMUTATIONS, num_bands=16)
    kept: dict[int, RMinHash] = {}
    with (output / "kept.jsonl").open("wb") as written:
        for file in sorted(directory.glob("pages-*.jsonl")):
            with file.open("rb") as lines:
                for line in lines:
                    page = json.loads(line)
                    words = page["text"].split()
                    one = RMinHash(num_perm=PERMUTATIONS, seed=42)
                    one.update(
                        [" ".join(words[i : i + WORDS]) for i in range(max(1, len(words) - WORDS + 1))]
                    )
                    if any(one.jaccard(kept[number]) >= ALIKE for number in index.query(one)):
                        continue
                    number = int(page["id"])
                    kept[number] = one
                    index.insert(number, one)
                    written.write(line)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
