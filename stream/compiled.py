"""Loops that NumPy has no words for, compiled to machine code by Numba when they are first called.

What is compiled is kept beside the source, or in the user's cache directory, so only a first process waits.
Importing this takes a third of a second, and the first call as long: only code that judges, or fingerprints
many texts at once, does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

import numpy as np
from numba import njit, types
from numba.extending import intrinsic

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")


def compiled(function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
    """The function, compiled for the types it is called with. It holds the GIL not while it runs.

    In it, mixing uint64 with a signed integer makes a float: every number is of one kind.
    """
    try:
        made = njit(nogil=True, cache=True)(function)
    except RuntimeError:  # no directory to keep it in
        made = njit(nogil=True)(function)
    return cast(Callable[_Parameters, _Result], made)


def _count_bits(_context: Any, _word: Any) -> Any:
    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.uint64(types.uint64), generate


_popcount = cast(Callable[[np.uint64], int], intrinsic(_count_bits))


@compiled
def popcount(word: np.uint64) -> np.int64:
    """How many bits of `word` are one; inlined where it is called from compiled code."""
    return np.int64(_popcount(word))
