-- Keeps the table `index_pages` right with verdicts and records of the topic `best`. DuckDB; needs the tables `verdicts`
-- and `best` with new records of both topics: `value` as JSON, and `number`, their order. A row of `index_pages` has the
-- page of a cluster that is kept, with url NULL where no page is left, and as of which place in the order of judgement.
-- The index has the URLs of the view `index_urls`: a page that changed may be in its new cluster before it is known to have
-- left the old one, so a URL is in the index as long as any cluster keeps it.

CREATE TABLE IF NOT EXISTS index_pages (cluster VARCHAR PRIMARY KEY, url VARCHAR, id VARCHAR, as_of BIGINT NOT NULL);
CREATE VIEW IF NOT EXISTS index_urls AS SELECT DISTINCT url FROM index_pages WHERE url IS NOT NULL;

CREATE OR REPLACE TEMP MACRO place(id) AS
    split_part(id, '.', 2)::BIGINT * 65_536 + split_part(id, '.', 3)::BIGINT;

-- Each `unique` page begins a cluster, and so does a `recrawl` whose cluster has ended. That page is kept until `best` says
-- otherwise, which is later even if it is read before.
INSERT INTO index_pages
SELECT value ->> 'cluster', value ->> 'url', value ->> 'id', place(value ->> 'id')
FROM verdicts
WHERE value ->> 'cluster' = value ->> 'id'
ON CONFLICT DO NOTHING;

-- The last record of a cluster is the whole truth. One with a lower `as_of` than before is a repetition.
INSERT INTO index_pages
SELECT value ->> 'cluster', value ->> '$.best.url', value ->> '$.best.id', place(value ->> 'as_of') AS as_of
FROM best
QUALIFY row_number() OVER (PARTITION BY value ->> 'cluster' ORDER BY as_of DESC, number DESC) = 1
ON CONFLICT DO UPDATE SET url = excluded.url, id = excluded.id, as_of = excluded.as_of
WHERE excluded.as_of >= index_pages.as_of;
