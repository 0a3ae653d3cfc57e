"""The benchmark of growth goes on where it was ended, and grows the same state as without an end."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from stream.errors import SettingsError
from tests.bench import growth
from tests.bench.growth import Growth, Setup, Slice, summary
from tests.bench.journal import ROWS

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
