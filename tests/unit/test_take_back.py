"""From which anchors on a judge takes tables back."""

from __future__ import annotations

import re

import pytest

from stream.errors import SettingsError
from stream.roles.judge.taking_back import check_take_back, refuse_within_segment
from stream.settings import load
from tests.genesis import genesis_of


@pytest.mark.parametrize(
    ("first", "announced", "message"),
    [
        (
            5,
            [128, 0, 64],
            "no segment that begins with this anchor; the next ones begin with 0 and 64; `all`",
        ),
        (100, [128, 0, 64], "begin with 64 and 128; `all` takes back all"),
        (500, [128, 0, 64], "begin with 128; `all`"),
        (5, [64], "begin with 64; `all`"),  # those before have expired
        (
            5,
            [],
            "--take-back 5: topic n.segments announces no segment that begins with this anchor; `all` takes",
        ),
    ],
)
def test_an_anchor_within_a_segment_is_refused_with_those_next_to_it(
    first: int, announced: list[int], message: str
) -> None:
    with pytest.raises(SettingsError, match=re.escape(message)):
        refuse_within_segment(first, announced, "n.segments")


def test_the_first_anchor_of_a_segment_is_not_refused() -> None:
    refuse_within_segment(64, [0, 64, 128], "n.segments")


async def test_a_judge_that_asks_no_probers_takes_back_all() -> None:
    settings = load(prober_replicas=0)
    for first in (None, 0):
        await check_take_back(settings, genesis_of(), first)
    with pytest.raises(
        SettingsError, match=r"^--take-back 64: leaves .* take back `all`, or set prober_replicas"
    ):
        await check_take_back(settings, genesis_of(), 64)
