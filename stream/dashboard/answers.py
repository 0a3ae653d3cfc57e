"""Request and response types of the JSON API, from which the OpenAPI document is generated."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from msgspec import Meta, Struct

from stream.judge.explain.shingle_diff import ShingleDiff
from stream.messages.verdict import VerdictRecord

PageCount = Annotated[int, Meta(ge=0, description="Pages: verdicts of committed transactions.")]
Moment = Annotated[float, Meta(description="Seconds since 1970-01-01T00:00:00Z.")]
ByVerdict = Annotated[dict[str, int], Meta(description="Verdict -> pages.")]


class Session(Struct):
    """How a request is authenticated."""

    by: Annotated[
        str | None,
        Meta(
            description="token, session (a cookie), proxy, or nobody: no authentication needed; null: denied."
        ),
    ]


class LoginRequest(Struct, forbid_unknown_fields=True):
    """Login of a browser."""

    token: Annotated[str, Meta(max_length=4096)]


class RangeAnswer(Struct, rename={"start": "from", "end": "to"}):
    """The range of the response, widened to whole steps so that the figures are exact."""

    start: Moment
    end: Moment
    step: Annotated[int, Meta(description="Length of a point of the series, in seconds.")]
    host: Annotated[str | None, Meta(description="Only pages of this host; null for all.")] = None


class Series(Struct):
    """Pages per step, by verdict."""

    time: Annotated[list[float], Meta(description="Start of each step, seconds since 1970-01-01T00:00:00Z.")]
    verdicts: Annotated[dict[str, list[int]], Meta(description="Verdict -> pages in each step.")]


class Figures(Struct):
    """Figures of a time range."""

    range: RangeAnswer
    pages: PageCount
    verdicts: ByVerdict
    duplicate_ratio: Annotated[
        float | None, Meta(description="Duplicates divided by pages; null without pages.")
    ]
    pages_per_second: Annotated[
        float, Meta(description="Verdicts per second of all hosts, over the last 30 s.")
    ]
    series: Series
    distances: Annotated[
        dict[str, list[int]],
        Meta(description="Verdict -> pages by Hamming distance to the matching page, 0 to 63 bits or more."),
    ]
    similarities: Annotated[
        dict[str, list[int]],
        Meta(description="Verdict -> pages by estimated Jaccard similarity, 0 to 100 hundredths."),
    ]
    reasons: Annotated[dict[str, int], Meta(description="Reason -> rejected pages.")]
    first: Annotated[
        Moment | None,
        Meta(description="Start of the first window with a verdict, of any host; null without any verdict."),
    ]
    last: Annotated[
        Moment | None,
        Meta(description="End of the last window with a verdict, of any host; null without any verdict."),
    ]
    since: Annotated[
        Moment | None,
        Meta(
            description="Verdicts that were decided before may be missing, because they were gone from their"
            " topic before this dashboard could count them; null if all are counted."
        ),
    ]


class HostFigures(Struct):
    """Figures of a host in a range."""

    host: str
    pages: PageCount
    verdicts: ByVerdict


class Hosts(Struct):
    """Hosts by number of duplicates, descending."""

    range: RangeAnswer
    hosts: list[HostFigures]
    total: Annotated[int, Meta(description="Number of hosts in the range.")]
    next: Annotated[int | None, Meta(description="`offset` of the next page; null at the end.")]
    complete: Annotated[bool, Meta(description="False if small hosts may be missing.")]


class Kept(Struct):
    """The page of a cluster that is kept."""

    url: Annotated[str | None, Meta(description="Null: the last page of the cluster says something else.")]
    id: str | None
    because: Annotated[
        str | None, Meta(description="Why another page is kept; null for the anchor, of which none was told.")
    ] = None
    members: Annotated[
        int | None, Meta(description="URLs whose newest version is in the cluster, as told last.")
    ] = None
    decided_at: Annotated[str | None, Meta(description="Log time of that.")] = None


ElectionState = Literal["none", "reading", "following"]


class Election(Struct):
    """Whether an elector tells which pages are kept."""

    state: Annotated[
        ElectionState,
        Meta(
            description="none: the setting elect is empty, or its topic missing. reading: not to its end yet."
        ),
    ]
    elect: Annotated[str | None, Meta(description="The policy; null if no record was read.")] = None


_ANCHOR: Final = "URL of the anchor; null if it is not known, as all members were judged again."
_PAGES: Final = (
    "The anchor and the pages that joined it since the start of the topic, also if they left since."
)


class ClusterFigures(Struct):
    """A cluster with its size."""

    cluster: Annotated[str, Meta(description="Id of the anchor.")]
    anchor: Annotated[str | None, Meta(description=_ANCHOR)]
    pages: Annotated[int, Meta(description=_PAGES)]
    superseded: Annotated[
        bool,
        Meta(description="Whether the anchor's URL changed, so that it no longer matches, until it expires."),
    ]
    kept: Annotated[Kept | None, Meta(description="Null where it is not known.")] = None


class Clusters(Struct):
    """Clusters by size, descending."""

    clusters: list[ClusterFigures]
    election: Election
    total: Annotated[int, Meta(description="Number of clusters with duplicates, as far as in memory.")]
    next: Annotated[int | None, Meta(description="`offset` of the next page; null at the end.")]


class MemberPage(Struct):
    """A page in a cluster: a duplicate, or a recrawl that joined it when its former cluster had ended."""

    url: str | None
    id: str
    distance: Annotated[
        int | None, Meta(description="Hamming distance to the anchor, in bits; null for a recrawl.")
    ]
    similarity: Annotated[
        float | None, Meta(description="Estimated Jaccard similarity to the anchor; null for a recrawl.")
    ]
    decided_at: str


class FormerPage(Struct):
    """A page that was in a cluster."""

    url: str | None
    id: str
    cluster: Annotated[
        str | None,
        Meta(description="Where the newest verdict on its URL has it; null: it has too little text."),
    ]


class ClusterPages(Struct):
    """A cluster with some of its pages."""

    cluster: str
    anchor: Annotated[str | None, Meta(description=_ANCHOR)]
    pages: Annotated[int, Meta(description=_PAGES)]
    members: Annotated[
        list[MemberPage], Meta(description="Of the first pages of each partition, those that did not leave.")
    ]
    former: Annotated[list[FormerPage], Meta(description="Those that left.")]
    superseded: Annotated[
        bool | None,
        Meta(description="As in figures of a cluster; null in the answer to a look-up."),
    ] = None
    kept: Annotated[
        Kept | None, Meta(description="Null where it is not known, and in the answer to a look-up.")
    ] = None
    election: Annotated[Election | None, Meta(description="Null in the answer to a look-up.")] = None


class HostPages(Struct):
    """A host, and how many pages."""

    host: str
    pages: PageCount


class Neighbours(Struct):
    """Hosts that share pages with a host, among the latest verdicts."""

    host: str
    verdicts: Annotated[int, Meta(description="The latest verdicts of all hosts that were looked at.")]
    anchors: Annotated[
        list[HostPages], Meta(description="Hosts of the anchors that this host's duplicates are like.")
    ]
    duplicates: Annotated[
        list[HostPages], Meta(description="Hosts whose duplicates are like anchors of this host.")
    ]
    left_out: Annotated[int, Meta(description="Hosts that are in neither list, having fewer pages.")]


class SeenVerdict(Struct):
    """A verdict in the list of the latest."""

    sequence: Annotated[int, Meta(description="Number in the order of arrival; for `before`.")]
    verdict: VerdictRecord


class Verdicts(Struct):
    """The latest verdicts, newest first."""

    verdicts: list[SeenVerdict]
    next: Annotated[int | None, Meta(description="`before` of the next page; null at the end.")]


class PartitionBehind(Struct):
    """A partition that is not read to its end."""

    partition: int
    lag_records: int
    lag_seconds: Annotated[
        float | None, Meta(description="Age of the oldest record not read yet; null if unknown.")
    ]
    read_from: Annotated[
        str | None, Meta(description="Address of the process that reads it; null if none does.")
    ]


class GroupLag(Struct):
    """Lag of a consumer group."""

    role: str
    group: str
    topic: str
    state: Annotated[
        str, Meta(description="Kafka's state of the group: Stable, Empty, Dead, PreparingRebalance, ...")
    ]
    members: Annotated[int, Meta(description="Processes in the group.")]
    lag_records: Annotated[int | None, Meta(description="Records not read yet; null if unknown.")]
    lag_seconds: Annotated[
        float | None, Meta(description="Age of the oldest record not read yet; 0 without any.")
    ]
    behind: Annotated[
        list[PartitionBehind], Meta(description="Partitions with unread records, furthest behind first.")
    ] = []
    partitions_behind: Annotated[
        int, Meta(description="Partitions with unread records, including those that `behind` leaves out.")
    ] = 0


class LagSeries(Struct):
    """Lag of a role or partition over time: the largest in each step."""

    role: str
    partition: Annotated[
        int | None, Meta(description="Partition of the role's input topic; null for the whole topic.")
    ]
    lag_seconds: Annotated[
        list[float | None], Meta(description="Age of the oldest record not read yet; null if unknown.")
    ]
    lag_records: Annotated[list[int | None], Meta(description="Records not read yet; null if not measured.")]


class Lag(Struct):
    """Lag over time, as measured by this dashboard."""

    range: RangeAnswer
    since: Annotated[Moment, Meta(description="Start of this dashboard. Nothing was measured before.")]
    time: Annotated[list[float], Meta(description="Start of each step, seconds since 1970-01-01T00:00:00Z.")]
    roles: list[LagSeries]
    partitions: Annotated[
        list[LagSeries],
        Meta(description="The partitions of `role` that were furthest behind; empty without `role`."),
    ]
    partitions_behind: Annotated[
        int, Meta(description="The largest number of partitions of `role` that were behind at once.")
    ]


class ProcessChange(Struct):
    """Something that happened to processes."""

    at: Moment
    role: str
    kind: Annotated[str, Meta(description="start: a process was started. rebalance: a group changed.")]
    detail: Annotated[str, Meta(description="What happened, in words.")]


class Changes(Struct):
    """Restarts and rebalances, as seen by this dashboard."""

    range: RangeAnswer
    since: Annotated[Moment, Meta(description="Start of this dashboard. Rebalances before were not seen.")]
    changes: Annotated[list[ProcessChange], Meta(description="Those of the range, oldest first.")]
    left_out: Annotated[
        int, Meta(description="Earlier ones of the range that are not in the answer, as far as known.")
    ]
    complete: Annotated[bool, Meta(description="False if older changes of the range were dropped.")]


class RoleHealth(Struct):
    """State of a role."""

    role: str
    state: Annotated[str, Meta(description="up, behind, down or unknown.")]
    detail: Annotated[str, Meta(description="The reason in words.")]


class Process(Struct):
    """State of a role's process, from its `/readyz`."""

    role: str
    url: str
    state: Annotated[str, Meta(description="ready, not ready, or unreachable.")]
    detail: Annotated[str, Meta(description="Which checks fail, or why it cannot be reached.")]
    started: Annotated[
        float | None, Meta(description="When it was started, seconds since 1970-01-01T00:00:00Z.")
    ] = None


class Window(Struct):
    """What a deployment with a lifetime remembers. Times are log time."""

    lifetime: Annotated[int, Meta(description="Seconds.")]
    log_time: Annotated[
        Moment | None, Meta(description="Of the last judged journal record; null until known.")
    ] = None
    oldest: Annotated[
        Moment | None,
        Meta(
            description="When the oldest page that has not expired was judged, or carried; null until known."
        ),
    ] = None
    late_pages: Annotated[int, Meta(description="Pages that have expired and are still there.")] = 0
    late_seconds: Annotated[
        float, Meta(description="How much longer than the lifetime the oldest of these have lived.")
    ] = 0
    carried: Annotated[
        float | None,
        Meta(
            description="Share of the pages whose lifetime ended that were carried, since the leading judge"
            " was started; null before any, or if no leading judge is in `dashboard_roles`."
        ),
    ] = None


class Forgetting(Struct):
    """Requests to forget pages."""

    decided: Annotated[int, Meta(description="Requests that were decided.")]
    waiting: Annotated[int, Meta(description="Requests that were not.")]
    since: Annotated[Moment | None, Meta(description="When the oldest of these was made.")] = None


class System(Struct):
    """The roles of the deployment and their progress."""

    namespace: str
    at: Moment
    roles: list[RoleHealth]
    groups: list[GroupLag]
    processes: Annotated[list[Process], Meta(description="The processes in `dashboard_roles`.")]
    anchors: Annotated[
        int | None, Meta(description="Number of anchors; null until reported by the judge or the look-up.")
    ]
    state_bytes: Annotated[
        int | None,
        Meta(description="Size of the judge's state directory; null if it is on another machine."),
    ]
    partitions_read: Annotated[
        int, Meta(description="Partitions of the verdicts topic that this dashboard reads.")
    ]
    partitions: int
    error: Annotated[
        str | None, Meta(description="Why these figures could not be determined; null on success.")
    ]
    window: Annotated[Window | None, Meta(description="Null if pages do not expire.")] = None
    forgetting: Annotated[Forgetting | None, Meta(description="Null if nothing was requested.")] = None
    clock_ahead: Annotated[
        float | None,
        Meta(
            description="Seconds by which the clock of the broker that leads the journal is ahead of the"
            " judge's, if that is more than ten minutes, else 0; null if no leading judge is in"
            " `dashboard_roles`."
        ),
    ] = None
    hidden: Annotated[
        list[str],
        Meta(description="Which records of pages, journal and verdicts open transactions hide, in words."),
    ] = []


class About(Struct):
    """Version, scheme and rule of the deployment. Constant while a dashboard runs."""

    namespace: str
    version: Annotated[str, Meta(description="Version of the dashboard.")]
    scheme: Annotated[str, Meta(description="Id of the scheme, as in verdicts.")]
    scheme_options: Annotated[dict[str, Any], Meta(description="Options of fingerprints and sketches.")]
    verdict_options: Annotated[dict[str, Any], Meta(description="Options that decide near-duplicates.")]
    reasons: Annotated[dict[str, str], Meta(description="Reject reason -> its meaning.")]
    rejected_topic: Annotated[str, Meta(description="Topic with the bytes of rejected pages.")]


class OtherPage(Struct, forbid_unknown_fields=True):
    """A page to compare with: either text or html."""

    text: str | None = None
    html: str | None = None


class LookupRequest(Struct, forbid_unknown_fields=True):
    """A page to look up: a URL, or one of text and html, or both."""

    url: Annotated[str, Meta(max_length=8192)] | None = None
    text: str | None = None
    html: str | None = None
    compare: Annotated[
        OtherPage | None,
        Meta(description="An earlier page to compare that text or html with, as if it were its anchor."),
    ] = None


class NearAnchor(Struct):
    """An anchor near the page."""

    url: str
    id: str
    distance: Annotated[
        int | None,
        Meta(description="Hamming distance of the fingerprints, in bits; null with `disclosure=public`."),
    ]
    similarity: Annotated[float | None, Meta(description="Estimated Jaccard similarity of the shingles.")]
    alike: Annotated[bool, Meta(description="Whether it is similar enough to be a near-duplicate.")]
    why: Annotated[str, Meta(description="The rule, with this page's figures.")]


class Comparison(Struct):
    """The page and the one to compare it with, as if that were its anchor."""

    why: Annotated[str, Meta(description="The rule, with the figures of both pages, or why there are none.")]
    alike: Annotated[
        bool | None, Meta(description="Whether they are near-duplicates; null if one has no fingerprint.")
    ] = None
    distance: Annotated[int | None, Meta(description="Hamming distance of the fingerprints, in bits.")] = None
    similarity: Annotated[float | None, Meta(description="Estimated Jaccard similarity of the shingles.")] = (
        None
    )
    exact_similarity: Annotated[
        float | None, Meta(description="Counted Jaccard similarity of the shingles.")
    ] = None
    shingles: Annotated[
        ShingleDiff | None,
        Meta(description="What their shingles share, and do not, as text; `anchor` is the other page."),
    ] = None


class Lookup(Struct):
    """Result of a look-up. Nothing was inserted."""

    url: str | None
    verdict: Annotated[
        str | None, Meta(description="The verdict that the page would get now; null if only a URL was given.")
    ]
    why: Annotated[str, Meta(description="Explanation of the verdict or history.")]
    history: Annotated[list[VerdictRecord], Meta(description="The URL's last verdicts, newest first.")]
    cluster: ClusterPages | None
    near: Annotated[
        list[NearAnchor],
        Meta(
            description="The most similar anchors, best first: those that are near-duplicates, or have at"
            " least the similarity of the verdict option `evidence`."
        ),
    ]
    behind: Annotated[int, Meta(description="Decision records that the look-up has not applied yet.")]
    searched: Annotated[
        int,
        Meta(description="The newest anchors, which alone are searched for those that share no bucket."),
    ] = 0
    anchors: Annotated[int, Meta(description="All anchors; 0 unless the page was compared.")] = 0
    comparison: Annotated[
        Comparison | None, Meta(description="null unless a page to compare with was given.")
    ] = None


class Problem(Struct):
    """A problem with a request (RFC 9457)."""

    title: str
    status: int
    detail: str
