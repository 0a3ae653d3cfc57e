"""Which pages are kept, and why each other page is dropped: the rules of docs/examples/keep_one.sql.

DuckDB sorts on disk what exceeds its memory. Pages are numbered from 0 on, in the order of the sources.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from stream.dedup.kept_pages import ClusterCounts
from stream.elector.policy import Policy
from stream.errors import SettingsError
from stream.pages.columns import option_of
from stream.sinks.base import ExportError
from stream.sinks.csv_text import text_of
from stream.sinks.report import cell_of
from stream.sources.source import NoPage

MEMORY: Final = "1GB"
"""Limit of DuckDB, beyond which it uses the disk."""
CHUNK: Final = 16_384
BLOCK: Final = 1 << 20
WHY: Final = {
    "same cluster": "like the page that is kept",
    "same short text": "too short to compare, with the text of the page that is kept",
    "same text": "with the text of the page that is kept",
    "old version": "of a URL that has a newer page",
    "in the index": "like a page that the index had before",
    "rejected": "could not be read",
}
"""Why pages are dropped."""
_LACKED: Final = ("fetched_at", "quality")
"""Fields by which pages are kept, and which they may lack."""

_NO_ROWS: Final = """
CREATE VIEW pages AS SELECT 0::BIGINT AS number, ''::VARCHAR AS url, ''::BLOB AS url_digest,
    ''::VARCHAR AS source, 0::BIGINT AS position, 0::BIGINT AS length, 0::BIGINT AS fetched_at,
    0.0::DOUBLE AS quality,
    ''::BLOB AS fingerprint, ''::VARCHAR AS reason, ''::VARCHAR AS detail, ''::VARCHAR AS label WHERE false;
CREATE VIEW verdicts AS SELECT 0::BIGINT AS number, ''::VARCHAR AS id, ''::VARCHAR AS verdict,
    ''::VARCHAR AS cluster, ''::VARCHAR AS text_hash, 0.0::DOUBLE AS similarity,
    ''::VARCHAR AS duplicate_of_url, ''::VARCHAR AS duplicate_of_id WHERE false;
"""
_ROWS: Final = """
CREATE VIEW pages AS
SELECT "order" AS number, url, url_digest, source, position, length, fetched_at, quality, fingerprint,
    reason, detail, label
FROM read_parquet({rows});
CREATE VIEW verdicts AS
SELECT source_offset AS number, id, verdict, cluster, text_hash, similarity, duplicate_of_url,
    duplicate_of_id
FROM read_parquet({verdicts}) WHERE source_topic_id = {topic_id};
"""
_TEXTS: Final = """
CREATE VIEW pages AS
SELECT "order" AS number, url, url_digest, source, position, length, fetched_at, quality, fingerprint,
    reason, detail, label, text_hash
FROM read_parquet({rows});
CREATE VIEW verdicts AS
SELECT number, number::VARCHAR AS id, CASE WHEN reason IS NULL THEN 'unique' ELSE 'rejected' END AS verdict,
    NULL::VARCHAR AS cluster, hex(text_hash) AS text_hash, NULL::DOUBLE AS similarity,
    NULL::VARCHAR AS duplicate_of_url, NULL::VARCHAR AS duplicate_of_id
FROM pages;
"""
"""In place of verdicts, for clusters of pages with the same text: each counts as too short to compare."""
_JUDGED: Final = """
CREATE TABLE judged AS
SELECT
    pages.number, url_digest, length, fetched_at, quality, verdict,
    CASE WHEN length > 0 THEN verdicts.text_hash END AS text_hash,
    coalesce(cluster, CASE WHEN length > 0 THEN verdicts.text_hash END, pages.number::VARCHAR) AS alike,
    cluster IS NULL AS short,
    cluster IS NOT NULL AND anchors.id IS NULL AS elsewhere
FROM pages
LEFT JOIN verdicts ON verdicts.number = pages.number
LEFT JOIN (SELECT id FROM verdicts) AS anchors ON anchors.id = cluster
"""
"""`elsewhere` is a page whose cluster the index had before. Pages without any text have no text in common."""
_NEWEST_VERSIONS: Final = """
CREATE TABLE newest_versions AS
WITH versions AS (
    SELECT *, alike IS DISTINCT FROM lag(alike) OVER (PARTITION BY url_digest ORDER BY number) AS moved
    FROM judged
    WHERE verdict <> 'rejected'
)
SELECT
    * EXCLUDE (moved),
    max(number) FILTER (moved) OVER (PARTITION BY url_digest) AS since,
    min(number) OVER (PARTITION BY coalesce(text_hash, number::VARCHAR)) AS twin
FROM versions
QUALIFY row_number() OVER (PARTITION BY url_digest ORDER BY number DESC) = 1
"""
"""`since` is the first page from which on the URL was nowhere else."""
_CLUSTERS: Final = """
CREATE TABLE clusters AS
SELECT *, bool_or(elsewhere) OVER (PARTITION BY cluster) AS outside
FROM (SELECT newest_versions.*, {cluster} AS cluster FROM newest_versions {joined})
"""
_COUNTS: Final = """
CREATE TABLE counts AS
SELECT
    cluster, sum(pages)::BIGINT AS cluster_size,
    map(list(label ORDER BY label), list(pages ORDER BY label)) AS cluster_sources
FROM (
    SELECT cluster, coalesce(label, argument) AS label, count(*) AS pages
    FROM clusters JOIN pages USING (number) JOIN arguments USING (source)
    GROUP BY ALL
)
GROUP BY cluster
"""
"""Pages of each cluster, the newest of each URL, by their labels, or else what named their source on the
command line."""
_KEPT: Final = """
CREATE TABLE kept AS
SELECT number, cluster FROM clusters {joined}
WHERE NOT outside
QUALIFY row_number() OVER (PARTITION BY cluster ORDER BY {order}) = 1
ORDER BY number
"""
_DROPPED: Final = """
CREATE TABLE dropped AS
SELECT
    judged.number,
    CASE
        WHEN judged.verdict = 'rejected' THEN 'rejected'
        WHEN clusters.number <> judged.number THEN 'old version'
        WHEN clusters.outside THEN 'in the index'
        WHEN judged.short THEN '{same_text}'
        ELSE 'same cluster'
    END AS why,
    kept.number AS kept_number,
    clusters.cluster
FROM judged
LEFT JOIN clusters ON clusters.url_digest = judged.url_digest AND judged.verdict <> 'rejected'
LEFT JOIN kept ON kept.cluster = clusters.cluster
WHERE judged.number IS DISTINCT FROM kept.number
ORDER BY judged.number
"""
_REPORT: Final = """
SELECT
    dropped.number, pages.url, pages.source AS origin_file, 'page ' || (pages.position + 1) AS origin_place,
    why, pages.reason, pages.detail,
    coalesce(kept_pages.url, CASE why WHEN 'in the index' THEN verdicts.duplicate_of_url END) AS kept_url,
    kept_pages.source AS kept_file, 'page ' || (kept_pages.position + 1) AS kept_place,
    CASE
        WHEN why = 'in the index' OR verdicts.duplicate_of_id = kept_verdicts.id THEN verdicts.similarity
        WHEN kept_verdicts.duplicate_of_id = verdicts.id THEN kept_verdicts.similarity
    END AS similarity,
    bit_count(xor(pages.fingerprint::BIT, kept_pages.fingerprint::BIT))::INTEGER AS bits,
    counts.cluster_size, counts.cluster_sources
FROM dropped
LEFT JOIN counts ON counts.cluster = dropped.cluster
JOIN pages ON pages.number = dropped.number
JOIN verdicts ON verdicts.number = dropped.number
LEFT JOIN pages AS kept_pages ON kept_pages.number = dropped.kept_number
LEFT JOIN verdicts AS kept_verdicts ON kept_verdicts.number = dropped.kept_number
"""
"""Similarities are known where a verdict has them: of a page and the anchor that it was compared with."""


_NO_PAGES: Final = """
CREATE TABLE no_pages (number BIGINT, url VARCHAR, origin_file VARCHAR, origin_place VARCHAR, reason VARCHAR)
"""
_OF_NO_PAGE: Final = pa.schema(
    [("number", pa.int64())]
    + [(name, pa.string()) for name in ("url", "origin_file", "origin_place", "reason")]
)
_WHOLE_REPORT: Final = f"""
SELECT * EXCLUDE (number, follows) FROM (
    SELECT *, false AS follows FROM ({_REPORT})
    UNION ALL BY NAME
    SELECT *, 'no page' AS why, true AS follows FROM no_pages
) ORDER BY follows, number
"""  # noqa: S608 (constants)


class Part(NamedTuple):
    """The pages of a source."""

    first: int
    pages: int


NO_PAGES: Final = Part(0, 0)


class Example(NamedTuple):
    """A page that is dropped, and the one that is kept in its place."""

    url: str
    kept_url: str
    similarity: float


class Election:
    """The pages of a run, of which one of each cluster is elected."""

    def __init__(self, database: duckdb.DuckDBPyConnection, directory: Path) -> None:
        self._database, self._directory = database, directory

    def read(self, rows: Path, verdicts: Path | None, topic_id: str, arguments: dict[str, str]) -> None:
        """Read the rows of a run, and the verdicts on them; without verdicts, clusters are of pages with the
        same text. `arguments` have what named each source. Raises ExportError if a verdict is missing."""
        self._same_text = "same text" if verdicts is None else "same short text"
        with self._translated_errors():
            if any(rows.glob("*.parquet")):
                values = {"rows": _files_in(rows), "verdicts": verdicts and _files_in(verdicts)}
                made = _TEXTS if verdicts is None else _ROWS
                self._database.execute(made.format(**values, topic_id=_literal(topic_id)))
            else:
                self._database.execute(_NO_ROWS)
            self._database.execute(_NO_PAGES)
            self._database.execute("CREATE TABLE arguments (source VARCHAR, argument VARCHAR)")
            self._insert("arguments", {"source": list(arguments), "argument": list(arguments.values())})
            self._database.execute(_JUDGED)
            self._database.execute(_NEWEST_VERSIONS)
        if missing := self._one("SELECT count(*) FROM judged WHERE verdict IS NULL"):
            raise ExportError(
                f"{verdicts}: lacks the verdicts on {missing:,} of {self.pages():,} pages; begin again with a"
                " new --index"
            )

    def links(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the pages that stand for those with their text, and for each the first one of its cluster by
        the verdicts."""
        question = "SELECT DISTINCT twin, min(twin) OVER (PARTITION BY alike) FROM newest_versions"
        with self._translated_errors(), self._database.cursor() as cursor:
            table: Any = cursor.sql(question).to_arrow_table()
        one, two = (column.to_numpy() for column in table.columns)
        return one, two

    def add_chains(self, pages: NDArray[np.int64], roots: NDArray[np.int64]) -> None:
        """Take chains as clusters: for each page that `links` returns, the first one of its chain."""
        with self._translated_errors():
            self._database.execute("CREATE TABLE chains (twin BIGINT, root BIGINT)")
            self._insert("chains", {"twin": pages, "root": roots})

    def elect(self, keep: Policy, *, chains: bool) -> None:
        """Decide which pages are kept. Raises SettingsError for the newest of pages that have no time, and
        for the best of pages that have no quality."""
        field = next((each for each in keep.fields if each in _LACKED), None)
        having = f"SELECT count({field}) > 0 OR count(*) = 0 FROM judged WHERE verdict <> 'rejected'"  # noqa: S608 (constants)
        if field and not self._one(having):
            raise SettingsError(
                f"keep: no page has a `{field}`, so none is kept by it; name the column with"
                f" --{option_of(field)}"
            )
        cluster = "root::VARCHAR" if chains else "alike"
        joined = "JOIN chains USING (twin)" if chains else ""
        with self._translated_errors():
            self._database.execute(_CLUSTERS.format(cluster=cluster, joined=joined))
            self._database.execute(_COUNTS)
            if keep.hosts:
                self._rank_hosts(keep)
            ranked = "JOIN host_ranks USING (number)" if keep.hosts else ""
            self._database.execute(_KEPT.format(joined=ranked, order=_order(keep)))
            self._database.execute(_DROPPED.format(same_text=self._same_text))

    def _rank_hosts(self, keep: Policy) -> None:
        """Make the table of the ranks of pages by their hosts."""

        def ranks(urls: pa.ChunkedArray) -> pa.Array:
            return pa.array(keep.host_ranks(urls.to_pylist()))

        database: Any = self._database  # its types lack names of types
        database.create_function("rank_host", ranks, ["VARCHAR"], "USMALLINT", type="arrow")
        ranked = "SELECT number, rank_host(url) AS host FROM pages WHERE url IS NOT NULL"
        database.execute(f"CREATE TABLE host_ranks AS {ranked}")

    def parts(self) -> dict[str, Part]:
        """Source -> its pages, for the sources that have any."""
        question = "SELECT source, min(number), count(*) FROM pages GROUP BY source"
        return {source: Part(first, count) for source, first, count in self._ask(question)}

    def pages(self) -> int:
        """Number of pages."""
        return self._one("SELECT count(*) FROM judged")

    def kept(self) -> int:
        """Number of pages that are kept."""
        return self._one("SELECT count(*) FROM kept")

    def positions(self, part: Part) -> Iterator[int]:
        """Yield the positions of the pages of a source that are kept, in order."""
        question = "SELECT number - ? FROM kept WHERE number >= ? AND number < ? ORDER BY number"
        first, end = part.first, part.first + part.pages
        return (position for (position,) in self._ask(question, first, first, end))

    def counts(self, part: Part) -> Iterator[ClusterCounts]:
        """Yield the counts of the clusters of the pages of a source that are kept, in order."""
        question = (
            "SELECT cluster_size, cluster_sources FROM kept JOIN counts USING (cluster)"
            " WHERE number >= ? AND number < ? ORDER BY number"
        )
        return (ClusterCounts(*each) for each in self._ask(question, part.first, part.first + part.pages))

    def why(self) -> dict[str, int]:
        """Why pages are dropped -> their number."""
        counts = dict(self._ask("SELECT why, count(*) FROM dropped GROUP BY why"))
        return {why: counts[why] for why in WHY if why in counts}

    def reasons(self) -> dict[str, int]:
        """Reason -> number of rejected pages."""
        return dict(
            self._ask(
                "SELECT reason, count(*) FROM dropped JOIN pages USING (number) WHERE why = 'rejected'"
                " GROUP BY reason ORDER BY count(*) DESC, reason"
            )
        )

    def rejected(self) -> dict[str, str]:
        """Reason -> an example: origin of the first page, and what was wrong with it."""
        question = (
            "SELECT reason, arg_min(source || ' page ' || (position + 1) || coalesce(': ' || detail, ''),"
            " number) FROM dropped JOIN pages USING (number) WHERE why = 'rejected' GROUP BY reason"
        )
        return dict(self._ask(question))

    def examples(self, count: int) -> list[Example]:
        """Return those dropped pages whose verdicts are the least sure."""
        question = (
            f"SELECT url, kept_url, similarity FROM ({_REPORT})"  # noqa: S608 (constants)
            " WHERE why = 'same cluster' AND similarity IS NOT NULL ORDER BY similarity, url LIMIT ?"
        )
        return [Example(*each) for each in self._ask(question, count)]

    def add_no_pages(self, passed_over: Iterable[NoPage]) -> None:
        """Add content that was passed over to the report."""
        numbered = enumerate(passed_over)
        while some := list(islice(numbered, CHUNK)):
            rows = [dict(zip(_OF_NO_PAGE.names, (number, *each), strict=True)) for number, each in some]
            table = pa.Table.from_pylist(rows, _OF_NO_PAGE)
            with self._translated_errors():
                self._insert("no_pages", dict(zip(table.column_names, table.columns, strict=True)))

    def report(self, output: BinaryIO, suffix: str) -> None:
        """Write a line or row for each page that is dropped, in order, and for what is no page."""
        if suffix == ".csv":
            self._report_csv(output)
            return
        path = self._directory / "dropped"  # of a suffix, DuckDB would infer a compression
        kind = "parquet, COMPRESSION zstd" if suffix == ".parquet" else "json"
        try:
            with self._translated_errors():
                self._database.execute(f"COPY ({_WHOLE_REPORT}) TO {_literal(str(path))} (FORMAT {kind})")
            with path.open("rb") as file:
                while block := file.read(BLOCK):
                    output.write(block)
        finally:
            path.unlink(missing_ok=True)

    def _report_csv(self, output: BinaryIO) -> None:
        with self._translated_errors(), self._database.cursor() as cursor:
            cursor.execute(_WHOLE_REPORT)
            output.write(text_of([tuple(column[0] for column in cursor.description or ())]).encode())
            while rows := cursor.fetchmany(CHUNK):
                output.write(text_of([list(map(cell_of, row)) for row in rows]).encode())

    def _one(self, question: str, *values: Any) -> int:
        ((answer,),) = self._ask(question, *values)
        return int(answer)

    def _ask(self, question: str, *values: Any) -> Iterator[tuple[Any, ...]]:
        with self._translated_errors(), self._database.cursor() as cursor:
            cursor.execute(question, list(values))
            while rows := cursor.fetchmany(CHUNK):
                yield from rows

    def _insert(self, table: str, columns: dict[str, Any]) -> None:
        self._database.register("coming", pa.table(columns))
        self._database.execute(f"INSERT INTO {table} SELECT * FROM coming")  # noqa: S608 (constants)
        self._database.unregister("coming")

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        try:
            yield
        except duckdb.Error as error:
            raise ExportError(f"{self._directory}: {error}") from error


@contextmanager
def open_election(directory: Path) -> Iterator[Election]:
    """An election that keeps in this directory what does not fit in memory. Raises ExportError."""
    directory = directory.absolute()  # DuckDB and PyArrow take `a:b` for a URI
    path = directory / "election.duckdb"
    for left in (path, path.with_name(f"{path.name}.wal")):  # of a run that was killed
        left.unlink(missing_ok=True)
    with duckdb.connect(str(path)) as database:
        database.execute(f"SET memory_limit = '{MEMORY}'")
        database.execute(f"SET temp_directory = {_literal(str(directory / 'spilled'))}")
        database.execute("SET preserve_insertion_order = false")
        yield Election(database, directory)
    path.unlink(missing_ok=True)


def _order(keep: Policy) -> str:
    """The order of the pages of a cluster, best first."""
    order = ["host" if field == "host" else f"{field} DESC NULLS LAST" for field in keep.fields]
    return ", ".join([*order, "since"])


def refuse_unfit_path(option: str, directory: Path) -> None:
    """Raise SettingsError for a directory in which DuckDB cannot open files."""
    named = str(directory.absolute())
    if "?" in named or "\\" in named or named != named.encode(errors="replace").decode():
        raise SettingsError(
            f"{option} {named!r}: DuckDB opens no file whose path has a question mark, a backslash, or bytes"
            " that are not UTF-8; name another directory"
        )


def _files_in(directory: Path) -> str:
    """The Parquet files of a directory, as a literal in which its name is no pattern."""
    escaped = re.sub(r"[*?[]", r"[\g<0>]", str(directory))
    return _literal(f"{escaped}/*.parquet")


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
