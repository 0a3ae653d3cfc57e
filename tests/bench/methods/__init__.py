"""Near-neighbour methods for fingerprints, one per file. All find the same pairs.

The judge uses none of them, since its tables grow while they are probed (`stream.tables.tables`). They are
the methods of the literature, which `python -m tests.bench tables` compares.
"""

from __future__ import annotations

import re
from typing import Final

from stream.errors import SettingsError
from stream.offline.layouts import Layout
from stream.tables.arrays import U64
from tests.bench.methods.brute_force import BruteForce
from tests.bench.methods.compressed_tables import CompressedTables
from tests.bench.methods.method import Cost, Method
from tests.bench.methods.one_bit import OneBit
from tests.bench.methods.query_ball import QueryBall
from tests.bench.methods.sorted_tables import (
    FiveChooseTwo,
    FourThenFour,
    Interpolation,
    SixChooseThree,
    SortedTables,
)
from tests.bench.methods.stored_ball import StoredBall

__all__ = ["METHODS", "Cost", "Method", "open_method"]

METHODS: Final[dict[str, type[Method]]] = {
    "brute-force": BruteForce,
    "query-ball": QueryBall,
    "stored-ball": StoredBall,
    "one-bit": OneBit,
    "4-tables": SortedTables,
    "10-tables": FiveChooseTwo,
    "16-tables": FourThenFour,
    "20-tables": SixChooseThree,
    "interpolation": Interpolation,
    "compressed": CompressedTables,
}
"""Methods by name. The numbers of tables in the names are for distance 3; they vary with the distance."""

_LAYOUT: Final = re.compile(r"\d+ ?(choose|then) ?\d+")


def open_method(name: str, stored: U64, width: int, distance: int) -> Method:
    """The method of that name over `stored` fingerprints. A layout such as `7 choose 4` means sorted tables
    with that layout. Raises SettingsError.
    """
    if _LAYOUT.fullmatch(name):
        return SortedTables(stored, width, distance, layout=Layout.parse(name, width))
    if name not in METHODS:
        raise SettingsError(f"method: {name!r} is none of {', '.join(METHODS)}, nor a layout like 7 choose 4")
    return METHODS[name](stored, width, distance)
