"""Mutations of bytes, and of trees of values before they are encoded."""

from __future__ import annotations

import random
from typing import Any, Final

import msgspec

NUMBERS: Final = (
    0, 1, -1, 2, 7, 8, 63, 64, 65, 127, 128, 255, 256, 0x7FFF, 0x8000, 0xFFFF, 1 << 24, (1 << 31) - 1,
    1 << 31,
    (1 << 32) - 1, 1 << 32, (1 << 53) + 1, (1 << 62), (1 << 63) - 1, -(1 << 63),
)  # fmt: skip
STRINGS: Final = (
    "", " ", "\0", "a" * 300, "你好世界" * 9, "\ud800", "\ufdfa" * 9, "e\u0301" * 40, "http://[", "http://a/\n",
    "../" * 9, "%s%n", "\u202e\u2066", "NaN", "-1", "1e999", "\ufeff", "\x7f\x1b[0m",
)  # fmt: skip


def damaged(rng: random.Random, data: bytes) -> bytes:
    """The bytes after one to four mutations."""
    found = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        place = rng.randrange(len(found) + 1)
        size = min(rng.choice((1, 1, 2, 4, 8, 33)), len(found) - place)
        match rng.randrange(7):
            case 0 if found and size:
                found[place] ^= 1 << rng.randrange(8)
            case 1:
                del found[place : place + size]
            case 2:
                del found[place:]
            case 3:
                found[place:place] = found[place : place + size] * rng.choice((1, 2, 50))
            case 4:
                found[place : place + size] = rng.randbytes(size)
            case 5:
                width = rng.choice((1, 2, 4, 8))
                number = rng.choice(NUMBERS) & ((1 << 8 * width) - 1)
                found[place : place + width] = number.to_bytes(width, rng.choice(("little", "big")))
            case _:
                found[place:place] = rng.choice((b"\0", b"\xff", b"\r\n\r\n", b"--", b"<", b'"', b"{", b"["))
    return bytes(found)


def packed(rng: random.Random, data: bytes, changes: int) -> bytes:
    """The msgpack `data` with several places of its tree changed, if the result can be encoded."""
    tree: Any = msgspec.msgpack.decode(data)
    for _ in range(changes):
        tree = changed(rng, tree)
    try:
        return msgspec.msgpack.encode(tree)
    except (UnicodeEncodeError, OverflowError):  # lone surrogates; numbers beyond 64 bits
        return data


def stranger(rng: random.Random) -> Any:
    """A value of another type."""
    return rng.choice(
        (
            None,
            True,
            rng.choice(NUMBERS),
            rng.random() * 1e300,
            rng.choice(STRINGS),
            b"",
            rng.randbytes(9),
            [],
            {},
        )
    )


def changed(rng: random.Random, tree: Any) -> Any:
    """A copy of a tree of dictionaries, lists and values with one place changed."""
    if isinstance(tree, dict) and tree and rng.random() < 0.9:
        key = rng.choice(list(tree))
        match rng.randrange(8):
            case 0:
                return {name: value for name, value in tree.items() if name != key}
            case 1:
                return {**tree, str(rng.choice(STRINGS)): stranger(rng)}
            case _:
                return {**tree, key: changed(rng, tree[key])}
    if isinstance(tree, list) and tree and rng.random() < 0.9:
        place = rng.randrange(len(tree))
        match rng.randrange(8):
            case 0:
                return tree[:place] + tree[place + 1 :]
            case 1:
                return tree[:place] + [tree[place]] * rng.choice((2, 3, 20)) + tree[place + 1 :]
            case _:
                return [*tree[:place], changed(rng, tree[place]), *tree[place + 1 :]]
    match tree:
        case bytes():
            return damaged(rng, tree)
        case str() if rng.random() < 0.5:
            place = rng.randrange(len(tree) + 1)
            return tree[:place] + rng.choice(STRINGS) + tree[place:]
        case int() if rng.random() < 0.8:
            return rng.choice((*NUMBERS, tree + 1, tree - 1, -tree))
    return stranger(rng)
