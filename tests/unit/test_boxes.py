"""No box that sites put beside a post is taken for it, and pages of every kind have their text, in whatever
language."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from stream.text.extract import extract
from tests.bench.quality.truth import Truth
from tests.made_kinds import every
from tests.made_posts import BOXES, LANGUAGES, page, sentences, words
from tests.night import cases

SIZES = [8, 20, 60, 200]
ALL_SIZES = [*range(8, 201, 8)]
sizes = pytest.mark.parametrize("sizes", cases([SIZES, ALL_SIZES], by_day=[SIZES]), ids=len)


def made(code: str, theme: int, size: int, seed: int, box: str = "") -> str:
    language = LANGUAGES[code]
    title = " ".join(words(language, 3, seed + 1000))
    menu = [" ".join(words(language, 2, 2000 + place)) for place in range(6)]
    text = sentences(language, size, seed)
    return page(theme, title, [text], menu, BOXES[box](language) if box else "")


@sizes
@pytest.mark.parametrize("box", BOXES)
@pytest.mark.parametrize("code", LANGUAGES)
def test_two_posts_with_one_box_are_not_alike(code: str, box: str, sizes: Sequence[int]) -> None:
    for theme in range(3):
        for size in sizes:
            one, other = (extract(made(code, theme, size, seed, box)) for seed in (1, 2))
            assert Truth([one, other]).similarity(0, 1) < 0.5, (theme, size, one)


@sizes
def test_a_post_is_alike_with_and_without_a_box(sizes: Sequence[int]) -> None:
    likenesses = []
    for code in LANGUAGES:
        for theme in range(3):
            for size in sizes:
                for seed, box in enumerate(BOXES):
                    texts = [extract(made(code, theme, size, seed, each)) for each in ("", box)]
                    likenesses.append(Truth(texts).similarity(0, 1))
    assert sum(each >= 0.8 for each in likenesses) >= 0.98 * len(likenesses)


def test_pages_of_every_kind_have_their_text_and_little_around_it() -> None:
    """In eight scripts and three kinds of markup. A word of a menu may stand in the text by chance."""
    wrong = total = 0
    for kind, code, theme, made_page in every():
        text = " ".join(extract(made_page.html).split())
        assert [each for each in made_page.has if " ".join(each.split()) not in text] == [], (
            kind,
            code,
            theme,
        )
        wrong += sum(each in text for each in made_page.lacks)
        total += len(made_page.lacks)
    assert wrong < 0.01 * total
