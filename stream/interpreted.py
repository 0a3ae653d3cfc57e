"""Whether Python interprets the inner loops, for commands that have so little to do that compiling these, or
only loading what was compiled, would take longer."""

from __future__ import annotations

import os
from typing import Final

_VARIABLE: Final = "NUMBA_DISABLE_JIT"
"""Numba reads it when it is imported, and child processes inherit it."""


def interpret_loops() -> None:
    """Interpret the loops in this process and its children. Call it before anything imports Numba."""
    os.environ.setdefault(_VARIABLE, "1")


def are_interpreted() -> bool:
    """Whether Python interprets the loops."""
    return os.environ.get(_VARIABLE, "0") not in ("", "0")
