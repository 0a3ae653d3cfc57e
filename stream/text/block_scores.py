"""Scores of a page's blocks: sums of trees of integers, in two stages, by a compiled loop.

The first stage sees a block and what is around it. The second sees besides what the first one says of the
blocks beside it and of the containers that enclose it.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stream.compiled import compiled
from stream.text.block_features import FEATURES, add_context

UNIT: Final = 4096
"""Scores are logarithms of odds in this part of a natural one."""
FEW: Final = 24
HOPELESS: Final = -UNIT * 5 // 4
_STEPS: Final = 16
_FARTHEST: Final = 7
_LAST: Final = _FARTHEST * _STEPS
CHANCES: Final = np.array(
    [round(1000 / (1 + math.exp(-step / _STEPS))) for step in range(-_LAST, _LAST + 1)], np.int32
)
"""The chance that a block is content, in permille, for each step of a 16th of a natural logarithm."""


@compiled
def chances(scores: NDArray[np.int32]) -> NDArray[np.int32]:
    shares = np.empty_like(scores)
    for i in range(len(scores)):
        step = scores[i] * _STEPS // UNIT + _LAST
        shares[i] = CHANCES[max(0, min(len(CHANCES) - 1, step))]
    return shares


@compiled
def sums(rows: NDArray[np.int16], nodes: NDArray[np.int16], roots: NDArray[np.int32]) -> NDArray[np.int32]:
    """The sum of the leaves that each row reaches (rows,). Of a row that is below HOPELESS after the first
    FEW trees, the others are not asked, and the sum is twice what it was: most blocks of a page are such."""
    columns, limits, rights = nodes[0], nodes[1], nodes[2]
    totals = np.zeros(len(rows), np.int32)
    for i in range(len(rows)):
        row, total = rows[i], 0
        for tree in range(len(roots)):
            if tree == FEW and total < HOPELESS:
                total *= 2
                break
            at = roots[tree]
            while columns[at] >= 0:
                at = at + 1 if row[columns[at]] <= limits[at] else rights[at]
            total += limits[at]
        totals[i] = total
    return totals


@compiled
def block_scores(
    blocks: NDArray[np.int32],
    containers: NDArray[np.int32],
    rows: NDArray[np.int16],
    nodes: NDArray[np.int16],
    first: NDArray[np.int32],
    second: NDArray[np.int32],
) -> NDArray[np.int32]:
    """The score of each block (blocks,), from its features and the trees of both stages. Writes the columns
    of CONTEXT."""
    add_context(blocks, containers, chances(sums(rows, nodes, first)), len(FEATURES), rows)
    return sums(rows, nodes, second)
