"""Learns the tables by which the blocks of a page are told apart (`stream.text.content_model`), or measures
how good they are on hosts that they have not seen, in five folds.

    python -m tests.learned_content DIRECTORY
    python -m tests.learned_content DIRECTORY --write

The directory has `main-content-chunks`, `web-html` and `readability-html`, each `.jsonl.xz`. Of pages of
which only passages are known, other blocks have labels by trafilatura, where `make bench` has installed it.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.bench.quality.environments import call
from tests.learned_content import learning
from tests.learned_content.pages import LabelledPage, html_of, labelled, rows_of

PASSAGES = "main-content-chunks"
SETS = (PASSAGES, "web-html", "readability-html")


def main() -> None:
    parser = argparse.ArgumentParser(prog="learned_content", description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--write", action="store_true")
    chosen = parser.parse_args()
    pages = read_pages(chosen.directory)
    if chosen.write:
        learning.write(pages)
    else:
        for line in learning.measured(pages):
            sys.stdout.write(f"{line}\n")


def read_pages(directory: Path) -> list[LabelledPage]:
    rows = rows_of(directory / f"{PASSAGES}.jsonl.xz")
    answer = call("extractors", "extractors.py", "trafilatura", content=[html_of(row) for row in rows])
    texts = answer["trafilatura"]["texts"] if answer else [""] * len(rows)
    guesses = {row["id"]: text for row, text in zip(rows, texts, strict=True)}
    return [page for name in SETS for page in labelled(directory / f"{name}.jsonl.xz", guesses)]


if __name__ == "__main__":
    main()
