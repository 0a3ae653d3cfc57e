"""Every near-neighbour method finds the pairs of five lines of brute force."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream.errors import SettingsError
from stream.offline.layouts import Layout
from stream.offline.pairs import Pairs
from tests.bench.methods import METHODS, open_method
from tests.bench.methods.ball import ball_size
from tests.bench.methods.interpolation import interpolate
from tests.bench.methods.permutation import permute
from tests.bench.methods.sorted_tables import SortedTables
from tests.bench.methods.stored_ball import StoredBall
from tests.fingerprint_sets import as_integers, flip_bits, random_set

LAYOUTS = ["5 choose 2", "7 choose 4", "8 choose 5", "5 then 4"]


def brute_force(stored: list[int], queries: list[int], distance: int) -> list[tuple[int, int, int]]:
    return [
        (row, place, (query ^ held).bit_count())
        for row, query in enumerate(queries)
        for place, held in enumerate(stored)
        if (query ^ held).bit_count() <= distance
    ]


def listed(found: Pairs) -> list[tuple[int, int, int]]:
    return list(zip(found.row.tolist(), found.stored.tolist(), found.distance.tolist(), strict=True))


@pytest.mark.parametrize("width", [32, 64, 128])
@pytest.mark.parametrize("name", [*METHODS, *LAYOUTS])
def test_every_method_equals_brute_force(name: str, width: int) -> None:
    rng = np.random.default_rng(width)
    distance = 2 if width == 128 else 3  # balls of 128 bits are large
    n = 40 if name == "stored-ball" else 400
    stored = random_set(rng, n, width)
    stored[n // 2 : n // 2 + 10] = stored[:10]  # duplicates
    stored[n // 2 + 10 : n // 2 + 13] = stored[0]
    queries = random_set(rng, 30, width)
    queries[:24] = flip_bits(rng, stored[:24], width, np.arange(24) % (distance + 2))
    method = open_method(name, stored, width, distance)
    wanted = brute_force(as_integers(stored), as_integers(queries), distance)
    assert len(wanted) >= 24 * (distance + 1) // (distance + 2)
    assert listed(method.search(queries)) == wanted
    assert listed(method.search(queries[:0])) == []
    assert method.queries == 30
    assert method.bytes > 0


@given(seed=st.integers(0, 2**32), n=st.integers(0, 60), distance=st.integers(0, 3), same=st.booleans())
@settings(max_examples=25)
def test_methods_agree_on_sets_of_any_shape(seed: int, n: int, distance: int, same: bool) -> None:
    rng = np.random.default_rng(seed)
    stored = random_set(rng, n, 32)
    if same:
        stored[:] &= np.uint64(0b1111)  # crowded: everything is near everything
    queries = np.concatenate([stored[:3], random_set(rng, 2, 32) & np.uint64(0b1111)])
    wanted = brute_force(as_integers(stored), as_integers(queries), distance)
    for name in METHODS:
        assert listed(open_method(name, stored, 32, distance).search(queries)) == wanted, name


@pytest.mark.parametrize("probing", ["threads", "processes"])
def test_tables_probed_in_parallel_answer_the_same(probing: str) -> None:
    rng = np.random.default_rng(1)
    stored = random_set(rng, 2000, 64)
    queries = flip_bits(rng, stored[:200], 64, np.arange(200) % 5)
    method = SortedTables(stored, 64, 3, probing=probing, workers=2)  # type: ignore[arg-type]
    try:
        found = method.search(queries)
    finally:
        method.close()
    assert listed(found) == brute_force(as_integers(stored), as_integers(queries), 3)


def test_numbers_of_probes_are_the_papers() -> None:
    assert ball_size(64, 3) == 43_745
    probes = {name: METHODS[name].predicted(1 << 34, 64, 3).probes for name in METHODS}
    assert probes["query-ball"] == 43_745
    assert [probes[f"{t}-tables"] for t in (4, 10, 16, 20)] == [4, 10, 16, 20]
    per_probe = {t: METHODS[f"{t}-tables"].predicted(1 << 34, 64, 3).candidates / t for t in (4, 16)}
    assert per_probe == {4: 2.0**18, 16: 2.0**6}  # section 3.1.1: 16 bits, and 28


def test_measured_cost_is_about_the_predicted_one() -> None:
    rng = np.random.default_rng(2)
    stored = random_set(rng, 50_000, 64)
    for name in ("4-tables", "10-tables", "compressed", "one-bit", "16-tables"):
        method = open_method(name, stored, 64, 3)
        method.search(random_set(rng, 200, 64))
        predicted = type(method).predicted(len(stored), 64, 3)
        assert method.measured.probes == predicted.probes, name
        assert method.measured.candidates == pytest.approx(predicted.candidates, rel=0.1, abs=0.1), name
        assert method.bytes == pytest.approx(predicted.bytes, rel=0.03), name


def test_stored_balls_beyond_a_gibibyte_are_refused_with_the_bytes() -> None:
    stored = random_set(np.random.default_rng(3), 5000, 64)
    with pytest.raises(SettingsError, match=r"2,624,700,000 bytes"):
        StoredBall(stored, 64, 3)


@given(st.lists(st.integers(0, 2**64 - 1) | st.integers(0, 20), max_size=200), st.integers(0, 2**32))
def test_interpolation_search_is_searchsorted(values: list[int], seed: int) -> None:
    ascending = np.sort(np.array(values, np.uint64))
    wanted = np.concatenate(
        [ascending, ascending + np.uint64(1), random_set(np.random.default_rng(seed), 5, 64)]
    )
    found, _ = interpolate(ascending, wanted)
    assert found.tolist() == ascending.searchsorted(wanted).tolist()


def test_interpolation_reads_less_than_halving() -> None:
    rng = np.random.default_rng(4)
    ascending = np.sort(random_set(rng, 200_000, 64))
    _, read = interpolate(ascending, random_set(rng, 1000, 64))
    assert read / 1000 < 9 < np.log2(200_000)


@pytest.mark.parametrize("text", ["4 choose 1", "5 choose 2", "6choose3", "4 then 4", "7 choose 3"])
@pytest.mark.parametrize("width", [32, 64, 128])
def test_permutations_keep_all_bits_and_put_the_prefix_first(text: str, width: int) -> None:
    layout = Layout.parse(text, width)
    words = random_set(np.random.default_rng(5), 20, width).reshape(20, -1)
    for table in range(layout.tables):
        permuted = permute(words, layout, table)
        assert np.bitwise_count(permuted).sum(axis=1).tolist() == np.bitwise_count(words).sum(axis=1).tolist()
        bits = layout.key_bits(table)
        assert layout.keys(words, table).tolist() == [n >> (width - bits) for n in as_integers(permuted)]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("20-table", "method: '20-table' is none of"),
        ("3 choose 1", "distance: 3, but 3 choose 1 finds every pair up to 2"),
        ("40 choose 20", "layout: 40 choose 20 makes"),
        ("2 choose 3", "layout: 2 choose 3"),
    ],
)
def test_what_cannot_be_exact_is_refused(name: str, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        open_method(name, np.zeros(3, np.uint64), 64, 3)


@pytest.mark.parametrize(
    ("fingerprints", "width", "message"),
    [
        (np.zeros(3, np.int64), 64, "uint64"),
        (np.zeros((3, 2), np.uint64), 64, "shape"),
        (np.zeros(3, np.uint64), 128, "shape"),
        (np.array([1 << 33], np.uint64), 32, "more than 32 bits"),
        (np.zeros(3, np.uint64), 48, "width"),
    ],
)
def test_arrays_that_are_no_fingerprints_are_refused(fingerprints, width: int, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        open_method("brute-force", fingerprints, width, 3)
