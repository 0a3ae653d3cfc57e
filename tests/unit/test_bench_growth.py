"""The benchmark of growth goes on where it was ended, and grows the same state as without an end."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest

from stream.errors import SettingsError
from stream.fingerprint.minima import equal_minima
from stream.fingerprint.scheme import MINIMA_WORDS, Scheme
from tests.bench import growth
from tests.bench.growth import Growth, Setup, Slice, dips, summary
from tests.bench.journal import ROWS
from tests.bench.made_rows import MadeRows, is_new, new_before

pytestmark = pytest.mark.night


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growth, "TRANSACTION", 4 * ROWS)
    monkeypatch.setattr(growth, "COPIES", 2 * ROWS)


@pytest.mark.parametrize("strict", [False, True])
def test_a_killed_run_goes_on_and_ends_with_the_same_state(tmp_path: Path, strict: bool) -> None:
    setup = Setup(strict, 1 << 20, 4000, 64, 3000)
    whole = Growth(tmp_path / "whole", setup)
    for _ in whole.grow(20_000):
        pass
    parts = Growth(tmp_path / "parts", setup)
    for measured in parts.grow(20_000):
        if measured.anchors > 8000:
            break  # the batches after the last flush are lost as well
    lost = Slice(parts.next + 100, anchors=12_000)
    parts.slices.append(lost)
    lines = [msgspec.json.encode(each) for each in parts.slices]
    parts._path.write_bytes(b"\n".join([*lines, b'{"en']))  # and half a line
    parts.close()
    parts = Growth(tmp_path / "parts", setup)
    assert [each.anchors for each in parts.slices][-1] < 12_000
    for _ in parts.grow(20_000):
        pass
    parts.start_again()
    assert parts.state.digest() == whole.state.digest()
    figures = summary(parts)
    assert figures["anchors"] == parts.state.tables.count >= 20_000
    assert [each.anchors for each in parts.slices] == sorted({each.anchors for each in parts.slices})
    (recall,) = figures["recall"].values()
    assert recall == 1.0 if strict else recall >= 0.99
    for each in (whole, parts):
        each.close()
    with pytest.raises(SettingsError, match="was begun with"):
        Growth(tmp_path / "parts", Setup(strict, 2 << 20, 4000, 64, 3000))


def test_any_record_can_be_made_alone() -> None:
    one, other = MadeRows(Scheme()), MadeRows(Scheme())
    for number in range(6):
        one.record(number)
    assert one.record(5).encode() == other.record(5).encode()


def test_near_duplicates_are_of_new_rows_before_them() -> None:
    rows = np.arange(1, 100_000)
    bases = new_before(rows, np.random.default_rng(1).integers(0, 1 << 64, len(rows), dtype=np.uint64))
    assert (bases < rows).all()
    assert (bases >= 0).all()
    assert is_new(bases).all()


def test_planted_copies_differ_in_as_many_minima_as_their_similarity_says() -> None:
    made, originals = MadeRows(Scheme()), np.arange(0, 10 * ROWS)
    originals = originals[is_new(originals)][: 4 * ROWS]
    copies = np.concatenate([each.sketch for each in made.copies(originals, 1)])[:, -MINIMA_WORDS:]
    pages = np.concatenate([made.record(number).sketch for number in range(10)])[originals, -MINIMA_WORDS:]
    equal = np.mean([equal_minima(one, other) for one, other in zip(pages, copies, strict=True)])
    assert equal == pytest.approx((0.82 + 0.95) / 2, abs=0.01)


def test_a_dip_is_a_slice_that_is_slower_than_those_beside_it() -> None:
    rates = [100, 98, 96, 40, 92, 90, 88]
    slices = [Slice(n, anchors=n, rows=rate, seconds=1.0) for n, rate in enumerate(rates)]
    assert dips(slices)[0] == (3, pytest.approx(40 / 94, abs=0.01))
