"""Engines are large and have locks of their own: `make engines` installs them and runs these tests."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil  # type: ignore[import-untyped]
import pytest

from tests.engines.corpus import Corpus, Expected, corpus, expected

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.engines.s3_gateway import Gateway

OBJECT_STORE_BYTES = 256 << 20
S3_PYTHON = Path(__file__).parents[2] / ".cache" / "s3" / "bin" / "python"
GATEWAY = Path(__file__).parents[2] / ".cache" / "versitygw"
STARTS = 5
"""Ray gives its helpers 15 seconds to load Python, which no option changes: a busy machine needs another
attempt."""
os.environ.update(
    {
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
        # Limits of 5 to 60 seconds, too short for a busy machine.
        "RAY_gcs_server_port_wait_time_s": "300",
        "RAY_gcs_rpc_server_connect_timeout_s": "300",
        "RAY_gcs_server_request_timeout_seconds": "60",
        "RAY_worker_register_timeout_seconds": "600",
        "RAY_health_check_timeout_ms": "120000",
        "RAY_health_check_initial_delay_ms": "120000",
    }
)


def _java() -> bool:
    try:
        told = subprocess.run(["java", "-version"], capture_output=True, text=True, check=True).stderr
    except (OSError, subprocess.CalledProcessError):
        return False
    version = told.partition('version "')[2].partition('"')[0].split(".")[0]
    return version.isdecimal() and int(version) >= 17


_OF_GATEWAY = ("test_s3_stores.py", "test_s3_checkpoints.py")
_LEFT_OUT = {
    "test_spark_*.py": find_spec("pyspark") and not _java() and "NO JAVA 17: Spark is left out",
    **dict.fromkeys(
        _OF_GATEWAY,
        find_spec("pyspark") and not GATEWAY.exists() and "NO GO: a real S3 server is left out",
    ),
}
collect_ignore_glob = [
    *(["test_spark_*.py", "test_ray_*.py"] if not find_spec("pyspark") else []),
    *(files for files, why in _LEFT_OUT.items() if why),
    *([] if S3_PYTHON.exists() else ["test_s3_*.py"]),
    *([] if GATEWAY.exists() else _OF_GATEWAY),
]


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Name what was left out."""
    for why in filter(None, dict.fromkeys(_LEFT_OUT.values())):
        terminalreporter.write_line(why, yellow=True)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A real S3 server, which the environment names."""
    from tests.engines.s3_gateway import USER, Gateway

    server = Gateway(tmp_path_factory.mktemp("gateway"))
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            patch.delenv(name)
        for name, value in server.environment(USER).items():
            patch.setenv(name, value)
        yield server
    server.stop()


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Spark on this machine, with two workers."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable  # or workers take the first `python3`
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    gateway = session.sparkContext._gateway
    yield session
    session.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()  # on which Java ends
    gateway.proc.wait()


@pytest.fixture(scope="session")
def ray() -> Iterator[None]:
    """Ray on this machine, with two workers."""
    import ray

    others = set(psutil.Process().children(recursive=True))
    for left in reversed(range(STARTS)):
        try:
            ray.init(
                num_cpus=2,
                include_dashboard=False,
                object_store_memory=OBJECT_STORE_BYTES,
                log_to_driver=False,
                _node_ip_address="127.0.0.1",
            )
            break
        except Exception:
            ray.shutdown()
            for helper in set(psutil.Process().children(recursive=True)) - others:
                helper.kill()  # a shutdown forgets those of a failed start
            if not left:
                raise
    yield
    ray.shutdown()


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """The corpus, on disk."""
    return corpus(tmp_path_factory.mktemp("corpus"))


@pytest.fixture(scope="session")
def one_machine(made: Corpus, tmp_path_factory: pytest.TempPathFactory) -> Expected:
    """What one machine makes of it."""
    return expected(made, tmp_path_factory.mktemp("expected"))
