"""Imports every module of the package, so that Python keeps the bytecode of what a role may load.

An image is read-only when it runs: what has no bytecode in it is compiled again at every start.
"""

import importlib
import pkgutil

import stream

for module in pkgutil.walk_packages(stream.__path__, "stream."):
    if module.name.endswith("__main__"):
        continue
    try:
        importlib.import_module(module.name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "stream":  # others are what extras bring
            raise
