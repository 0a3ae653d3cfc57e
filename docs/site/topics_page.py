"""Generates `docs/reference/topics.md` from the topic plan:
`python -m docs.site.topics_page > docs/reference/topics.md`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Final

from stream.kafka.topic_plan import BATCH_MARGIN, IN_SYNC, REPLICAS, TopicPlan, plan
from stream.settings import MIB, load

_MEANING: Final = {
    "pages": ("crawler, `neardup publish`", "workers", "page messages, with the URL as key"),
    "genesis": (
        "`topics create`",
        "all roles",
        "one record: scheme, verdict options and seed of the namespace",
    ),
    "journal": (
        "workers, `neardup load`",
        "judge, dashboard",
        "fingerprints and sketches of all pages, in the order of judgement",
    ),
    "decisions": (
        "judge",
        "judge, `load`, `audit`, `query`",
        "what was decided of each page; recovery replays it",
    ),
    "requests": (
        "`neardup forget`",
        "judge, dashboard",
        "keyed digests of URLs and hosts to forget",
    ),
    "verdicts": ("judge", "you, dashboard", "one verdict for each page, with the key of its page"),
    "clusters": ("judge", "you, dashboard", "anchors that were superseded"),
    "rejected": ("workers", "you", "the bytes of rejected pages, with the reason in the headers"),
    "best": ("elector", "you, dashboard", "with `elect`: which page of a cluster is kept"),
    "verdicts.duplicate": ("judge", "you", "with `verdict_routes=duplicate`: these verdicts once more"),
}
"""Who writes and reads each topic, and what it has."""

_INTRODUCTION: Final = """\
# Topics

`neardup topics create` makes these topics, and `neardup topics describe` checks them. Names begin with the
namespace. Read them with isolation level `read_committed`. Contracts of the records:
[`schemas/`](../../schemas/README.md). This page is generated from `stream/kafka/topic_plan.py`.
"""
_ABOVE_THE_FORM: Final = """
## Required form

Replication factor at least {replicas} and `min.insync.replicas` at least {in_sync}, unless `dev` is set. P is
the setting `partitions` when the topics are created. An existing `pages` topic of a crawler is used as it is.
"""
_END: Final = """
When a role starts, it checks the topics that it uses, and refuses those whose configuration could make
verdicts wrong. [What each role must be allowed](../operations.md#what-each-role-must-be-allowed) lists
consumer groups, transactional ids and access rights."""


def page() -> Iterator[str]:
    """Lines of the page."""
    yield _INTRODUCTION
    settings = load(namespace="NAMESPACE", verdict_routes="duplicate", elect="longest")
    topics = {topic.name.removeprefix("NAMESPACE."): topic for topic in plan(settings)}
    yield "| topic | written by | read by | content |\n|---|---|---|---|"
    for name in topics:
        yield f"| `NAMESPACE.{name}` | {' | '.join(_MEANING[name])} |"
    yield _ABOVE_THE_FORM.format(replicas=REPLICAS, in_sync=IN_SYNC)
    yield "| topic | partitions | `max.message.bytes` at least | configuration |\n|---|---|---|---|"
    for name, topic in topics.items():
        yield f"| `{name}` | {topic.partitions or 'P'} | {_size(topic)} | {_config(topic)} |"
    yield _END


def _size(topic: TopicPlan) -> str:
    return (
        f"{topic.largest // MIB} MiB + {BATCH_MARGIN >> 10} KiB"
        if topic.largest >= MIB
        else (f"{(topic.largest + BATCH_MARGIN) >> 10} KiB")
    )


def _config(topic: TopicPlan) -> str:
    return ", ".join(f"`{name}={value}`" for name, value in topic.config.items()) or "any"


if __name__ == "__main__":
    sys.stdout.write("\n".join(page()) + "\n")
