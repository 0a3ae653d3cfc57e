"""How good main contents are: by passages that they have and lack, and by the text that they should be."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from typing import Any

from tests.bench.quality.extraction import COMMENTS
from tests.learned_content.pages import normal, tokens


def by_passages(rows: Sequence[dict[str, Any]], texts: Sequence[str]) -> dict[str, float]:
    """Precision, recall and F1 of passages, and the number of pages with none of theirs."""
    found = missing = wrong = none = 0
    for row, text in zip(rows, map(normal, texts), strict=True):
        has = [passage in text for passage in row["with"]]
        found += sum(has)
        missing += len(has) - sum(has)
        wrong += sum(passage in text for passage in row["without"])
        none += not any(has)
    precision, recall = found / max(1, found + wrong), found / max(1, found + missing)
    f1 = 2 * precision * recall / max(1e-9, precision + recall)
    return {"P": round(precision, 4), "R": round(recall, 4), "F1": round(f1, 4), "none": none}


def by_text(rows: Sequence[dict[str, Any]], texts: Sequence[str]) -> dict[str, float]:
    """Mean F1 of words, and mean J of the sets of five words in a row."""
    f1s, likenesses = [], []
    for row, text in zip(rows, texts, strict=True):
        own, gold = tokens(text), tokens(row["text"].partition(COMMENTS)[0])
        both = sum((Counter(own) & Counter(gold)).values())
        precision, recall = both / max(1, len(own)), both / max(1, len(gold))
        f1s.append(2 * precision * recall / max(1e-9, precision + recall))
        one, other = (
            {tuple(each[at : at + 5]) for at in range(max(1, len(each) - 4))} for each in (own, gold)
        )
        likenesses.append(len(one & other) / max(1, len(one | other)))
    return {"F1": round(statistics.mean(f1s), 4), "J": round(statistics.mean(likenesses), 4)}
