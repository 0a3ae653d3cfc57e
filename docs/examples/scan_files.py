"""Judge pages from files of JSON Lines, in Python: `python scan_files.py pages.jsonl more.jsonl`.

The index is kept in the directory `pages.index`, so a second run finds every page again.
"""

import json
import sys
from collections import Counter
from collections.abc import Iterator

from neardup import Index, Page


def pages(path: str) -> Iterator[Page]:
    with open(path) as lines:
        for line in lines:
            message = json.loads(line)
            yield Page(url=message["url"], html=message.get("html"), text=message.get("text"))


def main(*paths: str) -> None:
    verdicts: Counter[str] = Counter()
    with Index("pages.index") as index:
        for path in paths:
            for answer in index.add_all(pages(path)):
                verdicts[answer.verdict] += 1
                if answer.verdict == "duplicate":
                    print(f"{answer.name} is like {answer.duplicate_of} (similarity {answer.similarity})")
    print(", ".join(f"{count} {verdict}" for verdict, count in verdicts.most_common()))


if __name__ == "__main__":
    main(*sys.argv[1:])
