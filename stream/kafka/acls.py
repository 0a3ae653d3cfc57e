"""The ACLs that each role needs at least. docs/operations.md lists them, and tests try them on a secured
broker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from stream.kafka.names import TopicNames

Kind = Literal["topic", "group", "transactional-id"]


@dataclass(frozen=True, slots=True)
class Grant:
    """An ACL without principal and host. Read and Write imply Describe."""

    kind: Kind
    name: str
    operations: tuple[str, ...]
    why: str


def grants(
    role: str,
    names: TopicNames,
    routes: Sequence[str] = (),
    electors: Sequence[str] = ("",),
    dashboard: str = "",
) -> list[Grant]:
    """Return the grants that a role needs, with these verdict routes, electors of these names, and a
    dashboard of this name. Raises KeyError for an unknown role."""
    needed = []
    for kind, pattern, operations, why in _NEEDS[role]:
        of_elector = "{best}" in pattern or "{elector}" in pattern
        for one in routes if "{route}" in pattern else electors if of_elector else [""]:
            name = pattern.format(
                ns=names.namespace,
                route=one,
                best=names.best(one),
                elector=names.elector(one),
                dashboard=names.dashboard(dashboard),
            )
            needed.append(Grant(kind, name, operations, why))
    return needed


_Need = tuple[Kind, str, tuple[str, ...], str]
_READ, _WRITE, _DELETE, _CONFIGS = "Read", "Write", "Delete", "DescribeConfigs"
_ROUTED: Final = "{ns}.verdicts.{route}"
_NEEDS: Final[Mapping[str, tuple[_Need, ...]]] = {
    "topics create": (
        *(
            ("topic", "{ns}." + name, ("Create", "Describe", _CONFIGS), "create and check it")
            for name in ("pages", "journal", "decisions", "requests", "verdicts", "clusters", "rejected")
        ),
        ("topic", _ROUTED, ("Create", "Describe", _CONFIGS), "create and check it, with `verdict_routes`"),
        ("topic", "{best}", ("Create", "Describe", _CONFIGS), "create and check it, with `elect`"),
        (
            "topic",
            "{ns}.genesis",
            ("Create", _READ, _WRITE, _CONFIGS),
            "create it, write and read the genesis",
        ),
        ("transactional-id", "{ns}.genesis", (_WRITE,), "write a single genesis, even concurrently"),
    ),
    "topics describe": (
        *(
            ("topic", "{ns}." + name, ("Describe", _CONFIGS), "show and check it")
            for name in ("pages", "journal", "decisions", "requests", "verdicts", "clusters", "rejected")
        ),
        ("topic", _ROUTED, ("Describe", _CONFIGS), "show and check it, with `verdict_routes`"),
        ("topic", "{best}", ("Describe", _CONFIGS), "show and check it, with `elect`"),
        ("topic", "{ns}.genesis", (_READ, _CONFIGS), "show and check it, read scheme and options"),
    ),
    "topics seed": (("topic", "{ns}.genesis", (_READ,), "read the seed"),),
    "worker": (
        ("topic", "{ns}.pages", (_READ, _CONFIGS), "read pages, check the topic"),
        ("topic", "{ns}.genesis", (_READ, _CONFIGS), "read scheme and seed"),
        ("topic", "{ns}.journal", (_WRITE, _CONFIGS), "append fingerprints"),
        ("topic", "{ns}.rejected", (_WRITE, _CONFIGS), "write dead letters within the size limit"),
        ("topic", "{ns}.decisions", (_READ,), "find the start of a partition without a commit"),
        ("group", "{ns}.workers", (_READ,), "share the partitions, commit"),
    ),
    "judge": (
        ("topic", "{ns}.genesis", (_READ, _CONFIGS), "read scheme and options"),
        ("topic", "{ns}.journal", (_READ, _CONFIGS), "read fingerprints in order"),
        ("topic", "{ns}.decisions", (_READ, _WRITE, _CONFIGS), "recover, record decisions"),
        ("topic", "{ns}.requests", (_READ, _CONFIGS), "know what to forget"),
        ("topic", "{ns}.verdicts", (_WRITE, _CONFIGS), "publish"),
        ("topic", "{ns}.clusters", (_WRITE, _CONFIGS), "publish"),
        ("topic", _ROUTED, (_WRITE, _CONFIGS), "publish, with `verdict_routes`"),
        ("group", "{ns}.judge", (_READ,), "elect a leader, commit for lag tools"),
        ("transactional-id", "{ns}.judge", (_WRITE,), "one transaction per batch; fence the previous leader"),
    ),
    "elector": (
        ("topic", "{ns}.genesis", (_READ, _CONFIGS), "read scheme and options"),
        ("topic", "{ns}.journal", (_READ, _CONFIGS), "read lengths, times, qualities and URLs"),
        ("topic", "{ns}.decisions", (_READ, _CONFIGS), "read verdicts"),
        ("topic", "{best}", (_READ, _WRITE, _CONFIGS), "publish, know what was told before"),
        ("transactional-id", "{elector}", (_WRITE,), "fence an earlier process"),
    ),
    "load": (
        ("topic", "{ns}.genesis", (_READ, _CONFIGS), "read scheme and options"),
        ("topic", "{ns}.journal", (_WRITE, _CONFIGS), "append rows"),
        ("topic", "{ns}.decisions", (_READ,), "find what is judged"),
        ("topic", "{ns}.pages", ("Describe",), "measure the workers' lag"),
        ("group", "{ns}.load", (_READ,), "load alone, note what has begun"),
        ("group", "{ns}.workers", ("Describe",), "measure the workers' lag"),
    ),
    "forget": (
        ("topic", "{ns}.genesis", (_READ, _CONFIGS), "read scheme and seed"),
        ("topic", "{ns}.requests", (_READ, _WRITE, _CONFIGS), "request, and show what was requested"),
        ("topic", "{ns}.decisions", (_READ,), "for --status"),
        *(
            ("topic", "{ns}." + name, ("Describe", _CONFIGS), "for --status: what they still have")
            for name in ("journal", "pages", "verdicts", "rejected")
        ),
        ("topic", "{ns}.clusters", (_READ, _CONFIGS), "for --status: count what is not compacted yet"),
        ("topic", "{best}", (_READ, _CONFIGS), "for --status: count what is not compacted yet, with `elect`"),
    ),
    "trim": (
        ("topic", "{ns}.genesis", (_READ, _CONFIGS), "read scheme and options"),
        (
            "topic",
            "{ns}.decisions",
            (_READ, _DELETE, _CONFIGS),
            "find ledger records, delete what is before",
        ),
        (
            "topic",
            "{ns}.journal",
            (_READ, _DELETE, _CONFIGS),
            "compare with checkpoints, delete what is before",
        ),
    ),
    "publish": (("topic", "{ns}.pages", (_WRITE,), "publish; a crawler needs the same"),),
    "tail": (("topic", "{ns}.verdicts", (_READ,), "read; other consumers of verdicts need the same"),),
    "verdicts export": (("topic", "{ns}.verdicts", (_READ,), "read verdicts"),),
    "audit": (
        ("topic", "{ns}.pages", (_READ, _CONFIGS), "list the pages, know whether the topic is compacted"),
        ("topic", "{ns}.verdicts", (_READ, _CONFIGS), "list the verdicts, know whether they are compacted"),
        ("topic", "{ns}.decisions", (_READ,), "read declared losses"),
        ("topic", "{ns}.genesis", (_READ,), "for --recompute"),
        ("topic", "{ns}.journal", (_READ,), "for --recompute"),
    ),
    "query": (
        ("topic", "{ns}.genesis", (_READ,), "read scheme, options and seed"),
        ("topic", "{ns}.journal", (_READ,), "build the state"),
        ("topic", "{ns}.decisions", (_READ,), "build the state"),
    ),
    "dashboard": (
        ("topic", "{ns}.verdicts", (_READ,), "count verdicts"),
        ("topic", "{ns}.pages", (_READ,), "measure the workers' lag, compare pages of a cluster"),
        (
            "topic",
            "{ns}.journal",
            (_READ,),
            "build the look-up's state, measure the judge's lag",
        ),
        ("topic", "{ns}.genesis", (_READ,), "read scheme, options and seed"),
        ("topic", "{ns}.decisions", (_READ,), "build the look-up's state, know what to forget"),
        ("topic", "{ns}.requests", (_READ,), "know what waits, and what trimmed decisions forgot"),
        ("topic", "{ns}.clusters", (_READ,), "know superseded anchors"),
        ("topic", "{best}", (_READ,), "know kept pages, with `elect`"),
        ("group", "{dashboard}", (_READ,), "read verdicts, commit for lag tools"),
        ("group", "{ns}.workers", ("Describe",), "measure the lag"),
        ("group", "{ns}.judge", ("Describe",), "measure the lag"),
    ),
}
ROLES: Final = tuple(_NEEDS)


def table() -> str:
    """Return the Markdown table of all grants, for docs/operations.md."""
    lines = ["| role | resource | operations | why |", "|---|---|---|---|"]
    for role in ROLES:
        lines += [
            f"| {role} | {each.kind} `{each.name}` | {', '.join(each.operations)} | {each.why} |"
            for each in grants(role, TopicNames("NAMESPACE"), ["VERDICT"])
        ]
    return "\n".join(lines) + "\n"
