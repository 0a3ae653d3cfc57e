"""What processes that tests fork have in common: the program, and its compiled loops. See tests/kills.py."""

from __future__ import annotations

import importlib
import sys
from multiprocessing import get_context
from multiprocessing.connection import Connection

import duckdb  # noqa: F401
import hypothesis  # noqa: F401
import pyarrow.parquet  # noqa: F401
import pytest  # noqa: F401
from numba.core.dispatcher import Dispatcher

import stream.cli.dedup
import stream.cli.elector
import stream.cli.fingerprint
import stream.cli.judge
import stream.cli.scan
import stream.cli.trim
import stream.cli.worker
import stream.dedup.run
import stream.local.scan_output
import stream.roles.elector.role
import stream.roles.judge.role
import stream.roles.trimmer.role
import stream.roles.worker.role  # noqa: F401
from stream.precompile import PARTS

_forking = get_context("fork")


def _tell_loops_of_a_judge(connection: Connection) -> None:
    """Send module and name of each compiled function that a judge calls, and the types of its arguments."""
    PARTS["judge"]()
    connection.send(
        [
            (each.py_func.__module__, name, signature)
            for module in [*sys.modules.values()]
            for name, each in vars(module).items()
            if isinstance(each, Dispatcher) and each.py_func.__module__ == module.__name__
            for signature in each.overloads
        ]
    )


PARTS["fingerprint"]()
# In a child, as the threads of RocksDB do not survive a fork.
ours, childs = _forking.Pipe()
child = _forking.Process(target=_tell_loops_of_a_judge, args=(childs,))
child.start()
for module, name, signature in ours.recv():
    getattr(importlib.import_module(module), name).compile(signature)
child.join()
