"""Generates `docs/metrics.md` from the definitions: `python -m docs.site.metrics_page > docs/metrics.md`."""

from __future__ import annotations

import sys
from typing import Final

from stream.ops.metrics import (
    DashboardMetrics,
    ElectorMetrics,
    JudgeMetrics,
    Metrics,
    TrimMetrics,
    WorkerMetrics,
)

ROLES: Final[tuple[type[Metrics], ...]] = (
    WorkerMetrics,
    JudgeMetrics,
    ElectorMetrics,
    TrimMetrics,
    DashboardMetrics,
)
HEAD: Final = """\
# Metrics

Every role serves Prometheus metrics at `/metrics`, liveness at `/livez` and readiness at `/readyz`, on
`ops_host` and `ops_port`; the dashboard serves them on its own port. This page is generated from
`stream/ops/metrics.py`.

In addition, each role exports the metrics of its process (`process_...`). A histogram `x` has the series
`x_bucket`, `x_sum` and `x_count`. Counters start at 0 when the process starts. All have the label
`neardup_namespace`, the namespace of the deployment.
"""


def page() -> str:
    """Return the Markdown of `docs/metrics.md`."""
    parts = [HEAD]
    for kind in ROLES:
        said = " ".join((kind.__doc__ or "").split())
        parts.append(
            f"\n## {kind.role}\n\n{said}\n\n| metric | type | labels | meaning |\n|---|---|---|---|\n"
        )
        for each in kind().defined:
            labels = ", ".join(f"`{label}`" for label in each.labels)
            parts.append(f"| `{each.name}` | {each.kind} | {labels} | {each.meaning} |\n")
    return "".join(parts)


if __name__ == "__main__":
    sys.stdout.write(page())
