"""What a load leaves to live pages (rule 21)."""

from __future__ import annotations

from typing import Final

MAX_LAG: Final = 1_000
"""Default of the live pages that may wait for workers while rows are loaded."""
WINDOW: Final = 32_768
"""Rows that may be in the journal without a verdict. Live pages wait for them: some 0.4 s."""
