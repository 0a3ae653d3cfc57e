"""Applies `deploy/kubernetes` to an API server and looks at what becomes of it: `make kubernetes`.

There are etcd, the API server and the controllers, but no node: Pods are admitted and never run. This
program writes the status that a kubelet would report, so that the controllers go on.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any, Final

import yaml

from tests.kubernetes.cluster import Cluster, ClusterError
from tests.steps import require, run_check, say

MANIFESTS: Final = Path(__file__).parents[2] / "deploy" / "kubernetes"
PROGRAM: Final = Path(__file__).parents[2] / ".cache" / "kubernetes" / "cluster"
APPLY: Final = ("apply", "--server-side", "--validate=strict", "--warnings-as-errors")
BASE: Final = "neardup-base"
LEVEL: Final = "pod-security.kubernetes.io/"
BUSYBODY: Final = """\
apiVersion: v1
kind: Pod
metadata: {name: busybody}
spec: {containers: [{name: busybody, image: busybody}]}
"""


def differences(wanted: Any, live: Any, path: str = "") -> list[str]:
    """Where `live` lacks or changes a part of `wanted`; what was added by default is none."""
    if isinstance(wanted, dict) and isinstance(live, dict):
        return [
            line
            for key, value in wanted.items()
            for line in differences(value, live.get(key), f"{path}.{key}")
        ]
    if isinstance(wanted, list) and isinstance(live, list) and len(wanted) == len(live):
        return [
            line
            for number, (value, other) in enumerate(zip(wanted, live, strict=True))
            for line in differences(value, other, f"{path}[{number}]")
        ]
    return [] if wanted == live else [f"{path}: {wanted!r} became {live!r}"]


class Applied:
    """One directory of manifests in one namespace."""

    def __init__(self, cluster: Cluster, directory: str, namespace: str) -> None:
        self._cluster = cluster
        self.directory = directory
        self.namespace = namespace
        text = cluster.kubectl("kustomize", MANIFESTS / directory)
        self.wanted: list[dict[str, Any]] = list(yaml.safe_load_all(text))

    def objects(self, kind: str) -> list[dict[str, Any]]:
        """What the manifests have of a kind."""
        return [each for each in self.wanted if each["kind"] == kind]

    def apply(self, *further: str) -> str:
        return self._cluster.kubectl(*APPLY, "-n", self.namespace, "-k", MANIFESTS / self.directory, *further)

    def apply_and_compare(self) -> None:
        """Apply twice: every field is kept, and the second time changes nothing."""
        dry = self.apply("--dry-run=server").splitlines()
        require(len(dry) == len(self.wanted), f"{len(dry)} objects pass a dry run without a warning")
        self.apply()
        changed = []
        for each in self.wanted:
            kind, name = each["kind"], each["metadata"]["name"]
            live = self._cluster.found(kind, name, self.namespace)
            changed += differences(each, live, f"{kind} {name}")
        require(not changed, f"every field is stored as it is written {changed or ''}")
        self.apply()
        live_again = self._cluster.kubectl(
            "diff", "--server-side", "-n", self.namespace, "-k", MANIFESTS / self.directory, codes=(0, 1)
        )
        require(not live_again, f"applied again, nothing differs {live_again}")

    def pods_wanted(self) -> Counter[str]:
        """How many Pods each component shall have."""
        count: Counter[str] = Counter()
        for kind in ("Deployment", "StatefulSet", "Job"):
            for each in self.objects(kind):
                component = each["metadata"]["labels"]["app.kubernetes.io/component"]
                count[component] += each["spec"].get("replicas", 1)
        return count

    def pods(self) -> list[dict[str, Any]]:
        found = self._cluster.listed("pods", self.namespace)
        return [each for each in found if "deletionTimestamp" not in each["metadata"]]

    def wait_for_pods(self) -> None:
        """Wait until the controllers have made all Pods, which the namespace's level of security admits."""
        wanted = self.pods_wanted()

        def made() -> bool:
            labels = (each["metadata"]["labels"] for each in self.pods())
            return Counter(each["app.kubernetes.io/component"] for each in labels) == wanted

        try:
            self._cluster.wait_until("all pods are made", made)
        except ClusterError as error:
            events = self._cluster.listed("events", self.namespace)
            raise ClusterError(f"{error}\n" + "\n".join(each["message"] for each in events)) from error
        events = self._cluster.listed("events", self.namespace)
        refused = [each["message"] for each in events if each["reason"] == "FailedCreate"]
        require(not refused, f"admitted as restricted: {dict(wanted)} pods {refused or ''}")

    def check_pods(self) -> None:
        """What no Pod may have got on its way."""
        for pod in self.pods():
            spec, name = pod["spec"], pod["metadata"]["name"]
            sources = [volume.keys() - {"name"} for volume in spec.get("volumes", [])]
            allowed = ({"emptyDir"}, {"persistentVolumeClaim"})
            if any(source not in allowed for source in sources):
                raise ClusterError(f"{name} has volumes {sources}: a token of its account?")
            if pod["status"]["qosClass"] != "Burstable":
                raise ClusterError(f"{name} is of class {pod['status']['qosClass']}")
        say("  no pod has a token of its account; all are Burstable")

    def report_pods(self) -> None:
        """Say of every Pod what its kubelet would: the topics are made, and everybody else is ready."""
        for number, pod in enumerate(self.pods(), 1):
            done = pod["metadata"]["labels"]["app.kubernetes.io/component"] == "topics"
            address = f"10.1.0.{number}"
            ready = {"type": "Ready", "status": str(not done)}
            status: dict[str, Any] = {
                "phase": "Succeeded" if done else "Running",
                "podIP": address,
                "podIPs": [{"ip": address}],
                "conditions": [ready, {"type": "ContainersReady", "status": str(not done)}],
            }
            self._cluster.kubectl(
                *("patch", "pod", pod["metadata"]["name"], "-n", self.namespace),
                *("--subresource=status", "--type=merge", "-p", json.dumps({"status": status})),
            )


def check_controllers(cluster: Cluster, applied: Applied) -> None:
    """Once Pods are ready: rollouts end, the Job is complete, Services have their endpoints."""
    namespace = applied.namespace
    applied.report_pods()
    for kind in ("Deployment", "StatefulSet"):
        for each in applied.objects(kind):
            name = f"{kind.lower()}/{each['metadata']['name']}"
            cluster.kubectl("rollout", "status", name, "-n", namespace, "--timeout=300s")
    cluster.kubectl(
        "wait", "job/neardup-topics", "-n", namespace, "--for=condition=Complete", "--timeout=300s"
    )
    require(True, "rollouts end when the pods are ready, and the job when its pod has succeeded")

    def judges() -> set[str]:
        """The judges' addresses: Services give other pods one only on a node."""
        slices = [
            each
            for each in cluster.listed("endpointslices", namespace)
            if each["metadata"]["labels"]["kubernetes.io/service-name"] == "neardup-judge"
        ]
        return {
            f"judge=http://{each['hostname']}.neardup-judge:{part['ports'][0]['port']}"
            for part in slices
            for each in part.get("endpoints") or []
        }

    cluster.wait_until("the judges have host names", lambda: len(judges()) == 2)
    (dashboard,) = (
        each for each in applied.objects("StatefulSet") if "dashboard" in each["metadata"]["name"]
    )
    variables = dashboard["spec"]["template"]["spec"]["containers"][0]["env"]
    roles = {each["name"]: each.get("value", "") for each in variables}["NEARDUP_DASHBOARD_ROLES"]
    require(set(roles.split(",")) == judges(), "the dashboard looks for the judges where they are")


def evict(cluster: Cluster, pod: dict[str, Any], refused: str | None = None) -> None:
    """Ask that a Pod goes, as `kubectl drain` does."""
    metadata = {key: pod["metadata"][key] for key in ("name", "namespace")}
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}
    path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}/eviction"
    cluster.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(eviction), refused=refused)


def check_evictions(cluster: Cluster, applied: Applied) -> None:
    """A drain may take one worker and one judge at a time."""
    for component in ("worker", "judge"):
        budget = f"neardup-{component}"
        cluster.wait_until(
            f"one {component} may go",
            lambda: (
                cluster.found("pdb", budget, applied.namespace)  # noqa: B023
                .get("status", {})
                .get("disruptionsAllowed")
                == 1
            ),
        )
        first, second, *_ = (
            each
            for each in applied.pods()
            if each["metadata"]["labels"]["app.kubernetes.io/component"] == component
        )
        evict(cluster, first)
        evict(cluster, second, refused="disruption budget")
    require(True, "a second worker or judge is not evicted while the first is away")
    applied.wait_for_pods()


def check_changes(cluster: Cluster, applied: Applied, work: Path) -> None:
    """A changed setting rolls out by itself, once the Job, which cannot be changed, is deleted."""
    overlay = work / f"changed-{applied.namespace}"
    overlay.mkdir()
    kustomization = {
        "resources": [os.path.relpath(MANIFESTS / applied.directory, overlay.resolve())],
        "configMapGenerator": [
            {"name": "neardup", "behavior": "merge", "literals": ["NEARDUP_NAMESPACE=another"]}
        ],
    }
    (overlay / "kustomization.yaml").write_text(json.dumps(kustomization))
    apply = (*APPLY, "-n", applied.namespace, "-k", overlay)
    cluster.kubectl(*apply, refused="field is immutable")
    cluster.kubectl("delete", "job", "neardup-topics", "-n", applied.namespace)
    cluster.kubectl(*apply)

    def rolled_out() -> bool:
        try:
            applied.report_pods()
        except ClusterError:  # it went meanwhile
            return False
        settings = set()
        for pod in applied.pods():
            name = pod["spec"]["containers"][0]["envFrom"][0]["configMapRef"]["name"]
            settings.add(cluster.found("configmap", name, applied.namespace)["data"]["NEARDUP_NAMESPACE"])
        return settings == {"another"}

    cluster.wait_until("the changed setting is rolled out", rolled_out, seconds=180)
    require(True, "a changed setting is refused until the job is deleted; then every pod is made anew")


def run(cluster: Cluster, work: Path) -> None:
    """All checks. Raises StepError."""
    version = json.loads(cluster.kubectl("version", "-o", "json"))["serverVersion"]["gitVersion"]
    say(f"an API server of Kubernetes {version}, and its controllers")
    labels = {f"{LEVEL}enforce": "restricted", f"{LEVEL}warn": "restricted"}
    base = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": BASE, "labels": labels}}
    for directory, namespace in (("base", BASE), ("overlays/production", "neardup")):
        say(directory)
        applied = Applied(cluster, directory, namespace)
        # A dry run finds no namespace that it would only have made.
        (made,) = applied.objects("Namespace") or [base]
        cluster.kubectl(*APPLY, "-f", "-", stdin=json.dumps(made))
        found = cluster.found("namespace", namespace, namespace)["metadata"]["labels"]
        require(
            labels.items() <= found.items(), f"namespace {namespace} enforces, and warns of, `restricted`"
        )
        cluster.kubectl("create", "-n", namespace, "-f", "-", stdin=BUSYBODY, refused="violates PodSecurity")
        say("  a pod without a security context is refused")
        applied.apply_and_compare()
        applied.wait_for_pods()
        applied.check_pods()
        check_controllers(cluster, applied)
        check_evictions(cluster, applied)
        check_changes(cluster, applied, work)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.kubernetes", description=__doc__)
    parser.add_argument("--program", type=Path, default=PROGRAM, help="what tests/kubernetes/server builds")
    options = parser.parse_args(arguments)

    def check(work: Path) -> None:
        with Cluster(options.program, work) as cluster:
            run(cluster, work)

    return 0 if run_check("kubernetes", check) else 1


if __name__ == "__main__":
    sys.exit(main())
