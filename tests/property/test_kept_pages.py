"""An index that follows verdicts and the topic `best` alone has the pages that are kept, at every pause."""

from __future__ import annotations

import json
import random
import runpy
from collections.abc import Sequence
from contextlib import redirect_stdout
from io import StringIO
from typing import Any

import pyarrow as pa
import pytest

from stream.messages.best import BestRecord, encode_best
from tests.documented import ROOT
from tests.night import by_night
from tests.property.best_oracle import (
    POLICIES,
    Judged,
    Topics,
    kept,
    pauses,
    show,
    url_of,
    verdict_of,
)

EXAMPLES = ROOT / "docs" / "examples"
Index: Any = runpy.run_path(str(EXAMPLES / "keep_index.py"))["Index"]


def read(index: Any, verdicts: list[Judged], records: list[BestRecord], rng: random.Random) -> list[str]:
    """Read both topics, each in its order, and return what is to be done."""
    of = [[json.dumps(verdict_of(each)).encode() for each in verdicts], [*map(encode_best, records)]]
    with redirect_stdout(StringIO()) as printed:
        while any(of):
            which = rng.choice([number for number in (0, 1) if of[number]])
            value = json.loads(of[which].pop(0))
            (index.read_best if which else index.read_verdict)(value)
    return printed.getvalue().splitlines()


def obey(pages: set[str], actions: list[str]) -> None:
    """Do with an index what was printed. Each action is about pages that it has, or has not."""
    for action in actions:
        match action.split():
            case "insert", url:
                assert url not in pages
                pages.add(url)
            case "delete", url:
                pages.remove(url)
            case "swap", old, "for", new:
                pages.remove(old)
                assert new not in pages
                pages.add(new)
            case _:
                pytest.fail(action)


def found(index: Any, judged: list[Judged]) -> dict[str, object]:
    urls = {each.url: url_of(each) for each in judged}
    return {cluster: url and urls[url] for cluster, (url, _) in index.clusters.items()}


@pytest.mark.parametrize("elect", POLICIES)
@pytest.mark.parametrize("seed", [0, *by_night(range(1, 6))])
def test_an_index_that_follows_both_topics_has_the_pages_that_are_kept(elect: str, seed: int) -> None:
    topics, index, at, pages = Topics(elect, random.Random(seed)), Index({}), 0, set[str]()
    for verdicts in pauses(topics, seed):
        obey(pages, read(index, verdicts, topics.records[at:], topics.rng))
        at = len(topics.records)
        assert found(index, topics.judged) == topics.wanted()
        assert pages == set(index.urls())
        of_url = {each.url: url_of(each) for each in topics.judged}
        assert {of_url[url] for url in pages} == set(topics.wanted().values()) - {None}
        index = Index(json.loads(json.dumps(index.clusters)))  # as it is stored
    assert None in found(index, topics.judged).values(), "some cluster lost its last page"
    assert len({each.cluster for each in topics.records}) < len(index.clusters)


@pytest.mark.parametrize("elect", POLICIES)
def test_a_reader_that_starts_late_reads_twice_or_was_away_has_them_too(elect: str) -> None:
    topics = Topics(elect, random.Random(elect))
    away, seen, pages = Index({}), 0, set[str]()
    for _ in pauses(topics, 7):
        if topics.rng.random() < 0.2:  # it was away, and missed records that were compacted meanwhile
            obey(pages, read(away, topics.judged[seen:], topics.compacted(), topics.rng))
            seen = len(topics.judged)
            assert found(away, topics.judged) == topics.wanted()
            assert pages == set(away.urls())
        late, its_pages = Index({}), set[str]()
        obey(its_pages, read(late, topics.judged, topics.compacted(), topics.rng))
        assert found(late, topics.judged) == topics.wanted()
        verdicts, records = (topics.rng.randrange(len(each) + 1) for each in (topics.judged, topics.records))
        obey(its_pages, read(late, topics.judged[verdicts:], topics.records[records:], topics.rng))
        assert found(late, topics.judged) == topics.wanted()
        assert its_pages == set(late.urls())


def duckdb() -> Any:
    import duckdb

    return duckdb.connect()


def table_of(judged: Sequence[Judged]) -> pa.Table:
    """Verdicts with what keep_one.sql needs of their pages."""
    rows = [
        {
            "text_hash": f"{each.page % 3}",
            "url_digest": str(url_of(each)),
            "length": each.length,
            "quality": each.quality,
            "fetched_at": each.fetched_at,
            "fingerprint": "0" * 16,
            **verdict_of(each),
        }
        for each in judged
    ]
    return pa.Table.from_pylist(rows)


def kept_by_sql(database: Any, pages: pa.Table, elect: str) -> dict[str, str]:
    """Cluster -> id of the page that docs/examples/keep_one.sql keeps of all verdicts."""
    database.register("pages", pages)
    database.execute(
        "CREATE OR REPLACE TEMP TABLE judged AS"
        " SELECT * REPLACE (make_timestamp(fetched_at * 1000) AS fetched_at) FROM pages"
    )
    database.execute("SET VARIABLE keep = $keep", {"keep": elect})
    database.execute((EXAMPLES / "keep_one.sql").read_text())
    return dict(database.execute("SELECT cluster, id FROM kept WHERE cluster IS NOT NULL").fetchall())


@pytest.mark.parametrize("elect", POLICIES)
@pytest.mark.parametrize("seed", [10, *by_night((11, 12))])
def test_it_is_what_the_sql_keeps_of_all_verdicts(elect: str, seed: int) -> None:
    """As is a table of DuckDB that follows the topics by docs/examples/keep_index.sql."""
    topics, at = Topics(elect, random.Random(seed)), 0
    with duckdb() as database:
        for verdicts in pauses(topics, seed):
            by_sql = kept_by_sql(database, table_of(topics.judged), elect)
            now = {cluster: page for cluster, page in kept(topics.judged, elect).items() if page}
            assert by_sql == {show(cluster): show(page.page) for cluster, page in now.items()}

            urls_by_id = {show(each.page): url_of(each) for each in topics.judged}
            new = [("verdicts", [json.dumps(verdict_of(each)) for each in verdicts])]
            new += [("best", [encode_best(each).decode() for each in topics.records[at:]])]
            for name, values in new:
                records = {"value": pa.array(values, pa.string()), "number": range(len(values))}
                database.register("records", pa.table(records))
                database.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS FROM records")
                database.execute(f"ALTER TABLE {name} ALTER value TYPE JSON")
            database.execute((EXAMPLES / "keep_index.sql").read_text())
            at = len(topics.records)
            urls = {each.url: url_of(each) for each in topics.judged}
            rows = database.execute("SELECT cluster, url FROM index_pages").fetchall()
            assert {cluster: url and urls[url] for cluster, url in rows} == topics.wanted()
            pages = [urls[url] for (url,) in database.execute("SELECT url FROM index_urls").fetchall()]
            assert len(pages) == len(set(pages))
            assert {*pages} == {urls_by_id[page] for page in by_sql.values()}
