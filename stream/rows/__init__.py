"""Rows: fingerprinted pages as Arrow columns and Parquet files, made on one machine, Spark or Ray."""
