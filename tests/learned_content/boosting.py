"""Gradient-boosted trees of integers: logistic loss, histograms, leaves split best first.

Gradients are rounded to integers, so that sums do not depend on their order: the same rows give the same
trees.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream.compiled import compiled

BINS = 64
UNIT = 1 << 12
"""Scores and values of leaves are in this part of a logit."""
SCALE = 1 << 10
"""Of gradients and their weights."""
PENALTY = 5 * SCALE
"""Added to the weight of each leaf."""


class Binned(NamedTuple):
    """Rows by the bins of their values."""

    bins: NDArray[np.uint8]
    """(columns, rows)"""
    edges: list[NDArray[np.int64]]
    """Of each column the largest value of each bin but the last."""


def binned(rows: NDArray[np.int16]) -> Binned:
    """Bins of about equal numbers of rows."""
    bins = np.empty((rows.shape[1], len(rows)), np.uint8)
    edges = []
    for column in range(rows.shape[1]):
        values = np.sort(rows[:, column])
        quantiles = np.unique(values[(np.arange(1, BINS) * len(values)) // BINS])
        if quantiles.size and quantiles[-1] == values[-1]:
            quantiles = quantiles[:-1]
        bins[column] = np.searchsorted(quantiles, rows[:, column], "left")
        edges.append(quantiles.astype(np.int64))
    return Binned(bins, edges)


def learn(
    rows: NDArray[np.int16],
    labels: NDArray[np.int8],
    weights: NDArray[np.float64],
    *,
    trees: int,
    leaves: int,
    rate: float,
    least: int = 40,
) -> list[str]:
    """Trees as `stream.text.content_model` reads them. Labels are 0 and 1. A leaf has at least `least` rows.

    Each tree sees 7 in 10 rows and half of the columns, drawn with a fixed seed.
    """
    data, random = binned(rows), np.random.default_rng(1)
    scores = np.zeros(len(rows))
    written = []
    for _ in range(trees):
        chance = 1 / (1 + np.exp(-scores))
        gradient = np.rint((labels - chance) * weights * SCALE).astype(np.int64)
        hessian = np.rint(chance * (1 - chance) * weights * SCALE).astype(np.int64)
        drawn = np.flatnonzero(random.random(len(rows)) < 0.7).astype(np.int32)
        columns = np.sort(random.permutation(rows.shape[1])[: rows.shape[1] // 2]).astype(np.int32)
        nodes = _tree(data.bins, gradient, hessian, drawn, columns, leaves, least)
        values = np.array(
            [int(np.rint(rate * UNIT * total / (mass + PENALTY))) for total, mass in nodes[:, 4:]], np.int64
        )
        scores += values[_leaves(data.bins, nodes)] / UNIT
        written.append(_written(nodes, values, data.edges, 0))
    return written


@compiled
def _tree(
    bins: NDArray[np.uint8],
    gradient: NDArray[np.int64],
    hessian: NDArray[np.int64],
    drawn: NDArray[np.int32],
    columns: NDArray[np.int32],
    leaves: int,
    least: int,
) -> NDArray[np.int64]:
    """The nodes of one tree: column (-1 for a leaf), bin, numbers of both parts, and the sums of gradients
    and weights. Shape (nodes, 6)."""
    most = 2 * leaves - 1
    nodes = np.zeros((most, 6), np.int64)
    histograms = np.zeros((most, len(columns), BINS, 3), np.int64)
    best = np.full((most, 3), -1.0)
    starts, ends = np.zeros(most, np.int64), np.zeros(most, np.int64)
    rows = drawn.copy()
    other = np.empty_like(rows)
    ends[0] = len(rows)
    nodes[:, 0] = -1
    _fill(bins, gradient, hessian, rows, columns, histograms[0])
    _sums(gradient, hessian, rows, nodes[0])
    best[0] = _best(histograms[0], nodes[0], len(rows), least)
    count = 1
    for _ in range(leaves - 1):
        top = -1
        for i in range(count):
            if nodes[i, 0] == -1 and best[i, 0] > 0 and (top < 0 or best[i, 0] > best[top, 0]):
                top = i
        if top < 0:
            break
        column, limit = columns[int(best[top, 1])], int(best[top, 2])
        start, end = starts[top], ends[top]
        left, right = start, end
        for place in range(start, end):
            if bins[column, rows[place]] <= limit:
                other[left] = rows[place]
                left += 1
            else:
                right -= 1
                other[right] = rows[place]
        rows[start:end] = other[start:end]
        nodes[top, 0], nodes[top, 1], nodes[top, 2], nodes[top, 3] = column, limit, count, count + 1
        starts[count], ends[count], starts[count + 1], ends[count + 1] = start, left, left, end
        few, many = (count, count + 1) if left - start <= end - left else (count + 1, count)
        _fill(bins, gradient, hessian, rows[starts[few] : ends[few]], columns, histograms[few])
        histograms[many] = histograms[top] - histograms[few]
        for i in (count, count + 1):
            _sums(gradient, hessian, rows[starts[i] : ends[i]], nodes[i])
            best[i] = _best(histograms[i], nodes[i], ends[i] - starts[i], least)
        count += 2
    return nodes[:count]


@compiled
def _fill(
    bins: NDArray[np.uint8],
    gradient: NDArray[np.int64],
    hessian: NDArray[np.int64],
    rows: NDArray[np.int32],
    columns: NDArray[np.int32],
    histogram: NDArray[np.int64],
) -> None:
    for k in range(len(columns)):
        own, of = histogram[k], bins[columns[k]]
        for row in rows:
            into = own[of[row]]
            into[0] += gradient[row]
            into[1] += hessian[row]
            into[2] += 1


@compiled
def _sums(
    gradient: NDArray[np.int64], hessian: NDArray[np.int64], rows: NDArray[np.int32], node: NDArray[np.int64]
) -> None:
    for row in rows:
        node[4] += gradient[row]
        node[5] += hessian[row]


@compiled
def _best(
    histogram: NDArray[np.int64], node: NDArray[np.int64], rows: int, least: int
) -> NDArray[np.float64]:
    """Gain, place of the column, and bin of the best split; a gain of -1 for none."""
    found = np.full(3, -1.0)
    total, mass = float(node[4]), float(node[5])
    whole = total * total / (mass + PENALTY)
    for k in range(len(histogram)):
        left, weight, number = 0, 0, 0
        for limit in range(BINS - 1):
            left += histogram[k, limit, 0]
            weight += histogram[k, limit, 1]
            number += histogram[k, limit, 2]
            if number < least or not histogram[k, limit, 2]:
                continue
            if rows - number < least:
                break
            right = total - left
            gain = left * left / (weight + PENALTY) + right * right / (mass - weight + PENALTY) - whole
            if gain > found[0] + 1e-6:
                found[0], found[1], found[2] = gain, k, limit
    return found


@compiled
def _leaves(bins: NDArray[np.uint8], nodes: NDArray[np.int64]) -> NDArray[np.int32]:
    """The leaf of each row."""
    found = np.empty(bins.shape[1], np.int32)
    for row in range(bins.shape[1]):
        at = 0
        while nodes[at, 0] >= 0:
            at = nodes[at, 2] if bins[nodes[at, 0], row] <= nodes[at, 1] else nodes[at, 3]
        found[row] = at
    return found


def _written(
    nodes: NDArray[np.int64], values: NDArray[np.int64], edges: list[NDArray[np.int64]], at: int
) -> str:
    column, limit, left, right = nodes[at, :4].tolist()
    if column < 0:
        return str(values[at])
    parts = (_written(nodes, values, edges, part) for part in (left, right))
    return " ".join((f"{column}:{edges[column][limit]}", *parts))
