"""The verdict option `lifetime` is a duration, and is refused where nothing can expire."""

from __future__ import annotations

from pathlib import Path

import pytest

from stream import Index
from stream.cli.options import structure
from stream.errors import SettingsError
from stream.messages.verdict_options import VerdictOptions


@pytest.mark.parametrize(
    ("given", "seconds"), [("90d", 7_776_000), ("10m", 600), ("1.5h", 5400), ("3600", 3600), ("0.5d", 43_200)]
)
def test_a_lifetime_is_a_duration(given: str, seconds: int) -> None:
    assert structure(VerdictOptions, (f"lifetime={given}",), "--option").lifetime == seconds


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("9m", "--option: lifetime=540s: must be from 10 minutes to 100 years"),
        ("0", "--option: lifetime=0s: must be from 10 minutes to 100 years"),
        ("101y", "--option lifetime=101y: '101y' is not a duration; write 3600, 90s, 15m, 1h or 7d"),
        ("36501d", "--option: lifetime=3153686400s: must be from 10 minutes to 100 years"),
        (f"{'9' * 400}d", f"--option lifetime={'9' * 400}d: not a whole number of seconds"),
        ("-1d", "--option lifetime=-1d: '-1d' is not a duration"),
        ("600.5", r"--option lifetime=600\.5: not a whole number of seconds"),
        ("", "--option lifetime=: '' is not a duration"),
    ],
)
def test_a_lifetime_that_cannot_be_is_refused_by_name(given: str, why: str) -> None:
    with pytest.raises(SettingsError, match=f"^{why}"):
        structure(VerdictOptions, (f"lifetime={given}",), "--option")


def test_an_index_refuses_a_lifetime_and_makes_nothing(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="lifetime=600s: only pages of a topic expire"):
        Index(tmp_path / "index", options=VerdictOptions(lifetime=600))
    assert not list(tmp_path.rglob("*.sst"))
    with Index(tmp_path / "index", options=VerdictOptions()) as index:
        index.add("http://a/", "a text")
