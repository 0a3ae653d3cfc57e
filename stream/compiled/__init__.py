"""Compiles loops that NumPy cannot express to machine code, by Numba, at their first call.

Compiled code is cached beside the source or in the user's cache directory (`stream.compiled.code_cache`), so
only the first process waits for the compiler. Importing this module takes a third of a second, and so does
the first call. Therefore it is imported only by code that judges, or that fingerprints many texts.

Under NUMBA_DISABLE_JIT nothing is compiled, and the same loops are run by Python, a thousand times slower.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, ParamSpec, TypeVar, cast

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import njit, types
from numba.core import cgutils, config
from numba.extending import intrinsic

from stream.compiled.code_cache import CodeCache

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")

_INTERPRETED: Final[bool] = bool(config.DISABLE_JIT)  # type: ignore[attr-defined]

if _INTERPRETED:
    np.seterr(over="ignore")  # hashes wrap around, as in machine code


def compiled(function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
    """Decorator: compile the function for the types of arguments with which it is called. It releases the GIL
    while it runs.

    Within the function, mixing uint64 with a signed integer gives a float, so do not mix them. Globals that
    it reads must be numbers, strings, arrays, tuples of these, or compiled functions; a call raises TypeError
    otherwise.

    References to arrays are counted as they are passed on, put into tuples or taken out of these, by atomic
    instructions, which were half of the time of some loops. A loop that makes no arrays is `borrowing`.
    """
    return _compile(function, counts=True)


def borrowing(function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
    """Decorator: like `compiled`, for a loop that works on arrays of its caller: no references are counted.

    Making an array in it is an error of the compiler. Neither it nor a compiled function that it calls may
    return one: a call raises TypeError.
    """
    return _compile(function, counts=False)


def inlined(function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
    """Decorator: like `borrowing`, for a part of a loop. It becomes part of its caller's machine code, so
    passing many arrays to it costs nothing."""
    return _compile(function, counts=False, forceinline=True)


def _compile(
    function: Callable[_Parameters, _Result], *, counts: bool, **options: bool
) -> Callable[_Parameters, _Result]:
    # Unless told whether references are counted, Numba takes this from the function that calls it first.
    dispatcher: Any = cast(Any, njit)(nogil=True, _nrt=counts, **options)(function)
    if hasattr(dispatcher, "py_func"):  # not under NUMBA_DISABLE_JIT
        dispatcher._cache = kept = CodeCache(dispatcher)
        dispatcher.compile = kept.compile
    return cast(Callable[_Parameters, _Result], dispatcher)


def _count_bits(_context: Any, _word: Any) -> Any:
    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.uint64(types.uint64), generate


_popcount = cast(Callable[[np.uint64], int], np.bitwise_count if _INTERPRETED else intrinsic(_count_bits))


@compiled
def popcount(word: np.uint64) -> np.int64:
    """Number of one bits in `word`. Inlined into compiled code."""
    return np.int64(_popcount(word))


def _copy_bytes(_context: Any, out: Any, at: Any, data: Any, first: Any, size: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        to, place, source, start, count = arguments
        to, source = (
            context.make_array(kind)(context, builder, array)
            for kind, array in ((signature.args[0], to), (signature.args[2], source))
        )
        if context.enable_boundscheck:
            _check_bounds(context, builder, place, count, to.nitems)
            _check_bounds(context, builder, start, count, source.nitems)
        cgutils.raw_memcpy(  # type: ignore[no-untyped-call]
            builder, builder.gep(to.data, [place]), builder.gep(source.data, [start]), count, 1
        )
        return context.get_dummy_value()

    return types.void(out, types.int64, data, types.int64, types.int64), generate


def _check_bounds(context: Any, builder: Any, first: Any, count: Any, size: Any) -> None:
    """Generate code that raises IndexError unless 0 <= first <= first + count <= size."""
    end = builder.add(first, count)
    inside = builder.and_(
        builder.icmp_signed(">=", first, first.type(0)),
        builder.and_(builder.icmp_signed("<=", first, end), builder.icmp_signed("<=", end, size)),
    )
    with cgutils.if_unlikely(builder, builder.not_(inside)):  # type: ignore[no-untyped-call]
        context.call_conv.return_user_exc(builder, IndexError, ("copy out of bounds",))


def _prefetch(_context: Any, array: Any, _index: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        start = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        address = builder.bitcast(builder.gep(start, [arguments[1]]), cgutils.voidptr_t)
        number = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [cgutils.voidptr_t, number, number, number])
        hint = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")  # type: ignore[no-untyped-call]
        builder.call(hint, [address, number(0), number(3), number(1)])  # read, all cache levels, data
        return context.get_dummy_value()

    return types.void(array, types.uint64), generate


def _copy_interpreted(out: Any, at: int, data: Any, first: int, size: int) -> None:
    out[at : at + size] = data[first : first + size]


def _prefetch_nothing(_array: Any, _index: Any) -> None:
    pass


prefetch = cast(Callable[[Any, Any], None], _prefetch_nothing if _INTERPRETED else intrinsic(_prefetch))
"""For compiled code: `prefetch(array, index)` starts loading an element of an array, counted as if that were
flat, into the cache. Loops that access memory at random prefetch for many iterations ahead, as each cache
miss takes 100 ns. Any index is allowed."""

copy_bytes = cast(
    Callable[[Any, int, Any, int, int], None],
    _copy_interpreted if _INTERPRETED else intrinsic(_copy_bytes),
)
"""For compiled code: `copy_bytes(out, at, data, first, size)` copies `size` bytes from `data[first:]` to
`out[at:]`. As for arrays, bounds are checked only under NUMBA_BOUNDSCHECK."""
