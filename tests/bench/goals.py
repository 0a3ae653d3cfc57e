"""What each figure of the benchmarks should be, and why one is not where that is known."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class Goal:
    """One figure that has a goal."""

    part: str
    """The part of the benchmarks that measures it."""
    what: str
    path: tuple[str, ...]
    """Where it stands in the part's results."""
    sign: str
    """`>=` or `<=`."""
    value: float | tuple[str, ...]
    """A number, or where in the part's results it stands."""
    why: str = ""
    """The reason where it is not met; `{name[name]}` are figures of the same results."""


@dataclass(frozen=True, slots=True)
class GoalResult:
    """A goal beside what was measured."""

    what: str
    goal: str
    measured: float
    met: bool
    why: str


GOALS = (
    Goal(
        "fingerprint", "PyPI simhash / ours, English", ("en", "times_simhash"), ">=", 20,
    ),
    Goal(
        "fingerprint", "PyPI simhash / ours, Chinese", ("zh", "times_simhash"), ">=", 20,
        "of {zh[ours_us_a_text]} us a text, {zh[segment_and_hash_us_a_text]} are segmentation and hashing, "
        "which the peer does not do: it takes four characters at a time",
    ),
    Goal(
        "fingerprint", "ours / segmentation and hashing alone by the libraries, English",
        ("en", "times_plain_segment_and_hash"), "<=", 1.4,
    ),
    Goal(
        "fingerprint", "ours / segmentation and hashing alone by the libraries, Chinese",
        ("zh", "times_plain_segment_and_hash"), "<=", 1.4,
    ),
    Goal(
        "fingerprint", "ours / segmentation and hashing alone by our loops, English",
        ("en", "times_segment_and_hash"),
        "<=", 1.4,
        "our loops cut and hash a text in {en[segment_and_hash_us_a_text]} us, so that weighing its words, "
        "summing 64 bits and the sketch are most of the {en[ours_us_a_text]} us in all. The libraries take "
        "{en[plain_segment_and_hash_us_a_text]} us to cut and hash alone",
    ),
    Goal(
        "fingerprint", "ours / segmentation and hashing alone by our loops, Chinese",
        ("zh", "times_segment_and_hash"),
        "<=", 1.4,
        "our loops cut and hash a text in {zh[segment_and_hash_us_a_text]} us of {zh[ours_us_a_text]} us in "
        "all. The libraries take {zh[plain_segment_and_hash_us_a_text]} us to cut and hash alone",
    ),
    Goal(
        "extract", "of the extraction library's speed alone, HTML to fingerprint", ("ratio",), ">=", 2,
        "beside the library ({library_us_a_page} us a page), decoding takes {decode_us_a_page} us and "
        "tokens to fingerprint {from_text_us_a_page} us",
    ),
    Goal("worker", "of the same children without Kafka", ("ratio",), ">=", 0.85),
    Goal("tables", "rows a second at 5 M with 4 GiB", ("hot", "rows_per_second"), ">=", 700_000,
         "full generations are in runs, whatever the budget: RocksDB answers {hot[rocks_probes_a_row]} "
         "probes a row from the page cache"),
    Goal("tables", "rows a second at 20 M with 1 GiB", ("cold", "rows_per_second"), ">=", 60_000,
         "RocksDB answers {cold[rocks_probes_a_row]} probes a row, on two cores"),
    Goal(
        "end_to_end", "largest process of a worker, MiB, HTML", ("html", "largest_rss_mib", "children"),
        "<=", 400,
    ),
    Goal(
        "judge", "verdicts a second", ("verdicts_per_second",), ">=", 100_000,
        "a verdict takes {processor_us_a_verdict[judge]} us of processor in the judge and "
        "{processor_us_a_verdict[broker]} us in the broker; of the two cores, {cores} are busy, because the "
        "judge's threads take turns in Python, and because a batch can be compared only when the one before "
        "it is decided",
    ),
    Goal(
        "judge", "of publishing alone", ("ratio",), ">=", 0.4,
        "the Kafka client alone publishes {publishing_alone_per_second:,} records a second, without looking "
        "anything up or storing it",
    ),
    Goal(
        "judge_hostile", "slowest hostile journal, rows a second, to an ordinary one", ("worst_ratio",),
        ">=", 0.2,
    ),
    Goal(
        "judge_hostile", "the same in later batches, whose pages meet full buckets", ("worst_later_ratio",),
        ">=", 0.2,
        "in the case *{worst_later_case}*: a page is compared with up to 480 anchors in thirty buckets. One "
        "template alone has {one_template[later_ratio]}",
    ),
    Goal("end_to_end", "times the plain Faust job, text", ("text", "ratio"), ">=", 5),
    Goal("end_to_end", "times the plain Faust job, HTML", ("html", "ratio"), ">=", 5),
    Goal(
        "end_to_end", "wrong verdicts, text; the Faust job's {text[faust_wrong_verdicts]}",
        ("text", "wrong_verdicts"), "<=", 0,
    ),
    Goal(
        "end_to_end", "wrong verdicts, at most the Faust job's, HTML",
        ("html", "wrong_verdicts"), "<=", ("html", "faust_wrong_verdicts"),
    ),
    Goal("latency", "p50 from publish to verdict at half load, ms", ("at_50%", "p50_ms"), "<=", 50),
    Goal("latency", "p99 at half load, ms", ("at_50%", "p99_ms"), "<=", 250),
    Goal("latency", "p99 at 90 % load, ms", ("at_90%", "p99_ms"), "<=", 2000),
    Goal("growth", "speed at the end of the curve to that at 1 M, beside that of a judge just begun",
         ("last_to_million_ratio",), ">=", 0.6,
         "anchors of full generations are asked for in RocksDB, at 4.5 us a group, and compactions of what "
         "is kept for URLs take a share of both cores that grows"),
    Goal("growth", "RAM at the end to that at the budget", ("ram_beyond_ratio",), "<=", 1.1,
         "filters of runs fill their share of the budget, and more is known of URLs"),
    Goal("growth", "disk an anchor, bytes", ("disk_bytes_an_anchor",), "<=", 600,
         "its page has thirty minima and a sketch, and it stands in nine tables of a run"),
    Goal("growth", "seconds to start at 20 M anchors", ("seconds_to_start",), "<=", 5),
    Goal("growth", "rebuilding to deciding", ("rebuild", "ratio"), ">=", 5,
         "a rebuild writes the same pages and URLs ({rebuild[rebuilt_per_second]:,} rows a second) and "
         "saves only "
         "the search for candidates, which is fast: {rebuild[decided_per_second]:,} rows are decided a "
         "second"),
    Goal("lifetime", "speed to that without a lifetime, {carried_a_page} pages carried a page",
         ("to_that_without_ratio",), ">=", 0.85),
    Goal("lifetime", "longest turn, milliseconds", ("longest_turn_ms",), "<=", 500),
    Goal("lifetime", "speed in the last two quarters, one to the other, less 1",
         ("spread_of_last_half", "rows_per_second"), "<=", 0.1),
    Goal("lifetime", "RAM in the last two quarters, less 1", ("spread_of_last_half", "ram_mib"), "<=", 0.1),
    Goal("lifetime", "disk in the last two quarters, mean of each, less 1",
         ("spread_of_last_half", "disk_gb"), "<=", 0.1),
    Goal("lifetime", "start after the last two quarters, less 1",
         ("spread_of_last_half", "seconds_to_start"), "<=", 0.1),
    Goal("templates", "copies that are missed where 30,000 pages share a template, share",
         ("default, mean of 5 seeds", "missed"), "<=", 0.003),
    Goal("match", "all pairs of 1 M fingerprints, k = 3, seconds", ("all_pairs", "1 M", "seconds"),
         "<=", 0.4),
    Goal("match", "all pairs of 10 M, seconds", ("all_pairs", "10 M", "seconds"), "<=", 5),
    Goal("match", "batch against corpus, speed of {threads} threads to one", ("threads_ratio",), ">=", 1.6),
    Goal("backfill", "fingerprint and decide, us a text page", ("text", "fingerprint_and_decide_us_a_page"),
         "<=", 150),
    Goal("backfill", "rows, bytes a text page", ("text", "rows_bytes_a_page"), "<=", 340),
    Goal("backfill", "rows, bytes an HTML page", ("html", "rows_bytes_a_page"), "<=", 340),
    Goal("dashboard", "verdicts folded a second of one core", ("folded_per_second",), ">=", 50_000),
    Goal("dashboard", "processor a verdict, us; the goal is a quarter of the judge's",
         ("processor_us_a_verdict",), "<=", 5,
         "fetching and writing to Kafka take most of it. The rest is reading (1.9 us), the history with "
         "its index "
         "(2.2), sums of hosts (1.8) and of clusters (1.8)"),
    Goal("dashboard", "RSS, MiB, without anchors to look up", ("rss_mib",), "<=", 300,
         "the process has 220 MiB before the first verdict; sums of hosts and clusters take the rest"),
    Goal("start", "neardup --help, seconds", ("help_seconds",), "<=", 0.3),
    Goal("start", "neardup fingerprint of one English page, seconds", ("fingerprint_seconds",), "<=", 1),
    Goal("start", "neardup fingerprint of one Chinese page, seconds", ("chinese_fingerprint_seconds",),
         "<=", 1),
)  # fmt: skip


def judged(part: str, found: dict[str, Any]) -> Iterator[GoalResult]:
    """The part's goals beside its results; those that were not measured are left out."""
    for goal in GOALS:
        if goal.part != part:
            continue
        value = figure_at(found, goal.path)
        bound = figure_at(found, goal.value) if isinstance(goal.value, tuple) else goal.value
        if value is not None and bound is not None:
            met = value >= bound if goal.sign == ">=" else value <= bound
            why = "" if met else _filled(goal.why, found)
            yield GoalResult(_filled(goal.what, found), f"{goal.sign} {bound:,}", value, met, why)
    if part == "table_peers":
        yield from _peers(found)


_AS_LARGE: Final = "at this size the peer's tables fit the processor's caches as ours do"


def _peers(found: dict[str, Any]) -> Iterator[GoalResult]:
    """Ahead of every peer, on every stream."""
    for stream, peers in found.items():
        for peer, row in peers.items():
            for kind in ("looked_up", "looked_up_and_inserted"):
                ratio = row.get(f"ours_to_it_{kind}_ratio")
                if peer != "ours" and ratio is not None:
                    what = f"times {peer}, {stream}, {kind.replace('_', ' ')}"
                    yield GoalResult(what, "> 1", ratio, ratio > 1, "" if ratio > 1 else _AS_LARGE)


def figure_at(found: Any, path: tuple[str, ...]) -> float | None:
    """The number that stands at `path` in a part's results, if one does."""
    for name in path:
        found = found.get(name) if isinstance(found, dict) else None
    return found if isinstance(found, (int, float)) else None


def _filled(text: str, found: dict[str, Any]) -> str:
    """The text with its figures; without them where these results have none such."""
    try:
        return text.format(**found)
    except (KeyError, TypeError, ValueError):
        return ""
