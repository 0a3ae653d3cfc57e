"""The least that each role must be allowed: `docs/operations.md` prints it, a secured broker tries it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from stream.kafka.names import Names

Kind = Literal["topic", "group", "transactional-id"]


@dataclass(frozen=True, slots=True)
class Grant:
    """An ACL, but for its principal and host. Read and Write imply Describe."""

    kind: Kind
    name: str
    operations: tuple[str, ...]
    why: str


def grants(role: str, names: Names, routes: Sequence[str] = ()) -> list[Grant]:
    """What the principal of a role needs in this namespace, with these routes. KeyError for another role."""
    return [
        Grant(kind, each.format(ns=names.namespace, route=route), ops, why)
        for kind, each, ops, why in _NEEDS[role]
        for route in (routes if "{route}" in each else [""])
    ]


_Need = tuple[Kind, str, tuple[str, ...], str]
_READ, _WRITE, _CONFIGS = "Read", "Write", "DescribeConfigs"
_ROUTED: Final = "{ns}.verdicts.{route}"
_NEEDS: Final[Mapping[str, tuple[_Need, ...]]] = {
    "topics create": (
        *(
            ("topic", "{ns}." + name, ("Create", "Describe", _CONFIGS), "make it and check it")
            for name in ("pages", "decisions", "verdicts", "clusters", "rejected")
        ),
        ("topic", _ROUTED, ("Create", "Describe", _CONFIGS), "make it and check it, with `verdict_routes`"),
        ("topic", "{ns}.journal", ("Create", _READ, _WRITE, _CONFIGS), "make it, write and read the genesis"),
        ("transactional-id", "{ns}.genesis", (_WRITE,), "one genesis, however many create"),
    ),
    "worker": (
        ("topic", "{ns}.pages", (_READ, _CONFIGS), "read pages; their topic's configuration is checked"),
        ("topic", "{ns}.journal", (_READ, _WRITE, _CONFIGS), "read the genesis, append fingerprints"),
        ("topic", "{ns}.rejected", (_WRITE, _CONFIGS), "dead letters; how large they may be"),
        ("topic", "{ns}.decisions", (_READ,), "where to begin a partition without a commit"),
        ("group", "{ns}.workers", (_READ,), "share the partitions, commit"),
    ),
    "judge": (
        ("topic", "{ns}.journal", (_READ, _CONFIGS), "read the order of everything"),
        ("topic", "{ns}.decisions", (_READ, _WRITE, _CONFIGS), "recovery; log what was decided"),
        ("topic", "{ns}.verdicts", (_WRITE, _CONFIGS), "publish"),
        ("topic", "{ns}.clusters", (_WRITE, _CONFIGS), "publish"),
        ("topic", _ROUTED, (_WRITE, _CONFIGS), "publish, with `verdict_routes`"),
        ("group", "{ns}.judge", (_READ,), "who leads, and for lag tools"),
        ("transactional-id", "{ns}.judge", (_WRITE,), "one transaction a batch; fence the judge before"),
    ),
    "publish": (("topic", "{ns}.pages", (_WRITE,), "publish; also what a crawler needs"),),
    "tail": (("topic", "{ns}.verdicts", (_READ, _CONFIGS), "also what a consumer of verdicts needs"),),
    "verdicts export": (("topic", "{ns}.verdicts", (_READ,), "take them elsewhere"),),
    "audit": (
        ("topic", "{ns}.pages", (_READ,), "which pages there are"),
        ("topic", "{ns}.verdicts", (_READ,), "which verdicts there are"),
        ("topic", "{ns}.decisions", (_READ,), "what was declared lost"),
        ("topic", "{ns}.journal", (_READ,), "for --recompute"),
    ),
    "query": (
        ("topic", "{ns}.journal", (_READ,), "build the state"),
        ("topic", "{ns}.decisions", (_READ,), "build the state"),
    ),
    "dashboard": (
        ("topic", "{ns}.verdicts", (_READ, _CONFIGS), "count them"),
        ("topic", "{ns}.pages", (_READ,), "how old is what the workers have not read"),
        ("topic", "{ns}.journal", (_READ,), "the genesis; build the look-up's state; the judge's lag"),
        ("topic", "{ns}.decisions", (_READ,), "build the look-up's state"),
        ("topic", "{ns}.clusters", (_READ,), "which anchors are superseded"),
        *(
            ("topic", "{ns}.dashboard-" + name + "-changelog", ("Create", _READ, _WRITE), "its tables")
            for name in ("totals", "hosts", "clusters", "urls")
        ),
        ("group", "{ns}.dashboard", (_READ,), "share the partitions, commit"),
        ("group", "{ns}.workers", ("Describe",), "their lag"),
        ("group", "{ns}.judge", ("Describe",), "its lag"),
    ),
}
ROLES: Final = tuple(_NEEDS)


def table() -> str:
    """The Markdown table of all grants."""
    lines = ["| role | resource | operations | why |", "|---|---|---|---|"]
    for role in ROLES:
        lines += [
            f"| {role} | {each.kind} `{each.name}` | {', '.join(each.operations)} | {each.why} |"
            for each in grants(role, Names("NAMESPACE"), ["VERDICT"])
        ]
    return "\n".join(lines) + "\n"
