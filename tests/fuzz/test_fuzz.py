"""Numbered inputs for every decoder: none ends in anything but what the decoder promises."""

from __future__ import annotations

import pytest

from tests.fuzz.decoder import Decoder, fuzz
from tests.fuzz.decoders import DECODERS
from tests.night import cases

SEED = 20070508
INPUTS = {
    "pages": 8_000, "avro": 12_000, "journal": 6_000, "decisions": 12_000, "compressed files": 4_000,
    "web archives": 8_000, "glued archives": 1_000, "html": 4_000, "content types": 6_000, "texts": 2_000,
    "record batches": 8_000,
    "dashboard requests": 4_000, "kept pages": 12_000,
    "json lines": 8_000, "csv": 8_000, "parquet": 1_500,
}  # fmt: skip
"""Some five seconds each on an idle machine; by day a quarter of them. `make fuzz` runs for an hour."""


@pytest.mark.parametrize("part", cases([1, 4], by_day=[4]))
@pytest.mark.parametrize("kind", DECODERS, ids=lambda kind: kind.name)
def test_no_input_ends_in_anything_but_what_the_decoder_promises(kind: type[Decoder], part: int) -> None:
    inputs = INPUTS[kind.name] // part
    with kind() as decoder:
        found = fuzz(decoder, SEED, inputs)
    assert not found.faults, [
        f"python -m tests.fuzz --seed {SEED} --only '{found.name}' --at {each.number}: {each.error}"
        for each in found.faults
    ]
    assert found.inputs == inputs
    assert len(found.came) > 1, "the inputs are all of one kind"
