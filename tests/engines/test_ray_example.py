"""The example for Ray Data goes from web archives to deduplicated Parquet."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.examples.sandbox import assert_deduplicates


def test_example_for_ray_does_what_its_page_says(
    ray: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert_deduplicates("ray", tmp_path, monkeypatch, capfd)
