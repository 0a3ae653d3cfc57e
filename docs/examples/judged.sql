-- Joins the verdicts of `neardup scan`, or of `neardup load`, to the rows that they are about. DuckDB, with two variables:
--     rows: directories of rows, such as ['rows']
--     verdicts: files of verdicts, such as 'verdicts.parquet/*.parquet'
-- Makes the table `judged`. In a verdict on a row, source_topic_id is the digest of the directory, and source_offset
-- the number of the row in the order of rows.

CREATE OR REPLACE TEMP TABLE judged AS
WITH rows_of_directories AS (
    SELECT *, regexp_replace(filename, '/[^/]*$', '') AS directory
    FROM read_parquet([each || '/*.parquet' for each in getvariable('rows')], filename = true)
),
digests AS (
    SELECT digest, regexp_replace(filename, '/[^/]*$', '') AS directory
    FROM read_json([each || '/_neardup_rows.json' for each in getvariable('rows')],
                   filename = true, columns = {digest: 'VARCHAR'})
),
numbered AS (
    SELECT
        digest, source, position, url_digest, length, quality,
        row_number() OVER (PARTITION BY directory ORDER BY "order", source, position) - 1 AS number
    FROM rows_of_directories JOIN digests USING (directory)
)
SELECT verdicts.*, numbered.* EXCLUDE (digest, number)
FROM numbered
LEFT JOIN read_parquet(getvariable('verdicts')) AS verdicts
    ON verdicts.source_topic_id = numbered.digest AND verdicts.source_offset = numbered.number;

SELECT error('a row has no verdict: are these the verdicts of a scan or load of these rows, and did it end?')
FROM judged WHERE id IS NULL LIMIT 1;
