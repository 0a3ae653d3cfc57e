"""The copies that the benchmark of template-heavy pages plants."""

from __future__ import annotations

import random
import re

import pytest

from stream.text.extract import extract
from tests.bench.quality.templates import SIMILAR, plant
from tests.bench.quality.truth import Truth


def text(number: int) -> str:
    rng = random.Random(number)
    return " ".join(f"word{rng.randrange(5000)}" for _ in range(200))


def page(number: int) -> str:
    head = "<head><style>p { margin: 0 }</style></head>"
    return f"<html>{head}<body><main><p>{text(number)}</p></main></body></html>"


@pytest.mark.parametrize(("kind", "make", "read"), [("text", text, str), ("html", page, extract)])
def test_a_copy_is_as_similar_to_its_page_as_is_said(kind, make, read) -> None:
    planted = plant([make(number) for number in range(12)], kind, 10, 8, seed=1)
    assert len(planted.pages) == 10
    assert len(planted.copies) == 8
    assert len(set(planted.originals)) == 8
    for copy, original, similarity in zip(planted.copies, planted.originals, planted.similarity, strict=True):
        assert SIMILAR[0] <= similarity <= SIMILAR[1]
        truth = Truth([read(planted.pages[original]), read(copy)])
        assert truth.similarity(0, 1) == pytest.approx(similarity)


def test_markup_of_a_copy_is_that_of_its_page() -> None:
    planted = plant([page(number) for number in range(4)], "html", 4, 4, seed=1)
    for copy, original in zip(planted.copies, planted.originals, strict=True):
        markup = re.compile(r"<style>.*?</style>|<[^>]+>")
        assert markup.findall(copy) == markup.findall(planted.pages[original])


def test_a_page_that_is_too_short_has_no_copy() -> None:
    planted = plant([" ".join("abcdefghijkl"), text(1)], "text", 2, 2, seed=1)
    assert [planted.pages[original] for original in planted.originals] == [text(1)]
