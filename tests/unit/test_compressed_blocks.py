"""Compressed sorted fingerprints: lossless, and of the computed size."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream.fingerprint.lanes import as_words
from stream.offline.compressed_blocks import CorruptBlockError, encode, expected_bytes, sort_words
from stream.offline.huffman import LONGEST, code_lengths, codes, decoding_table
from tests.fingerprint_sets import random_set


@pytest.mark.parametrize("width", [32, 64, 128])
@pytest.mark.parametrize("block_bytes", [64, 1024])
@given(
    seed=st.integers(0, 2**32),
    n=st.integers(0, 700),
    shape=st.sampled_from(["random", "crowded", "equal", "extremes"]),
)
@settings(max_examples=20)
def test_decoding_gives_what_was_encoded(width: int, block_bytes: int, seed: int, n: int, shape: str) -> None:
    words = as_words(random_set(np.random.default_rng(seed), n, width), width)
    if shape == "crowded":
        words[:, -1] &= np.uint64(0xFF)
    elif shape == "equal":
        words[:] = words[:1]
    elif shape == "extremes":
        words[::2] = 0
        words[1::2] = np.uint64(2 ** min(width, 64) - 1)
    words = sort_words(words)
    compressed = encode(words, width, block_bytes)
    assert compressed.count == n
    assert np.array_equal(compressed.decode(), words)
    ends = np.cumsum(compressed.counts, dtype=np.int64)
    assert np.array_equal(compressed.keys, words[ends - 1])


def test_single_blocks_decode_alone() -> None:
    words = sort_words(as_words(random_set(np.random.default_rng(1), 5000, 64), 64))
    compressed = encode(words, 64)
    chosen = np.array([3, 17, 5])
    ends = np.cumsum(compressed.counts, dtype=np.int64)
    places = zip(compressed.starts[chosen], ends[chosen], strict=True)
    wanted = np.concatenate([words[start:end] for start, end in places])
    assert np.array_equal(compressed.decode(chosen), wanted)


@pytest.mark.parametrize(("n", "width"), [(20_000, 64), (100_000, 64), (100_000, 32), (100_000, 128)])
def test_size_is_the_expected_one(n: int, width: int) -> None:
    words = sort_words(as_words(random_set(np.random.default_rng(2), n, width), width))
    assert encode(words, width).bytes == pytest.approx(expected_bytes(n, width), rel=0.02)
    assert expected_bytes(8e9, 64) / (8e9 * 8) == pytest.approx(0.55, abs=0.01)


def test_bits_that_nobody_wrote_are_refused() -> None:
    words = sort_words(as_words(random_set(np.random.default_rng(3), 5000, 64), 64))
    compressed = encode(words, 64)
    compressed.counts[0] += 40
    with pytest.raises(CorruptBlockError):
        compressed.decode()


@given(st.lists(st.integers(0, 10**9) | st.just(0), min_size=2, max_size=129).filter(any))
def test_codes_are_a_bounded_prefix_code_and_decode(counts: list[int]) -> None:
    lengths = code_lengths(np.array(counts))
    table, taken = decoding_table(lengths)
    assert int(lengths.max()) <= LONGEST
    for symbol, (count, code) in enumerate(zip(counts, codes(lengths).tolist(), strict=True)):
        bits = int(lengths[symbol])
        assert (bits > 0) == (count > 0)
        if bits:
            at = code << (LONGEST - bits)
            assert (table[at], taken[at]) == (symbol, bits)


def test_codes_are_as_short_as_huffmans() -> None:
    lengths = code_lengths(np.array([45, 13, 12, 16, 9, 5]))
    assert sorted(lengths.tolist()) == [1, 3, 3, 3, 4, 4]
