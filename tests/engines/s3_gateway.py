"""A real S3 server, versitygw, on loopback: a bucket on a directory, and a user with the least policy."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Final
from urllib.error import URLError
from urllib.request import urlopen

from stream.brokers.ports import free_port
from tests.engines.conftest import GATEWAY, S3_PYTHON
from tests.waiting import HANG_SECONDS

ROOT: Final = ("root-id", "root-secret")
USER: Final = ("an-id-that-nobody-may-see", "a-secret-that-nobody-may-see")
BUCKET: Final = "crawl"
ALLOWED: Final = "allowed"
"""The prefix below which the user may do what a store needs."""
POLICY: Final = {
    "Version": "2012-10-17",
    "Statement": [
        {
            "Effect": "Allow",
            "Principal": {"AWS": [USER[0]]},
            "Action": ["s3:GetObject", "s3:PutObject", "s3:DeleteObject"],
            "Resource": [f"arn:aws:s3:::{BUCKET}/{ALLOWED}/*"],
        },
        {
            "Effect": "Allow",
            "Principal": {"AWS": [USER[0]]},
            "Action": ["s3:ListBucket"],
            "Resource": [f"arn:aws:s3:::{BUCKET}"],
            "Condition": {"StringLike": {"s3:prefix": [f"{ALLOWED}/*"]}},
        },
    ],
}
_MAKE_BUCKET: Final = """
import sys, boto3
client = boto3.client("s3")
client.create_bucket(Bucket=sys.argv[1])
client.put_bucket_policy(Bucket=sys.argv[1], Policy=sys.argv[2])
"""


class Gateway:
    """The server, which can be stopped, started again and paused."""

    def __init__(self, directory: Path) -> None:
        """Objects are files in `directory`, which exists."""
        self._objects = directory / "objects"
        self._objects.mkdir()
        self._users = directory / "users"
        self._users.mkdir()
        account = {"access": USER[0], "secret": USER[1], "role": "user"}
        users = {"accessAccounts": {USER[0]: account}}
        (self._users / "users.json").write_text(json.dumps(users))
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.start()
        made = self.environment(ROOT)
        subprocess.run([S3_PYTHON, "-c", _MAKE_BUCKET, BUCKET, json.dumps(POLICY)], env=made, check=True)

    def environment(self, account: tuple[str, str]) -> dict[str, str]:
        """The variables of a client."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": account[0],
            "AWS_SECRET_ACCESS_KEY": account[1],
            "AWS_REGION": "us-east-1",
        }

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        named = {**os.environ, "ROOT_ACCESS_KEY": ROOT[0], "ROOT_SECRET_KEY": ROOT[1]}
        command = [str(GATEWAY), "--port", f"127.0.0.1:{self.port}", "--quiet", "--health", "/health"]
        command += ["--iam-dir", str(self._users), "posix", str(self._objects)]
        self._process = subprocess.Popen(command, env=named, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + HANG_SECONDS
        while time.monotonic() < deadline:
            try:
                urlopen(f"{self.url}/health", timeout=5)  # noqa: S310 - a server of our own
            except (URLError, OSError):
                assert self._process.poll() is None, "versitygw ended"
                time.sleep(0.05)
            else:
                return
        raise AssertionError("versitygw does not answer")

    def path(self, key: str) -> Path:
        """The file that an object is."""
        return self._objects / BUCKET / key

    def stop(self) -> None:
        """End the server."""
        self._process.kill()
        self._process.wait()

    def pause(self) -> None:
        """Have it answer nothing."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Have it answer again."""
        self._process.send_signal(signal.SIGCONT)

    def parts(self) -> list[Path]:
        """Parts of uploads that have not ended."""
        return [path for path in (self._objects / BUCKET / ".sgwtmp").rglob("*") if path.is_file()]

    def forget_parts(self) -> None:
        """Remove them."""
        for path in self.parts():
            path.unlink()
