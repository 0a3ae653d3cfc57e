"""Alert rules and the Grafana dashboard only use existing metrics and labels."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from docs.site.metrics_page import ROLES
from stream.ops.server import NAMESPACE
from tests import validators

DEPLOY = Path(__file__).parents[2] / "deploy"
PROMETHEUS, DASHBOARD = DEPLOY / "prometheus", DEPLOY / "grafana" / "dashboards" / "neardup.json"
DEFINED = {each.name: each for kind in ROLES for each in kind().defined}
RULE_TESTS = "alerts.test.yml", "alerts_over_days.test.yml"
NAME = re.compile(r"\bneardup_(?!namespace\b)[a-z_]+\b")
SELECTOR = re.compile(r"\b(neardup_[a-z_]+)\{([^}]*)\}")
FROM_SCRAPING = {"instance", "job", NAMESPACE}
"""Labels of all metrics."""
OF_PROCESSES = {"process_start_time_seconds", "process_resident_memory_bytes", "process_cpu_seconds_total"}
"""What the client library of Prometheus exports for every process."""


def metric(series: str) -> str:
    """The metric that a series belongs to."""
    for suffix in ("_bucket", "_sum", "_count"):
        name = series.removesuffix(suffix)
        if name != series and name in DEFINED and DEFINED[name].kind == "histogram":
            return name
    return series


def panels() -> Iterator[dict[str, Any]]:
    for panel in json.loads(DASHBOARD.read_text("utf-8"))["panels"]:
        if panel["type"] != "row":
            yield panel


def expressions() -> list[str]:
    rules = [(PROMETHEUS / name).read_text("utf-8") for name in ("alerts.yml", *RULE_TESTS)]
    return rules + queries()


def queries() -> list[str]:
    """All that Grafana asks Prometheus: for panels, annotations and variables."""
    board = json.loads(DASHBOARD.read_text("utf-8"))
    variables = [each["query"]["query"] for each in board["templating"]["list"] if each["type"] == "query"]
    annotations = [each["expr"] for each in board["annotations"]["list"]]
    return [target["expr"] for panel in panels() for target in panel["targets"]] + annotations + variables


def test_rules_and_panels_use_metrics_that_are_defined() -> None:
    used = {metric(name) for each in expressions() for name in NAME.findall(each)}
    assert len(used) > 20
    assert used <= DEFINED.keys(), used - DEFINED.keys()


def test_rules_and_panels_use_labels_that_the_metrics_have() -> None:
    for each in expressions():
        for name, selector in SELECTOR.findall(each):
            labels = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", selector))
            assert labels <= {*DEFINED[metric(name)].labels, *FROM_SCRAPING, "le"}, (name, selector)


def test_every_query_of_grafana_names_a_metric_that_exists() -> None:
    for query in queries():
        found = re.findall(r"\b(?:neardup_(?!namespace\b)|process_)[a-z_]+\b", query)
        assert found, query
        assert {metric(name) for name in found} <= DEFINED.keys() | OF_PROCESSES, query


def test_every_query_of_grafana_is_about_one_namespace() -> None:
    choices = "label_values(neardup_build_info, neardup_namespace)"
    assert choices in queries()
    for query in queries():
        metrics = re.findall(r"\b(?:neardup_(?!namespace\b)|process_)[a-z_]+\b.{0,32}", query)
        selected = [each for each in metrics if f'{{{NAMESPACE}="$namespace"' in each]
        assert selected == metrics or query == choices, query


def test_queries_group_by_labels_that_their_metrics_have() -> None:
    for query in queries():
        for labels, inside in re.findall(r"\b(?:by|without) \(([^)]*)\) \((.*)", query):
            its = {label for name in NAME.findall(inside) for label in DEFINED[metric(name)].labels}
            assert {each.strip() for each in labels.split(",")} <= its | FROM_SCRAPING | {"le"}, query


def test_every_metric_is_on_the_dashboard() -> None:
    shown = {metric(name) for panel in panels() for t in panel["targets"] for name in NAME.findall(t["expr"])}
    assert {each for each in DEFINED if each.startswith("neardup_")} - shown == set()


def test_panels_do_not_cover_each_other() -> None:
    board = json.loads(DASHBOARD.read_text("utf-8"))
    taken: dict[tuple[int, int], str] = {}
    for panel in board["panels"]:
        grid = panel["gridPos"]
        for x in range(grid["x"], grid["x"] + grid["w"]):
            for y in range(grid["y"], grid["y"] + grid["h"]):
                assert x < 24
                assert taken.setdefault((x, y), panel["title"]) == panel["title"], (
                    panel["title"],
                    taken[x, y],
                )


def test_panels_say_what_they_show_and_in_which_unit() -> None:
    for panel in panels():
        assert panel["description"].endswith("."), panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
    identities = [panel["id"] for panel in panels()]
    assert len(set(identities)) == len(identities)


def test_every_rule_is_tried() -> None:
    rules = re.findall(r"alert: (\w+)", (PROMETHEUS / "alerts.yml").read_text("utf-8"))
    tests = "\n".join((PROMETHEUS / name).read_text("utf-8") for name in RULE_TESTS)
    assert set(rules) == set(re.findall(r"alertname: (\w+)\n\s+exp_alerts", tests))


def test_rules_of_the_operator_are_the_same() -> None:
    path = DEPLOY / "kubernetes/components/monitoring/rules.yaml"
    rules = yaml.safe_load(path.read_text("utf-8"))["spec"]
    assert rules == yaml.safe_load((PROMETHEUS / "alerts.yml").read_text("utf-8"))


def test_rules_fire_when_they_should(report: Callable[[str], None]) -> None:
    try:
        promtool = validators.promtool()
    except validators.NotFetchedError as error:
        report(f"the rules' own tests did not run, for want of promtool: {error}")
        pytest.skip(str(error))
    for command in (
        ["check", "config", "prometheus.yml"],
        ["check", "config", "prometheus.compose.yml"],
        ["test", "rules", *RULE_TESTS],
    ):
        done = subprocess.run(
            [promtool, *command], cwd=PROMETHEUS, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
