"""etcd, an API server and the controllers on loopback: a cluster without a node."""

from __future__ import annotations

import json
import secrets
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.chaos.kafka_cluster.ports import free_ports
from tests.steps import StepError

START_SECONDS: Final = 120
COMMAND_SECONDS: Final = 600


class ClusterError(StepError):
    """Something of the manifests, or of the cluster, does not hold."""


class Cluster:
    """Processes of `program` (tests/kubernetes/server), with everything that they write in `work`."""

    def __init__(self, program: Path, work: Path) -> None:
        self._program = program.absolute()
        self._work = work
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._configuration = work / "kubeconfig"

    def __enter__(self) -> Cluster:
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _start(self) -> None:
        etcd, peers, server = free_ports(3)
        key = self._work / "account.pem"
        key.write_bytes(
            rsa.generate_private_key(public_exponent=65537, key_size=2048).private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.TraditionalOpenSSL,
                serialization.NoEncryption(),
            )
        )
        token = secrets.token_hex(16)
        tokens = self._work / "tokens.csv"
        tokens.write_text(f'{token},tester,1,"system:masters"\n')
        certificates = self._work / "certificates"
        self._spawn(
            "etcd",
            f"--data-dir={self._work / 'etcd'}",
            f"--listen-client-urls=http://127.0.0.1:{etcd}",
            f"--advertise-client-urls=http://127.0.0.1:{etcd}",
            f"--listen-peer-urls=http://127.0.0.1:{peers}",
            f"--initial-advertise-peer-urls=http://127.0.0.1:{peers}",
            f"--initial-cluster=default=http://127.0.0.1:{peers}",
            "--unsafe-no-fsync",
        )
        self._spawn(
            "kube-apiserver",
            f"--etcd-servers=http://127.0.0.1:{etcd}",
            f"--secure-port={server}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            "--endpoint-reconciler-type=none",  # it refuses loopback
            f"--cert-dir={certificates}",
            f"--token-auth-file={tokens}",
            "--authorization-mode=RBAC",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            "--service-cluster-ip-range=10.0.0.0/24",
        )
        authority = certificates / "apiserver.crt"
        self._configuration.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "clusters": [
                        {
                            "name": "test",
                            "cluster": {
                                "server": f"https://127.0.0.1:{server}",
                                "certificate-authority": str(authority),
                            },
                        }
                    ],
                    "users": [{"name": "tester", "user": {"token": token}}],
                    "contexts": [{"name": "test", "context": {"cluster": "test", "user": "tester"}}],
                    "current-context": "test",
                }
            )
        )
        self.wait_until("the API server is ready", self._ready, START_SECONDS)
        self._spawn(
            "kube-controller-manager",
            f"--kubeconfig={self._configuration}",
            f"--service-account-private-key-file={key}",
            f"--root-ca-file={authority}",
            "--leader-elect=false",
            "--secure-port=0",
        )
        self.wait_until(
            "service accounts are made", lambda: self.found("serviceaccount", "default", "default")
        )

    def _ready(self) -> bool:
        try:
            return self.kubectl("get", "--raw", "/readyz") == "ok"
        except ClusterError:
            return False

    def _spawn(self, name: str, *arguments: str) -> None:
        with (self._work / f"{name}.log").open("wb") as log:
            self._processes[name] = subprocess.Popen(
                [self._program, name, *arguments], stdout=log, stderr=subprocess.STDOUT, cwd=self._work
            )

    def stop(self) -> None:
        """End all processes, the newest first."""
        for process in reversed(self._processes.values()):
            process.kill()
            process.wait()

    def kubectl(
        self, *arguments: str | Path, stdin: str = "", refused: str | None = None, codes: Sequence[int] = (0,)
    ) -> str:
        """Run kubectl and return its standard output; its complaint, where it must be refused with `refused`.

        Raises ClusterError if it ends with another exit code, or says something else.
        """
        command = [
            str(self._program),
            "kubectl",
            "--kubeconfig",
            str(self._configuration),
            *map(str, arguments),
        ]
        done = subprocess.run(
            command, input=stdin, capture_output=True, text=True, timeout=COMMAND_SECONDS, check=False
        )
        said = done.stderr.strip()
        if refused is not None:
            if done.returncode == 0 or refused not in said:
                raise ClusterError(f"{' '.join(command[4:])} is not refused with {refused!r}: {said}")
            return said
        if done.returncode not in codes:
            raise ClusterError(
                f"{' '.join(command[4:])} exited with {done.returncode}:\n{said or done.stdout}"
            )
        return done.stdout

    def listed(self, kind: str, namespace: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.kubectl("get", kind, "-n", namespace, "-o", "json"))[
            "items"
        ]
        return found

    def found(self, kind: str, name: str, namespace: str) -> dict[str, Any]:
        said = self.kubectl("get", kind, name, "-n", namespace, "-o", "json", "--ignore-not-found")
        found: dict[str, Any] = json.loads(said) if said else {}
        return found

    def wait_until(self, what: str, holds: Callable[[], object], seconds: float = 60) -> None:
        """Wait until something holds. Raises ClusterError, with the end of the logs of what has ended."""
        deadline = time.monotonic() + seconds
        while not holds():
            ended = [name for name, process in self._processes.items() if process.poll() is not None]
            if ended or time.monotonic() > deadline:
                logs = "\n".join((self._work / f"{name}.log").read_text()[-3000:] for name in ended)
                raise ClusterError(f"not within {seconds:.0f} s: {what}; ended: {ended}\n{logs}")
            time.sleep(0.2)
