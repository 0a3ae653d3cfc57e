"""Where exported verdicts go: DuckDB, PostgreSQL, Parquet. The second needs the extra `export`."""
