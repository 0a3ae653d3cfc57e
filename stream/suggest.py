"""Suggestions for mistyped names, appended to error messages."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from difflib import get_close_matches


def nearest(word: str, names: Iterable[str], fits: Callable[[str], bool] = lambda name: True) -> str | None:
    """Return the most similar known word that fits, ignoring case, or None if none is similar."""
    by_folded = {each.casefold(): each for each in names}
    matches = get_close_matches(word.casefold(), by_folded, cutoff=0.7)
    return next((by_folded[each] for each in matches if fits(by_folded[each])), None)


def meant(word: str, names: Iterable[str], fits: Callable[[str], bool] = lambda name: True) -> str:
    """Return `; did you mean x?` for the nearest known word that fits, or an empty string."""
    name = nearest(word, names, fits)
    return f"; did you mean {name}?" if name else ""
