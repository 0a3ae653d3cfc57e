-- Keeps one page of each cluster. DuckDB, with the variable `keep`: 'first', 'longest', 'newest', 'quality', or
-- 'hosts=a.example,b.example' for the longest page of the first of these hosts that has one, written as in the URLs. Needs the
-- table `judged` of judged.sql, or another with a line for each verdict of one index or namespace and the columns
-- id, url, url_digest, verdict, cluster, fingerprint, text_hash, length, quality, fetched_at.
-- Makes the tables `kept` and `dropped`. Each verdict is in one of them.

SELECT error('keep: set this variable to ''first'', ''longest'', ''newest'', ''quality'' or ''hosts=a.example,b.example''')
WHERE NOT coalesce(regexp_full_match(getvariable('keep'), 'first|longest|newest|quality|hosts=.+'), false);

-- The place of a URL's host among those of the policy; NULL for other hosts, and for other policies. Ports, a dot at the
-- end and upper case do not count.
CREATE OR REPLACE TEMP MACRO host_place(url) AS list_position(
    string_split(regexp_extract(getvariable('keep'), '^hosts=(.*)', 1), ','),
    nullif(lower(regexp_extract(url, '^[A-Za-z][A-Za-z0-9+.-]*://(?:[^/?#\\]*@)?(\[[^\]]*\]|[^/?#:\\]*[^/?#:\\.])', 1)), '')
);

-- The newest version of each URL that could be read, in the order of judgement, which the ids have. A URL that changed
-- is not in its old cluster any more, even if it was the anchor. Pages with too little text have no cluster; of those
-- with equal texts, one is kept, and all of those without any text.
CREATE OR REPLACE TEMP TABLE newest_versions AS
WITH versions AS (
    SELECT
        *,
        coalesce(cluster, CASE WHEN length > 0 THEN text_hash END, id) AS alike,
        split_part(id, '.', 2)::BIGINT * 100_000 + split_part(id, '.', 3)::BIGINT AS place,
        alike IS DISTINCT FROM lag(alike) OVER (PARTITION BY url_digest ORDER BY place) AS moved
    FROM judged
    WHERE verdict <> 'rejected'
)
SELECT * EXCLUDE (moved), max(place) FILTER (moved) OVER (PARTITION BY url_digest) AS first_place
FROM versions
QUALIFY row_number() OVER (PARTITION BY url_digest ORDER BY place DESC) = 1;

SELECT error('keep: `judged` has pages without a length, so the longest is not known')
FROM newest_versions WHERE getvariable('keep') = 'longest' AND length IS NULL LIMIT 1;

SELECT error('keep: no page of `judged` has a quality, so the best is not known')
FROM newest_versions WHERE getvariable('keep') = 'quality' HAVING count(*) > 0 AND count(quality) = 0;

-- The first page of a cluster is that of the URL that is in it for the longest time without having been elsewhere. Of pages
-- of the same length or time, the first is kept, and of the same quality or host the longest; pages without a time count as the
-- oldest, and those without a quality as the worst.
CREATE OR REPLACE TEMP TABLE kept AS
FROM newest_versions
QUALIFY row_number() OVER (
    PARTITION BY alike
    ORDER BY
        CASE getvariable('keep') WHEN 'longest' THEN length WHEN 'newest' THEN epoch_ms(fetched_at) END
            DESC NULLS LAST,
        CASE getvariable('keep') WHEN 'quality' THEN quality END DESC NULLS LAST,
        host_place(url) NULLS LAST,
        CASE WHEN regexp_full_match(getvariable('keep'), 'quality|hosts=.+') THEN length END DESC,
        first_place
) = 1;

-- Why each other page is dropped, and the page that is kept in its place. `bits` is the distance of the two fingerprints:
-- the verdict compared the page with the anchor of the cluster, which need not be the page that is kept.
CREATE OR REPLACE TEMP TABLE dropped AS
SELECT
    judged.*,
    CASE
        WHEN judged.verdict = 'rejected' THEN 'rejected'
        WHEN newest_versions.id IS NULL THEN 'old version'
        WHEN judged.cluster IS NULL THEN 'same short text'
        ELSE 'same cluster'
    END AS why,
    kept.id AS kept_id,
    kept.url AS kept_url,
    bit_count(xor(unhex(judged.fingerprint)::BIT, unhex(kept.fingerprint)::BIT)) AS bits
FROM judged
LEFT JOIN newest_versions USING (id)
LEFT JOIN kept USING (alike)
WHERE judged.id NOT IN (SELECT id FROM kept);
