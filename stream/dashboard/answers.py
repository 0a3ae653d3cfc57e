"""What the JSON API answers with. The OpenAPI document is made from these types and their descriptions."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct

from stream.messages.verdict import VerdictRecord

Pages = Annotated[int, Meta(ge=0, description="Pages: verdicts of committed transactions.")]
Moment = Annotated[float, Meta(description="Seconds since 1970-01-01T00:00:00Z.")]
ByVerdict = Annotated[dict[str, int], Meta(description="Verdict -> pages.")]


class Session(Struct):
    """How a request is let in."""

    by: Annotated[
        str | None,
        Meta(description="token, session (a cookie), proxy, or nobody: none is asked; null: not let in."),
    ]


class LoginRequest(Struct, forbid_unknown_fields=True):
    """Logs a browser in."""

    token: Annotated[str, Meta(max_length=4096)]


class RangeAnswer(Struct, rename={"start": "from", "end": "to"}):
    """The range that was answered for: widened to whole steps, so that the figures are exact."""

    start: Moment
    end: Moment
    step: Annotated[int, Meta(description="Seconds that one point of the series stands for.")]
    host: Annotated[str | None, Meta(description="Only pages of this host; null for all.")] = None


class Series(Struct):
    """Pages a step, by verdict."""

    time: Annotated[list[float], Meta(description="Begin of each step, seconds since 1970-01-01T00:00:00Z.")]
    verdicts: Annotated[dict[str, list[int]], Meta(description="Verdict -> pages in each step.")]


class Figures(Struct):
    """What was decided in a range of time."""

    range: RangeAnswer
    pages: Pages
    verdicts: ByVerdict
    duplicate_ratio: Annotated[float | None, Meta(description="Duplicates by pages; null without pages.")]
    pages_per_second: Annotated[float, Meta(description="Verdicts a second, all hosts, over the last 30 s.")]
    series: Series
    distances: Annotated[
        dict[str, list[int]],
        Meta(
            description="Verdict -> pages by Hamming distance to the page they are like, in bits; 64 places."
        ),
    ]
    similarities: Annotated[
        dict[str, list[int]],
        Meta(description="Verdict -> pages by estimated Jaccard similarity, in hundredths; 101 places."),
    ]
    reasons: Annotated[dict[str, int], Meta(description="Reason -> rejected pages.")]
    last: Annotated[
        Moment | None,
        Meta(description="By when the last verdict was decided, of all hosts and ranges; null without any."),
    ]
    revision: Annotated[int, Meta(description="Changes when new verdicts were counted.")]


class HostFigures(Struct):
    """A host's pages in a range."""

    host: str
    pages: Pages
    verdicts: ByVerdict


class Hosts(Struct):
    """Hosts, those with the most duplicates first."""

    range: RangeAnswer
    hosts: list[HostFigures]
    total: Annotated[int, Meta(description="How many there are on all pages of this list.")]
    next: Annotated[int | None, Meta(description="`offset` of the next page; null at the end.")]
    complete: Annotated[bool, Meta(description="False where small hosts were dropped from memory.")]


class ClusterFigures(Struct):
    """A cluster, by its size."""

    cluster: Annotated[str, Meta(description="Id of its anchor.")]
    anchor: Annotated[str, Meta(description="URL of its anchor.")]
    pages: Annotated[int, Meta(description="Its anchor and the duplicates, since the topic's beginning.")]
    superseded: Annotated[
        bool, Meta(description="Its anchor's URL says something else now: it matches no more.")
    ]


class Clusters(Struct):
    """Clusters, the largest first."""

    clusters: list[ClusterFigures]
    total: Annotated[int, Meta(description="Clusters with duplicates that are held in memory.")]
    next: Annotated[int | None, Meta(description="`offset` of the next page; null at the end.")]


class MemberPage(Struct):
    """A duplicate in a cluster."""

    url: str | None
    id: str
    distance: Annotated[int | None, Meta(description="Hamming distance to the anchor, in bits.")]
    similarity: Annotated[float | None, Meta(description="Estimated Jaccard similarity to the anchor.")]
    decided_at: str


class ClusterPages(Struct):
    """A cluster and some of its pages."""

    cluster: str
    anchor: str
    pages: Annotated[int, Meta(description="Its anchor and the duplicates.")]
    members: Annotated[list[MemberPage], Meta(description="The first duplicates of each partition.")]


class SeenVerdict(Struct):
    """A verdict in the list of the latest."""

    sequence: Annotated[int, Meta(description="Counts verdicts as they came; for `before`.")]
    verdict: VerdictRecord


class Verdicts(Struct):
    """The latest verdicts, newest first."""

    verdicts: list[SeenVerdict]
    next: Annotated[int | None, Meta(description="`before` of the next page; null at the end.")]


class GroupLag(Struct):
    """How far a consumer group is behind."""

    role: str
    group: str
    topic: str
    state: Annotated[str, Meta(description="As Kafka says: Stable, Empty, Dead, PreparingRebalance, ...")]
    members: Annotated[int, Meta(description="Processes in the group.")]
    lag_records: Annotated[int | None, Meta(description="Records not read yet; null while not known.")]
    lag_seconds: Annotated[
        float | None, Meta(description="Age of the oldest record not read yet; 0 without any.")
    ]


class RoleHealth(Struct):
    """Whether a role is at work."""

    role: str
    state: Annotated[str, Meta(description="up, behind, down or unknown.")]
    detail: Annotated[str, Meta(description="Why, for a person.")]


class Process(Struct):
    """A role's process, as its own `/readyz` tells."""

    role: str
    url: str
    state: Annotated[str, Meta(description="ready, not ready, or unreachable.")]
    detail: Annotated[str, Meta(description="Which checks fail, or why it cannot be reached.")]


class System(Struct):
    """The stream itself: who runs, and how far everybody is."""

    namespace: str
    at: Moment
    roles: list[RoleHealth]
    groups: list[GroupLag]
    processes: Annotated[list[Process], Meta(description="Those that `dashboard_roles` names.")]
    journal_position: Annotated[int | None, Meta(description="The next journal record to judge, an offset.")]
    journal_end: Annotated[int | None, Meta(description="The offset after the journal's last record.")]
    anchors: Annotated[
        int | None, Meta(description="Anchors searched; null until the judge or the look-up tells.")
    ]
    state_bytes: Annotated[
        int | None,
        Meta(description="Size of the judge's state directory; null where it is on another machine."),
    ]
    partitions_read: Annotated[
        int, Meta(description="Partitions of the verdicts that this dashboard counts.")
    ]
    partitions: int
    error: Annotated[
        str | None, Meta(description="Why these figures could not be had; null when they could.")
    ]


class About(Struct):
    """What this deployment is. Nothing of it changes while a dashboard runs."""

    namespace: str
    version: Annotated[str, Meta(description="Of the dashboard's neardup.")]
    scheme: Annotated[str, Meta(description="Id of the scheme, as verdicts name it.")]
    scheme_options: Annotated[dict[str, Any], Meta(description="What fingerprints and sketches are made by.")]
    verdict_options: Annotated[dict[str, Any], Meta(description="What makes two pages near-duplicates.")]
    reasons: Annotated[dict[str, str], Meta(description="Reason of a rejected page -> what it means.")]
    rejected_topic: Annotated[str, Meta(description="The topic with the bytes of rejected pages.")]


class LookupRequest(Struct, forbid_unknown_fields=True):
    """A page to look up; a URL, or one of text and html, or both."""

    url: Annotated[str, Meta(max_length=8192)] | None = None
    text: str | None = None
    html: str | None = None


class Near(Struct):
    """An anchor near the page."""

    url: str
    id: str
    distance: Annotated[int, Meta(description="Hamming distance of the fingerprints, in bits.")]
    similarity: Annotated[float | None, Meta(description="Estimated Jaccard similarity of the shingles.")]
    alike: Annotated[bool, Meta(description="Whether it is similar enough to be a near-duplicate.")]
    why: Annotated[str, Meta(description="The rule, with this page's figures.")]


class Lookup(Struct):
    """What is known of a page. Nothing was inserted."""

    url: str | None
    verdict: Annotated[
        str | None, Meta(description="What the page would get now; null where only a URL was given.")
    ]
    why: Annotated[str, Meta(description="Why, for a person.")]
    history: Annotated[list[VerdictRecord], Meta(description="The URL's last verdicts, newest first.")]
    cluster: ClusterPages | None
    fingerprint: str | None
    near: Annotated[list[Near], Meta(description="The nearest anchors, best first.")]
    behind: Annotated[int, Meta(description="Decisions that the look-up has not read yet, records.")]


class Problem(Struct):
    """What was wrong with a request (RFC 9457)."""

    title: str
    status: int
    detail: str


ANSWERS: tuple[Any, ...] = (
    Figures,
    Hosts,
    Clusters,
    ClusterPages,
    Verdicts,
    System,
    About,
    LookupRequest,
    Lookup,
    LoginRequest,
    Session,
    Problem,
)
