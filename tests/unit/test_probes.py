"""The buckets that are probed for a fingerprint."""

from itertools import combinations

import numpy as np
import pytest

from stream.tables.design import Design
from stream.tables.search.probes import probe_count
from stream.tables.search.probing import Probing, SearchOptions
from tests.probed_keys import probe_keys


def probes_by_hand(
    design: Design, fingerprint: int, table: int, uncertain: list[int], c: int, f: int
) -> set[int]:
    """The definition in the docstring, for one fingerprint and one table."""
    inside = [bit for bit in uncertain if int(design.prefix_masks[table, 0]) >> bit & 1][:c]
    return {
        int(design.keys(np.array([fingerprint ^ sum(1 << bit for bit in chosen)], np.uint64))[0, table])
        for flips in range(f + 1)
        for chosen in combinations(inside, flips)
    }


@pytest.mark.night
@pytest.mark.parametrize(("blocks", "choose"), [(5, 2), (4, 1), (6, 3), (6, 2), (16, 1), (3, 2)])
@pytest.mark.parametrize(("flip_bits", "flips"), [(4, 2), (6, 2), (4, 1), (3, 3), (0, 0), (4, 0)])
def test_probes_flip_the_least_certain_bits_inside_the_prefix(
    blocks: int, choose: int, flip_bits: int, flips: int
) -> None:
    rng = np.random.default_rng(1)
    design = Design(blocks, choose)
    fingerprints = rng.integers(0, 1 << 64, 30, dtype=np.uint64)
    uncertain = np.argsort(rng.random((30, 64)), axis=1)[:, :32].astype(np.uint8)
    keys = design.keys(fingerprints)
    probes = probe_keys(design, keys, uncertain, flip_bits, flips)
    assert probes.shape == (30, design.tables, probe_count(flip_bits, flips))
    assert (probes[:, :, 0] == keys).all()
    for row in range(30):
        for table in range(design.tables):
            expected = probes_by_hand(
                design, int(fingerprints[row]), table, uncertain[row].tolist(), flip_bits, flips
            )
            assert set(probes[row, table].tolist()) == expected


def test_missing_uncertain_bits_flip_nothing() -> None:
    design = Design(4, 1)  # table 0: bits 48 to 63
    uncertain = np.arange(32, dtype=np.uint8)[None]  # none of them
    keys = design.keys(np.array([7], np.uint64))
    probes = probe_keys(design, keys, uncertain, 4, 2)
    assert (probes[0, 0] == keys[0, 0]).all()
    assert len(set(probes[0, 3].tolist())) == 11


@pytest.mark.parametrize("uncertain", [np.full((1, 32), 64), np.zeros((1, 65))])
def test_bits_that_are_not_there_are_refused(uncertain: np.ndarray) -> None:
    word, listed = np.array([7], np.uint64), uncertain.astype(np.uint8)
    with pytest.raises(ValueError, match="uncertain bits"):
        Probing(Design(5, 2), word, word, listed, SearchOptions(4, 2, 10, None))
    probing = Probing(Design(5, 2), word, word, listed, SearchOptions(0, 0, 10, None))
    assert not len(probing.queries.bits)  # looked at by nobody


def test_probe_count_of_the_default_is_eleven() -> None:
    assert probe_count(4, 2) == 11
    assert probe_count(4, 1) == 5
    assert probe_count(0, 0) == 1
