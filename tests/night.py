"""Cases of a test that the night alone takes."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any

import pytest
from _pytest.mark import ParameterSet


def cases(every: Iterable[Any], *, by_day: Container[Any]) -> list[ParameterSet]:
    """Parameters of a test, of which `make test` leaves out all that are not named `by_day`."""
    return [_case(each, is_of_night=each not in by_day) for each in every]


def by_night(every: Iterable[Any]) -> list[ParameterSet]:
    """Parameters of a test that `make test` leaves out."""
    return [_case(each, is_of_night=True) for each in every]


def _case(case: Any, *, is_of_night: bool) -> ParameterSet:
    values = case if isinstance(case, tuple) else (case,)
    return pytest.param(*values, marks=pytest.mark.night if is_of_night else ())
