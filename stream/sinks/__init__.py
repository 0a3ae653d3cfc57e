"""Where exported verdicts go: DuckDB, PostgreSQL, Parquet. Each needs the extra `export`."""
