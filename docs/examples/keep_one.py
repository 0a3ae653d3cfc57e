"""Keep one page of each cluster of a corpus:
`python keep_one.py longest rows verdicts.parquet corpus.parquet`.

The corpus is Parquet or JSON Lines; `first`, `newest`, `quality` and `hosts=a.example,b.example` keep other
pages. It was fingerprinted and judged by

    neardup fingerprint corpus.parquet -o rows/
    neardup scan rows/ -o verdicts.parquet

Writes `kept.parquet`, with the verdicts on these pages, `dropped.parquet`, with those on all others and why
they are dropped, and `deduplicated.parquet`, with the columns of the corpus; without a corpus, only the first
two. The rules are in `judged.sql` and `keep_one.sql`.
"""

import re
import sys
from pathlib import Path

import duckdb

SQL = Path(__file__).parent
USAGE = "usage: python keep_one.py first|longest|newest|quality|hosts=HOST,... ROWS VERDICTS [CORPUS ...]"
PARQUET = """
    CREATE TEMP VIEW corpus AS
    FROM read_parquet(getvariable('corpus'), filename = 'corpus_file', file_row_number = true)
"""
LINES = """
    CREATE TEMP VIEW corpus AS
    SELECT * EXCLUDE (line), line - min(line) OVER (PARTITION BY corpus_file) AS file_row_number
    FROM (
        SELECT *, row_number() OVER () AS line
        FROM read_json(getvariable('corpus'), format = 'newline_delimited',
                       filename = 'corpus_file', maximum_object_size = 67_108_864)
    )
"""
DEDUPLICATED = """
    COPY (
        SELECT corpus.* EXCLUDE (corpus_file, file_row_number)
        FROM corpus
        JOIN kept ON corpus.corpus_file = kept.source AND corpus.file_row_number = kept.position
        ORDER BY kept.place
    ) TO 'deduplicated.parquet' (FORMAT parquet, COMPRESSION zstd)
"""


def main(keep: str, rows: str, verdicts: str, *files: str) -> None:
    variables = {
        "rows": [rows],
        "verdicts": f"{verdicts}/*.parquet",
        "keep": keep,
        "corpus": list(files),
    }
    with duckdb.connect() as database:
        for name, value in variables.items():
            database.execute(f"SET VARIABLE {name} = $value", {"value": value})
        database.execute((SQL / "judged.sql").read_text())
        database.execute((SQL / "keep_one.sql").read_text())
        if files:
            database.execute(PARQUET if files[0].endswith(".parquet") else LINES)
            database.execute(DEDUPLICATED)
        database.execute("COPY kept TO 'kept.parquet' (FORMAT parquet, COMPRESSION zstd)")
        database.execute("COPY dropped TO 'dropped.parquet' (FORMAT parquet, COMPRESSION zstd)")
        ((kept,),) = database.execute("SELECT count(*) FROM kept").fetchall()
        dropped = database.execute("SELECT count(*), why FROM dropped GROUP BY why ORDER BY why").fetchall()
    print(f"{kept} kept; dropped:", ", ".join(f"{count} {why}" for count, why in dropped) or "none")


if __name__ == "__main__":
    if len(sys.argv) < 4 or not re.fullmatch("first|longest|newest|quality|hosts=.+", sys.argv[1]):
        sys.exit(USAGE)
    main(*sys.argv[1:])
