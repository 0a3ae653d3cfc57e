"""The n longest sentences (Baidu's method with n = 3, by seed 000): texts that share them have the same
fingerprint. Meant for `--mode strict -k 0`; if one of three differs, about 16 of 64 bits do."""

from __future__ import annotations

import re
from typing import Final

from stream.fingerprint.features.feature_methods import Maker
from stream.fingerprint.scheme import Scheme
from stream.text.segment import words

_SPACES: Final = r"\t-\r\x1c-\x20\x85\u1680\u2028\u2029"
r"""White space of normalised texts: what `\s` matches, whatever version of Unicode the running Python has."""
END: Final = re.compile(rf"[。．｡!?;\n\r…]+|\.(?=[{_SPACES}]|$)")
"""Ends of sentences. NFKC has folded the full-width forms. A full stop within a number or name is not one."""


def maker(scheme: Scheme) -> Maker:
    """Picks the longest sentences, of equally long ones the first. Punctuation is ignored."""
    count = scheme.sentences

    def make(text: str, _tokens: list[bytes]) -> dict[bytes, int]:
        parts = dict.fromkeys(" ".join(map(bytes.decode, words(part))) for part in END.split(text))
        parts.pop("", None)
        longest = sorted(parts, key=len, reverse=True)[:count]
        return {sentence.encode(): 1 for sentence in longest}

    return make
