"""No box that sites put beside a post is taken for it, in whatever language."""

from __future__ import annotations

import pytest

from stream.text.extract import extract
from tests.bench.quality.truth import Truth
from tests.made_posts import BOXES, LANGUAGES, page, sentences, words

SIZES = (8, 20, 60, 200)


def made(code: str, theme: int, size: int, seed: int, box: str = "") -> str:
    language = LANGUAGES[code]
    title = " ".join(words(language, 3, seed + 1000))
    menu = [" ".join(words(language, 2, 2000 + place)) for place in range(6)]
    text = sentences(language, size, seed)
    return page(theme, title, [text], menu, BOXES[box](language) if box else "")


@pytest.mark.parametrize("box", BOXES)
@pytest.mark.parametrize("code", LANGUAGES)
def test_two_posts_with_one_box_are_not_alike(code: str, box: str) -> None:
    for theme in range(3):
        for size in SIZES:
            one, other = (extract(made(code, theme, size, seed, box)) for seed in (1, 2))
            assert Truth([one, other]).similarity(0, 1) < 0.5, (theme, size, one)


def test_a_post_is_alike_with_and_without_a_box() -> None:
    likenesses = []
    for code in LANGUAGES:
        for theme in range(3):
            for size in SIZES:
                for seed, box in enumerate(BOXES):
                    texts = [extract(made(code, theme, size, seed, each)) for each in ("", box)]
                    likenesses.append(Truth(texts).similarity(0, 1))
    assert sum(each >= 0.8 for each in likenesses) >= 0.98 * len(likenesses)
