"""What a person may have meant, and what there is to choose from: the ends of messages about options."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that is most like it, if any is; whether in capitals makes no difference."""
    by_folded = {each.casefold(): each for each in known}
    found = get_close_matches(word.casefold(), by_folded, n=1, cutoff=0.7)
    return by_folded[found[0]] if found else None


def meant(word: str, known: Iterable[str]) -> str:
    """`; did you mean x?`, or nothing."""
    found = nearest(word, known)
    return f"; did you mean {found}?" if found else ""
