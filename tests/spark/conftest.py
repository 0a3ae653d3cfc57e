"""PySpark is large and has a lock of its own, requirements-spark.lock: `make spark` runs these tests."""

from __future__ import annotations

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("pyspark") else ["test_spark_*.py"]
