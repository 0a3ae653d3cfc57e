"""The hash of a bucket key, for the compiled loops of the tables."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from stream.compiled import inlined
from stream.fingerprint.keyed_hashes import mix64

mixed: Callable[[np.uint64], np.uint64] = inlined(mix64)
