"""What an elector tells of 100,000 pages, half of them in one cluster, is what keep_one.sql keeps."""

from __future__ import annotations

import dataclasses
import random
from pathlib import Path

import pytest

from stream.elector.judged_pages import Decided
from stream.messages.best import BestRecord
from tests.elected import decided_of, open_elector, tell_all
from tests.genesis import JOURNAL
from tests.property.best_oracle import POLICIES, Judged, crawl, members, show, url_of
from tests.property.test_kept_pages import duckdb, kept_by_sql, table_of

PAGES = 100_000
CROWD = 55_000
PREFIX = JOURNAL[:8]
BATCH = 500
"""Decisions in one batch."""
PAUSES = 4
"""How often the SQL is asked."""


@pytest.fixture(scope="module")
def judged() -> list[Judged]:
    """A crawl, then a crowd of URLs that join one of its clusters, then pages of these URLs again."""
    rng = random.Random(1)
    pages = crawl(1, 25_000)
    cluster = next(each.page for each in pages if each.verdict == "unique")
    urls = [f"https://{rng.choice('abcd')}.example/crowd/{number}" for number in range(CROWD)]
    again = rng.choices(urls, k=PAGES - len(pages) - CROWD)
    offset = (pages[-1].page >> 16) + 1
    for number, url in enumerate([*urls, *again]):
        page = offset + number // 7 << 16 | number % 7
        of: int | None = cluster
        verdict = "duplicate" if number < CROWD else "recrawl"
        chance = rng.random()
        if number >= CROWD and chance < 0.3:  # it leaves the cluster, unless it could not be read
            verdict = rng.choice(("unique", "insufficient", "rejected"))
            of = page if verdict == "unique" else None
        made = Judged(page, url, url, verdict, of, rng.randrange(100, 5_000))
        pages.append(
            dataclasses.replace(
                made,
                quality=rng.choice((None, rng.random())),
                fetched_at=rng.choice((None, 1_700_000_000_000 + rng.randrange(10**6))),
            )
        )
    assert len(pages) == PAGES
    assert max(len(each) for each in members(pages).values()) >= 45_000
    assert max(len(each) for each in members(pages[:80_000]).values()) >= 50_000
    return pages


@pytest.fixture(scope="module")
def decided(judged: list[Judged]) -> list[Decided]:
    return decided_of(judged, 1)


@pytest.mark.night
@pytest.mark.parametrize("elect", POLICIES)
def test_a_cluster_of_fifty_thousand_keeps_what_the_sql_keeps(
    judged: list[Judged], decided: list[Decided], elect: str, tmp_path: Path
) -> None:
    elector, told, table = open_elector(tmp_path, elect), dict[str, BestRecord](), table_of(judged)
    places, first_urls = (
        [each.page for each in judged],
        {show(each.page, PREFIX): each.url for each in judged},
    )
    keys = {each.url: url_of(each) for each in judged}
    starts = range(0, len(decided), BATCH)
    asked = {starts[len(starts) * number // PAUSES - 1] for number in range(1, PAUSES + 1)}
    with duckdb() as database:
        for start in starts:
            batch = decided[start : start + BATCH]
            elector.apply(batch)
            told |= {each.cluster: each for each in tell_all(elector)}
            if start not in asked:
                continue
            end = sum(page >> 16 < batch[-1].decisions.end for page in places)
            urls = dict(zip(table["id"].to_pylist(), table["url"].to_pylist(), strict=True))
            by_sql = kept_by_sql(database, table.slice(0, end), elect)
            wanted = {
                cluster.replace("9f576ade", PREFIX): keys[urls[page]] for cluster, page in by_sql.items()
            }
            began = [show(each.page, PREFIX) for each in judged[:end] if each.cluster == each.page]
            found = {}
            for cluster in began:
                record = told.get(cluster)
                if record is None:
                    found[cluster] = keys[first_urls[cluster]]
                elif record.best is not None:
                    found[cluster] = keys[record.best.url]
            assert found == wanted
    elector.state.close()
    assert len(told) > 1000
