"""Integer weights of features by the scheme options `weights` and `weight_cap`. See `default_weights`
for the default."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stream.errors import SettingsError
from stream.fingerprint.default_weights import UNIT, weigh
from stream.fingerprint.scheme import Scheme
from stream.text.normalise import normalise

Weigher = Callable[[Mapping[bytes, int]], NDArray[np.int64]]
"""Maps features with their counts to weights (n,), in the same order."""

HEAVIEST: Final = 1 << 44
"""Largest weight of a feature. 2**8 of these are still summed exactly (see `simhash.bit_sums`)."""


def weigher(scheme: Scheme) -> Weigher:
    """Return the weigher that the scheme selects, with its files loaded."""
    weigh_all = _tfidf(scheme.idf) if scheme.weights == "tfidf" else _BY_COUNT[scheme.weights]
    if scheme.weight_cap == 100:
        return weigh_all
    return lambda counts: cap_weights(weigh_all(counts), scheme.weight_cap)


@functools.lru_cache(1 << 12)
def log_weight(count: int) -> int:
    """floor(UNIT * log2(1 + tf)), in integer arithmetic, since libraries round logarithms differently."""
    return int((1 + count) ** UNIT).bit_length() - 1


def cap_weights(weights: NDArray[np.int64], percent: int) -> NDArray[np.int64]:
    """Return the weights, capped so that none exceeds `percent` of their new sum, rounded down. With too few
    features for that, all are equal."""
    ordered: list[int] = np.sort(weights)[::-1].tolist()
    rest = sum(ordered)
    for heavy, largest in enumerate(ordered):
        # With `heavy` features at the cap c: c = percent / 100 * (heavy * c + rest).
        remainder = 100 - heavy * percent
        if remainder <= 0:
            cap = ordered[-1]
            break
        cap = percent * rest // remainder
        if largest <= cap:
            break
        rest -= largest
    else:
        cap = ordered[-1] if ordered else 0
    return np.minimum(weights, np.int64(cap))


def _counts(counts: Mapping[bytes, int]) -> NDArray[np.int64]:
    return np.fromiter(counts.values(), np.int64, len(counts))


def _score(scores: Mapping[bytes, int]) -> NDArray[np.int64]:
    return np.minimum(_counts(scores), HEAVIEST)


def _tf(counts: Mapping[bytes, int]) -> NDArray[np.int64]:
    return UNIT * _counts(counts)


def _sqrt(counts: Mapping[bytes, int]) -> NDArray[np.int64]:
    return weigh(_counts(counts))


def _log(counts: Mapping[bytes, int]) -> NDArray[np.int64]:
    return np.fromiter(map(log_weight, counts.values()), np.int64, len(counts))


_BY_COUNT: Final[dict[str, Weigher]] = {"tf": _tf, "sqrt": _sqrt, "log": _log, "score": _score}


def _tfidf(path: str) -> Weigher:
    idf, median = inverse_frequencies(path)

    def weigh_tfidf(counts: Mapping[bytes, int]) -> NDArray[np.int64]:
        weights = (count * idf.get(feature, median) for feature, count in counts.items())
        return np.fromiter(weights, np.int64, len(counts))

    return weigh_tfidf


@functools.cache
def inverse_frequencies(path: str) -> tuple[dict[bytes, int], int]:
    """rint(UNIT * IDF) of each feature of an IDF file (a "feature number" per line; jieba's own for ""), and
    their median, which is used for unknown features. Raises SettingsError, which names the option."""
    if not path:
        from stream.text.han_cutters import analyse

        path = str(Path(analyse().__file__ or "").with_name("idf.txt"))
    idf: dict[bytes, int] = {}
    for number, line in enumerate(Path(path).read_text("utf-8-sig").splitlines(), 1):
        feature, _, value = line.strip().rpartition(" ")
        try:
            weight = round(UNIT * float(value))
        except (ValueError, OverflowError):
            weight = -1
        if not feature or not 0 <= weight <= UNIT * 100:
            raise SettingsError(
                f"scheme option idf={path}: line {number}: not a feature and its IDF, 0 to 100"
            )
        idf[normalise(feature).encode()] = weight
    if not idf:
        raise SettingsError(f"scheme option idf={path}: the file is empty")
    return idf, sorted(idf.values())[len(idf) // 2]
