"""Covering arrays have every pair, or triple, of values that may meet, and few combinations."""

from __future__ import annotations

from itertools import combinations

import pytest

from tests.covering import covering_array, meetings
from tests.property.dimensions import DIMENSIONS, FORBIDDEN

SMALL = {"a": "12", "b": "123", "c": "1234", "d": "12", "e": "123"}
APART = [frozenset({("a", "1"), ("c", "4")}), frozenset({("b", "2"), ("e", "3")})]


@pytest.mark.parametrize(("strength", "most"), [(1, 4), (2, 18), (3, 60)])
def test_all_meetings_are_covered_by_few_combinations(strength: int, most: int) -> None:
    rows = covering_array(SMALL, strength, APART)
    met = {frozenset(some) for row in rows for some in combinations(row.items(), strength)}
    assert met == {*meetings(SMALL, strength, APART)}
    assert len(rows) <= most


def test_values_that_may_not_meet_are_in_no_meeting() -> None:
    every, some = meetings(SMALL, 2), meetings(SMALL, 2, APART)
    assert {*every} - {*some} == {*APART}


def test_the_combinations_of_a_day_have_every_pair_and_are_the_same_each_time() -> None:
    rows = covering_array(DIMENSIONS, 2, FORBIDDEN)
    met = {frozenset(pair) for row in rows for pair in combinations(row.items(), 2)}
    assert met == {*meetings(DIMENSIONS, 2, FORBIDDEN)}
    assert rows == covering_array(DIMENSIONS, 2, FORBIDDEN)
    largest = sorted(map(len, DIMENSIONS.values()))[-2:]
    assert len(rows) <= 1.5 * largest[0] * largest[1]
