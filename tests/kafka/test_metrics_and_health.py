"""Metrics and health of running roles over HTTP agree with what happened."""

from __future__ import annotations

import time

import pytest

from stream.ops.metrics import JudgeMetrics, Metrics, WorkerMetrics
from stream.roles.judge.role import JudgeRole
from stream.roles.worker.role import WorkerRole
from stream.settings import Settings
from tests.kafka.judge_helpers import audited, page
from tests.kafka.worker_helpers import create, get, publish, running, scrape
from tests.waiting import until, until_answer

pytestmark = pytest.mark.broker


async def ready(role: WorkerRole | JudgeRole) -> bool:
    return role.ops_url is not None and (await get(role, "/readyz"))[0] == 200


async def test_metrics_of_running_roles_are_what_the_audit_counts(settings: Settings) -> None:
    quick = settings.model_copy(update={"flush_seconds": 0.05})
    await create(quick)
    pages = [page(f"http://a/{n}", n % 7) for n in range(20)] + [page("http://a/0", 0), b"{", b""]
    before = time.time()
    for partition in range(3):
        await publish(quick, pages if partition == 0 else [], partition)
    async with running(WorkerRole(quick)) as worker, running(JudgeRole(quick)) as judge:
        findings = await audited(quick, len(pages))
        await until(lambda: ready(judge))
        await until(lambda: ready(worker))

        def is_idle(series: dict[str, float]) -> bool:
            lags = [value for name, value in series.items() if name.startswith("neardup_worker_lag_records")]
            return lags == [0, 0, 0]

        rejected = "neardup_judge_verdicts_total{verdict=rejected}"
        await until_answer(lambda: scrape(judge), lambda series: series[rejected] == 2)
        worked = await until_answer(lambda: scrape(worker), is_idle)
        seen = await scrape(judge)
        assert (await get(judge, "/livez"))[0] == (await get(worker, "/livez"))[0] == 200
        for role, checks in (
            (judge, ("broker", "journal", "replayed", "assigned")),
            (worker, ("broker", "assigned", "accepting")),
        ):
            assert (await get(role, "/readyz"))[1]["checks"] == dict.fromkeys(checks, True)
    for verdict, count in findings.verdicts.items():
        assert seen[f"neardup_judge_verdicts_total{{verdict={verdict}}}"] == count
    assert seen["neardup_judge_anchors{tier=ram}"] == findings.verdicts["unique"]
    assert seen["neardup_judge_rejects_total{reason=malformed_json}"] == 1
    assert seen["neardup_judge_rejects_total{reason=empty_message}"] == 1
    assert seen["neardup_judge_lag_records"] == seen["neardup_judge_lag_seconds"] == 0
    assert seen["neardup_judge_replay_remaining_records"] == 0
    assert seen["neardup_judge_leading"] == 1
    assert seen["neardup_judge_rebalances_total"] >= 1
    assert (
        0
        < seen["neardup_judge_event_age_seconds_sum"]
        < seen["neardup_judge_event_age_seconds_count"] * (time.time() - before)
    )
    for stage in ("decide", "prepare", "encode", "publish", "apply", "flush"):
        assert seen[f"neardup_judge_stage_seconds_count{{stage={stage}}}"] >= 1
    assert seen["neardup_judge_state_free_bytes"] > 0
    assert worked["neardup_worker_consumed_records_total"] == len(pages)
    assert worked["neardup_worker_consumed_bytes_total"] == sum(map(len, pages))
    assert worked["neardup_worker_pages_total{status=ready}"] == 21
    assert worked["neardup_worker_pages_total{status=rejected}"] == 2
    assert worked["neardup_worker_partitions"] == 3
    for stage in ("fingerprint", "verify", "bury", "append", "commit"):
        assert worked[f"neardup_worker_stage_seconds_count{{stage={stage}}}"] >= 1
    for metrics, series in ((JudgeMetrics(), seen), (WorkerMetrics(), worked)):
        assert_all_there(metrics, series)


def assert_all_there(metrics: Metrics, series: dict[str, float]) -> None:
    """Check that every defined metric has a series, except those for events that did not occur here."""
    silent = {each.name for each in metrics.defined if not any(each.name in name for name in series)}
    assert silent <= {f"neardup_{metrics.role}_awaited_transaction_seconds"}  # none is awaited
