"""A digest of everything that determines the machine code of a compiled function.

Numba inlines called functions and freezes constants, whichever files they come from. The digest therefore
covers the bytecode of the function and of all compiled functions and intrinsics that it reaches, and the
values of all globals that they read. Globals from Python, NumPy, Numba or llvmlite are covered by name, since
the cache key has the versions of these. Globals of any other kind are refused.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from types import BuiltinFunctionType, CodeType, EllipsisType, FunctionType, ModuleType
from typing import Any, Final

import numpy as np
from numba.core.dispatcher import Dispatcher
from numba.core.extending import _Intrinsic

_VERSIONED: Final = sys.stdlib_module_names | {"numpy", "numba", "llvmlite"}
_NAMED: Final = (type, FunctionType, BuiltinFunctionType)
_PLAIN: Final = (bool, int, float, complex, str, bytes, type(None), EllipsisType)


def code_digest(function: Dispatcher[Any]) -> bytes:
    """SHA-256 over all of our code and data that determine `function`'s machine code, except argument types.

    Raises TypeError if it reads a global whose value cannot be covered.
    """
    hasher = _Hasher()
    hasher.value(function, function.py_func.__qualname__)
    return hasher.digest()


class _Hasher:
    """Hashes a sequence of values, each preceded by its kind and length."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self._numbers: dict[FunctionType, int] = {}

    def digest(self) -> bytes:
        return self._hash.digest()

    def value(self, value: Any, name: str) -> None:
        """Add a value to the digest. `name` says in errors where the value is."""
        if isinstance(value, _PLAIN):
            self._put(type(value).__name__, repr(value))
        elif isinstance(value, CodeType):
            self._code(value, name)
        elif isinstance(value, tuple):
            self._put("tuple", type(value).__qualname__, len(value))
            for place, item in enumerate(value):
                self.value(item, f"{name}[{place}]")
        elif isinstance(value, slice):  # `array[1:]` has a constant slice from Python 3.14 on
            self._put("slice", value.start, value.stop, value.step)
        elif isinstance(value, frozenset):
            self._put("frozenset", *sorted(map(repr, value)))
        elif isinstance(value, np.ndarray | np.generic) and not value.dtype.hasobject:
            layout = value.flags.c_contiguous, value.flags.f_contiguous, value.flags.writeable
            self._put("array", value.dtype.descr, value.shape, layout)
            self._put("bytes", value.tobytes())
        elif isinstance(value, Dispatcher):
            self._put("compiled", sorted(value.targetoptions.items()))
            self._function(value.py_func)
        elif isinstance(value, _Intrinsic):
            self._put("intrinsic")
            self._function(value.__wrapped__)  # type: ignore[attr-defined]
        elif isinstance(value, ModuleType) and _is_versioned(value.__name__):
            self._put("module", value.__name__)
        elif isinstance(value, _NAMED) and _is_versioned(value.__module__):
            self._put("foreign", value.__module__, value.__qualname__)
        elif isinstance(value, type) and issubclass(value, tuple) and hasattr(value, "_fields"):
            self._put("named tuple", value.__qualname__, value._fields)
        elif isinstance(value, FunctionType):  # only code generators of intrinsics call plain functions
            self._function(value)
        else:
            raise TypeError(f"compiled code reads {name}, a {type(value).__name__}: import a number or array")

    def _function(self, function: FunctionType) -> None:
        number = self._numbers.get(function)
        if number is not None:  # it is recursive, or called from several places
            self._put("met", number)
            return
        self._numbers[function] = len(self._numbers)
        name = f"{function.__module__}.{function.__qualname__}"
        self._put("function", name)
        self._code(function.__code__, name)
        self.value(function.__defaults__, f"{name}'s defaults")
        self.value(tuple(sorted((function.__kwdefaults__ or {}).items())), f"{name}'s defaults")
        for cell, kept in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            self.value(kept.cell_contents, f"{cell} in {name}")
        for read in sorted(set(_names(function.__code__)) & function.__globals__.keys()):
            self._put("global", read)
            self.value(function.__globals__[read], f"{read} in {name}")

    def _code(self, code: CodeType, name: str) -> None:
        self._put("code", code.co_name, code.co_code, code.co_exceptiontable, code.co_flags)
        self._put("arguments", code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount)
        self._put("names", code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
        self.value(code.co_consts, f"a constant in {name}")

    def _put(self, *parts: object) -> None:
        content = repr(parts).encode()
        self._hash.update(len(content).to_bytes(8, "big"))
        self._hash.update(content)


def _is_versioned(module: str) -> bool:
    return module.partition(".")[0] in _VERSIONED


def _names(code: CodeType) -> Iterator[str]:
    """The names of globals and attributes. To tell these apart by `dis` would take five times as long as all
    the rest."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
