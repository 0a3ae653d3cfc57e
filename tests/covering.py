"""Covering arrays: combinations of values of dimensions, in which any few values meet somewhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations, product

Value = tuple[str, str]
"""Names of a dimension and of one of its values."""


def meetings(
    dimensions: Mapping[str, Iterable[str]], strength: int, forbidden: Iterable[frozenset[Value]] = ()
) -> list[frozenset[Value]]:
    """All sets of so many values of different dimensions, but for those with values that may not meet."""
    every = [[(name, value) for value in values] for name, values in dimensions.items()]
    found = map(frozenset, (each for some in combinations(every, strength) for each in product(*some)))
    return [each for each in found if not any(pair <= each for pair in forbidden)]


def covering_array(
    dimensions: Mapping[str, Iterable[str]], strength: int, forbidden: Sequence[frozenset[Value]] = ()
) -> list[dict[str, str]]:
    """Return combinations of a value of each dimension, so that all `meetings` are in one at least.

    Greedy: a combination begins with the first values that did not meet so far; each further dimension takes
    the value that meets most of the chosen ones for the first time, of equal ones the least used.
    """
    left = dict.fromkeys(meetings(dimensions, strength, forbidden))
    found, used = list[dict[str, str]](), Counter[Value]()
    by_size = sorted(dimensions, key=lambda name: -len([*dimensions[name]]))
    while left:
        chosen = set(next(iter(left)))
        for name in by_size:
            if any(name == other for other, _ in chosen):
                continue
            own = [(name, value) for value in dimensions[name]]
            own = [each for each in own if not any(pair <= {*chosen, each} for pair in forbidden)]
            others = [*map(frozenset, combinations(sorted(chosen), strength - 1))]
            gains = {each: sum(some | {each} in left for some in others) for each in own}
            chosen.add(max(own, key=lambda each: (gains[each], -used[each])))
        used.update(chosen)
        for some in combinations(chosen, strength):
            left.pop(frozenset(some), None)
        of = dict(chosen)
        found.append({name: of[name] for name in dimensions})
    return found
