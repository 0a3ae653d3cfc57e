"""The bits of each table's prefix, and the layout of keys."""

from itertools import combinations

import numpy as np
import pytest

from stream.errors import SettingsError
from stream.offline.layouts import Layout
from stream.tables.design import Block, Design
from stream.tables.search.prefixes_compiled import keys_of

LAYOUTS = [(4, 1), (3, 1), (5, 2), (6, 3), (6, 2), (7, 4), (2, 1), (8, 7)]


def prefix_by_hand(design: Design, fingerprint: int, table: int) -> int:
    """The table's blocks cut out of the binary digits, most significant block first."""
    digits = format(fingerprint, f"0{design.width}b")
    long, rest = divmod(design.width, design.blocks)
    ends = np.cumsum([long + (block < rest) for block in range(design.blocks)])
    blocks = [digits[end - long - (b < rest) : end] for b, end in enumerate(ends)]
    chosen = list(combinations(range(design.blocks), design.choose))[table]
    return int("".join(blocks[block] for block in chosen), 2)


@pytest.mark.parametrize(("blocks", "choose"), LAYOUTS)
@pytest.mark.parametrize("width", [64, 32])
def test_key_is_the_permuted_prefix_and_the_table(blocks: int, choose: int, width: int) -> None:
    design = Design(blocks, choose, width)
    fingerprints = np.random.default_rng(1).integers(0, 1 << width, 50, dtype=np.uint64)
    keys = design.keys(fingerprints)
    assert keys.shape == (50, design.tables)
    for fingerprint, row in zip(fingerprints.tolist(), keys.tolist(), strict=True):
        for table, key in enumerate(row):
            assert key & 63 == table
            assert key >> 6 == prefix_by_hand(design, fingerprint, table)
            assert (key >> 6).bit_length() <= design.prefix_bits[table]


@pytest.mark.parametrize(("blocks", "choose"), LAYOUTS)
def test_prefixes_of_one_table_are_those_of_the_keys(blocks: int, choose: int) -> None:
    design = Design(blocks, choose)
    fingerprints = np.random.default_rng(2).integers(0, 1 << 64, 50, dtype=np.uint64)
    for table in range(design.tables):
        assert (design.prefixes(fingerprints, table) == design.keys(fingerprints)[:, table] >> 6).all()


def test_paper_designs_have_the_paper_numbers() -> None:
    twenty = Design(6, 3)
    assert (twenty.tables, twenty.blocks - twenty.choose) == (20, 3)
    assert sorted(set(twenty.prefix_bits.tolist())) == [31, 32, 33]
    four = Design(4, 1)
    assert (four.tables, four.blocks - four.choose, four.prefix_bits.tolist()) == (4, 3, [16] * 4)
    assert sorted(set(Design(5, 2).prefix_bits.tolist())) == [25, 26]


@pytest.mark.parametrize(
    ("blocks", "choose", "option"),
    [
        (8, 4, "blocks"),  # 70 tables
        (1, 1, "choose"),  # the whole fingerprint: 64 bits of prefix
        (16, 15, "choose"),  # 60 bits
        (5, 6, "choose"),
        (5, 0, "choose"),
        (0, 1, "blocks"),
        (65, 1, "blocks"),
    ],
)
def test_impossible_design_names_the_option(blocks: int, choose: int, option: str) -> None:
    with pytest.raises(SettingsError, match=option):
        Design(blocks, choose)


def test_prefixes_of_a_key_of_several_words_are_made_of_its_blocks() -> None:
    places = [Block(0, 0, 19), Block(0, 19, 19), Block(1, 38, 19), Block(2, 45, 19)]
    design = Design(4, 2, 192, places)
    rng = np.random.default_rng(7)
    words = rng.integers(0, 1 << 64, (50, 4), dtype=np.uint64)  # with a further column
    blocks = [words[:, word] >> np.uint64(shift) & np.uint64((1 << bits) - 1) for word, shift, bits in places]
    want = [
        (blocks[one] << np.uint64(19) | blocks[two]) << np.uint64(6) | np.uint64(table)
        for table, (one, two) in enumerate(combinations(range(4), 2))
    ]
    assert design.words == 3
    assert design.keys(words).T.tolist() == [each.tolist() for each in want]
    assert keys_of(words, design.pieces).T.tolist() == [each.tolist() for each in want]


@pytest.mark.parametrize(("blocks", "choose"), LAYOUTS)
def test_prefixes_are_those_of_a_layout_of_the_same_blocks(blocks: int, choose: int) -> None:
    assert Design(blocks, choose).prefix_masks.tolist() == Layout.choose(blocks, choose).masks.tolist()
