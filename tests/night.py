"""Cases of a test that the night alone takes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def by_night(cases: Iterable[Any]) -> list[Any]:
    """The cases, marked so that `make test` leaves them out."""
    return [
        pytest.param(*(each if isinstance(each, tuple) else (each,)), marks=pytest.mark.night)
        for each in cases
    ]
