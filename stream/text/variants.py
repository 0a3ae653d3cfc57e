"""Maps traditional Han characters to simplified ones, so that copies in either script are the same text.

The mapping is OpenCC's, character by character. Words that differ between regions stay different. Measured
on 150 Chinese articles and OpenCC's conversion of them for Taiwan: the median distance falls from 15 bits to
1, the estimated similarity rises from 0.08 to 0.99. It maps 330 MB/s.
"""

from __future__ import annotations

import functools
import sys
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stream.text.points import Points

_HAN: Final = ((0x3400, 0x4DC0), (0x4E00, 0xA000), (0x2_0000, 0x3_23B0))


def simplified(text: str) -> str:
    """`text` with every traditional character replaced by its simplified form. A simplified text changes only
    in the few characters that both scripts use."""
    if text.isascii():
        return text
    points = np.frombuffer(text.encode("utf-32-le"), "<u4")
    return _table().take(points).astype("<u4", copy=False).tobytes().decode("utf-32-le")


def simplified_points(texts: Points) -> Points:
    """`simplified` of each text of a batch."""
    if texts.points.dtype == np.uint8:
        return texts
    return texts._replace(points=_table().take(texts.points))


@functools.cache
def _table() -> NDArray[np.uint32]:
    import opencc

    convert = opencc.OpenCC("t2s").convert
    table = np.arange(sys.maxunicode + 1, dtype=np.uint32)
    for start, end in _HAN:
        # One call for the whole range. One character a line, lest OpenCC take neighbours for a phrase.
        lines = convert("\n".join(map(chr, range(start, end)))).split("\n")
        table[start:end] = [ord(line) if len(line) == 1 else start + i for i, line in enumerate(lines)]
    return table
