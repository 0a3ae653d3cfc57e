"""Mistyped commands and options get suggestions."""

from __future__ import annotations

import pytest

from stream.errors import SettingsError
from tests.commands import neardup


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["sacn"], "no such command: sacn; did you mean scan?"),
        (["index", "export"], "`neardup index` is now `neardup compress SOURCE FILE` and"),
        (["topics", "creat"], "no such command: creat; did you mean create?"),
        (["topics", "xyz"], "no such command: xyz; choose from create, describe"),
        (["scan", "--worker-proceses", "2", "x"], "Did you mean --worker-processes?"),
        (["scan", "--mode", "strikt", "x"], "'verified', 'strict'"),
    ],
)
def test_commands_and_options_that_are_mistyped(arguments: list[str], said: str) -> None:
    outcome = neardup(*arguments)
    assert outcome.exit_code == 2
    assert said in outcome.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--scheme", "featres=words"], r"--scheme featres=words: no such option; did you mean features\?"),
        (["--scheme", "featres=words"], "choose from width, .*features"),
        (["--scheme", "x=1"], "--scheme x=1: no such option; choose from width, "),
        (
            ["--scheme", "features=wrods"],
            r"features=wrods: not one of words, ngrams, .*; did you mean words\?",
        ),
        (["--scheme", "width=48"], "--scheme width=48: not one of 32, 64, 128"),
        (["--scheme", "sketch_bins=1"], "--scheme sketch_bins=1: Expected `int` >= 64"),
    ],
)
def test_schemes_that_are_mistyped(arguments: list[str], said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        neardup("fingerprint", *arguments, "-", input="{}")


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("similarty=0.9", r"--option similarty=0\.9: no such option; did you mean similarity\?"),
        ("similarity=90%", r"--option similarity=90%: write a number from 0 to 1 with at most four decimals"),
        ("keys=minimum", r"--option keys=minimum: not one of minima, fingerprint; did you mean minima\?"),
        ("distance=far", "--option distance=far: Expected `int`"),
    ],
)
def test_verdict_options_that_are_mistyped(option: str, said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        neardup("explain", "a", "b", "--option", option)
