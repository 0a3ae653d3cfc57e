"""A crawl's order: shuffled, so that copies meet far apart; repeatable, and each URL's visits in order."""

from __future__ import annotations

import random
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

SEED: Final = 20250301
T = TypeVar("T")


def shuffled(items: Sequence[T], url: Callable[[T], str | None]) -> list[T]:
    """The items in a fixed random order in which items of one URL keep the order they have."""
    visits: defaultdict[str | None, deque[T]] = defaultdict(deque)
    for item in items:
        visits[url(item)].append(item)
    order = [url(item) for item in items]
    random.Random(SEED).shuffle(order)  # noqa: S311 - an order, not a secret
    return [visits[of].popleft() for of in order]
