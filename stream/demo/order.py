"""The order of a crawl: shuffled, so that copies are far apart, but reproducible and in order for each
URL."""

from __future__ import annotations

import random
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

SEED: Final = 20250301
T = TypeVar("T")


def shuffled(items: Sequence[T], url: Callable[[T], str | None]) -> list[T]:
    """Shuffle items with a fixed seed, keeping the relative order of items with the same URL."""
    visits: defaultdict[str | None, deque[T]] = defaultdict(deque)
    for item in items:
        visits[url(item)].append(item)
    order = [url(item) for item in items]
    random.Random(SEED).shuffle(order)  # noqa: S311 - an order, not a secret
    return [visits[of].popleft() for of in order]
