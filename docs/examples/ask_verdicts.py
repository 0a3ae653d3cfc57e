"""Ask verdicts in Parquet some questions with DuckDB: `python ask_verdicts.py`."""

import duckdb

QUESTIONS = [
    """
    SELECT verdict, count(*) FROM verdicts GROUP BY verdict ORDER BY verdict
    """,
    # The largest clusters. The anchor has the cluster's id.
    """
    SELECT count(DISTINCT member.url), 'pages', anchor.url
    FROM verdicts AS member JOIN verdicts AS anchor ON member.cluster = anchor.id
    WHERE member.verdict <> 'recrawl' OR member.id = anchor.id
    GROUP BY anchor.id, anchor.url HAVING count(*) > 1 ORDER BY count(*) DESC LIMIT 10
    """,
    # Duplicates by their similarity to the anchor.
    """
    SELECT 'similarity', floor(similarity * 10) / 10 AS least, count(*)
    FROM verdicts WHERE verdict = 'duplicate' GROUP BY least ORDER BY least
    """,
    # Hosts by their share of duplicates.
    """
    SELECT duplicates, 'of', pages, 'pages', host FROM (
        SELECT
            regexp_extract(url, '^[a-z]+://([^/?#]+)', 1) AS host,
            count(*) AS pages,
            count(*) FILTER (verdict = 'duplicate') AS duplicates
        FROM verdicts GROUP BY host
    ) WHERE duplicates > 0 ORDER BY duplicates / pages DESC, pages DESC LIMIT 10
    """,
]


def main() -> None:
    with duckdb.connect() as database:
        database.execute("CREATE VIEW verdicts AS FROM 'verdicts.parquet/*.parquet'")
        for question in QUESTIONS:
            for row in database.execute(question).fetchall():
                print(*row)


if __name__ == "__main__":
    main()
