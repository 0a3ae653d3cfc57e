"""What is extracted from HTML, against the truth and beside peers.

DATA has web-html.jsonl.xz and readability-html.jsonl.xz. Rules of extraction are chosen with the even pages
of web-html in view (`web, tuned on`); the odd ones are held out. `make bench` installs the peers and fetches
the handbook and the javadoc; what is not there is left out.

A reference of web-html has the comments of the page's readers after a mark where the page has any. `article`
leaves them out, as extraction is to do.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from stream.errors import NeardupError
from stream.fingerprint.scheme import Scheme
from stream.messages.verdict_options import VerdictOptions
from stream.text.extract import extract
from tests.bench.bench_extract import extracted
from tests.bench.quality import extraction, ours
from tests.bench.quality.environments import call
from tests.bench.quality.truth import Truth

PEERS = ("trafilatura", "trafilatura fast", "readability-lxml", "jusText")


def run(data: Path | None = None) -> dict[str, Any]:
    """`us_a_page`: processor time. `pages`: mean J to the reference and the share of pages with J >= .8, by
    data set and way. `javadoc`: pairs of two templates whose extracts are alike. `stream`: precision and
    recall of verdicts.

    Raises NeardupError without `data`.
    """
    if data is None:
        raise NeardupError("bench extract: --data names the directory with the pages")
    sets = extraction.page_sets(data)
    pairs = extraction.javadoc_pairs()
    html = [each for pages in sets.values() for each in pages.html] + [
        page for pair in pairs for page in pair.html
    ]
    texts, microseconds = _extracts(html)
    report: dict[str, Any] = {"us_a_page": microseconds, "pages": {}, "javadoc": {}, "stream": {}}
    first = 0
    for name, pages in sets.items():
        last = first + len(pages.html)
        for reference, said in pages.references.items():
            report["pages"][f"{name}{reference}"] = {
                way: _likeness(each[first:last], said) for way, each in texts.items()
            }
        if name == "handbook":
            report["stream"][name] = {
                way: _verdicts(each[first:last], pages.references[""]) for way, each in texts.items()
            }
        first = last
    if pairs:
        said = [text for pair in pairs for text in pair.texts]
        for way, each in texts.items():
            report["javadoc"][way] = _alike(each[first:], said)
            # All pages of the old release, then all of the new one.
            halves = each[first::2] + each[first + 1 :: 2]
            report["stream"].setdefault("javadoc", {})[way] = _verdicts(halves, said[::2] + said[1::2])
    return report


def _extracts(html: list[str]) -> tuple[dict[str, list[str]], dict[str, int]]:
    """Way -> the text of each page, and microseconds of processor time a page."""
    ways: dict[str, Callable[[str], str]] = {"ours": extract, "resiliparse": extracted}
    texts, seconds = dict[str, list[str]](), dict[str, float]()
    for name, way in ways.items():
        began = time.process_time()
        texts[name] = [way(each) for each in html]
        seconds[name] = time.process_time() - began
    for name, answer in (call("extractors", "extractors.py", *PEERS, content=html) or {}).items():
        texts[name], seconds[name] = answer["texts"], answer["seconds"]
    return texts, {name: round(each / len(html) * 1e6) for name, each in seconds.items()}


def _likeness(texts: Sequence[str], references: Sequence[str]) -> dict[str, float]:
    found = [Truth(list(pair)).similarity(0, 1) for pair in zip(texts, references, strict=True)]
    return {
        "mean": round(sum(found) / len(found), 3),
        "share": round(sum(each >= 0.8 for each in found) / len(found), 3),
        "lost": round(sum(each < 0.1 for each in found) / len(found), 3),
    }


def _alike(texts: Sequence[str], references: Sequence[str]) -> dict[str, float]:
    """Of pairs (numbers 2i and 2i + 1), the share with J >= .8 whose extracts are alike, and of those below
    .7 how many are."""
    extracts, truth = Truth(list(texts)), Truth(list(references))
    pairs = [(truth.similarity(i, i + 1), extracts.similarity(i, i + 1)) for i in range(0, len(texts), 2)]
    like = [found >= 0.8 for true, found in pairs if true >= 0.8]
    unlike = [found >= 0.8 for true, found in pairs if true < 0.7]
    return {
        "pairs": len(like),
        "alike": round(sum(like) / max(1, len(like)), 3),
        "unlike": len(unlike),
        "unlike_alike": sum(unlike),
    }


def _verdicts(texts: Sequence[str], references: Sequence[str]) -> dict[str, float]:
    """Of verdicts in the order of the pages: precision at J >= .8; and recall, the share of pages J >= .8
    to an earlier one that are named duplicates of one at J >= .75."""
    named = ours.named_of(list(texts), Scheme(), VerdictOptions())
    truth = Truth(list(references))
    true = [truth.similarity(i, other) for i, other in enumerate(named) if other is not None]
    due = [i for i in range(len(texts)) if truth.any_like(i, 0.8)]
    found = [i for i in due if (other := named[i]) is not None and truth.similarity(i, other) >= 0.75]
    return {
        "pages": len(texts),
        "named": len(true),
        "precision": round(sum(each >= 0.8 for each in true) / max(1, len(true)), 3),
        "recall": round(len(found) / max(1, len(due)), 3),
    }
