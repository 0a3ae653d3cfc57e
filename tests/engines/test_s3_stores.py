"""Stores in a real S3 server, by a user who may do no more than a store needs."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from stream.stores import bucket as buckets
from stream.stores.open import store_of
from stream.stores.store import Store
from tests.engines.s3_gateway import ALLOWED, BUCKET, ROOT, USER, Gateway
from tests.store_claims import BIG, StoreClaims, names

SMALL_DISK = 16 << 20


@pytest.fixture
def store(gateway: Gateway, request: pytest.FixtureRequest) -> Store:
    """A store of this test."""
    return store_of(f"s3://{BUCKET}/{ALLOWED}/{abs(hash(request.node.name))}")


class TestS3(StoreClaims):
    """What every store does."""


def test_more_files_than_one_answer_lists(store: Store) -> None:
    for number in range(1003):
        store.put(f"files/{number:04}", b"%d" % number)
    listed = names(store)
    assert listed == [f"files/{number:04}" for number in range(1003)]
    store.delete(listed)
    assert names(store) == []


@pytest.mark.parametrize("prefix", ["", "elsewhere", f"{ALLOWED}else"])
def test_what_the_policy_denies_is_named(prefix: str, gateway: Gateway, tmp_path: Path) -> None:
    big = tmp_path / "big"
    big.write_bytes(bytes(BIG))
    store = store_of(f"s3://{BUCKET}/{prefix}")
    calls: list[Callable[[], object]] = [
        lambda: store.put("a", b"content"),
        lambda: store.put("a", big),
        lambda: store.get("a"),
        lambda: names(store),
        lambda: store.delete(["a"]),
    ]
    for call in calls:
        with pytest.raises(PermissionError, match="access denied to these credentials") as error:
            call()
        assert not any(secret in str(error.value) for secret in USER)


def test_wrong_credentials_and_buckets_are_named(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value, words in (
        ("AWS_ACCESS_KEY_ID", "unknown", "the store does not know these credentials"),
        ("AWS_SECRET_ACCESS_KEY", "wrong", "the secret key is wrong"),
    ):
        with monkeypatch.context() as patch:
            patch.setenv(name, value)
            for call in (lambda: store.put("a", b""), lambda: store.get("a"), lambda: names(store)):
                with pytest.raises(PermissionError, match=f"{words}|access denied to these credentials"):
                    call()
            with pytest.raises(PermissionError, match=words):
                store.put("a", b"")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ROOT[0])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", ROOT[1])
    for call in (lambda: store_of("s3://nowhere").put("a", b""), lambda: names(store_of("s3://nowhere"))):
        with pytest.raises(FileNotFoundError, match="no such bucket"):
            call()
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    with pytest.raises(OSError, match="the bucket is in another region") as error:
        store.put("a", b"")
    assert error.value.errno == errno.EREMOTE


def test_a_store_that_comes_back_within_seconds_is_waited_for(store: Store, gateway: Gateway) -> None:
    store.put("a", b"content")
    gateway.stop()
    with pytest.raises(OSError, match="the store cannot be reached") as error:
        store.get("a")
    assert error.value.errno == errno.EHOSTUNREACH
    gateway.start()
    assert store.get("a") == b"content"


def test_a_store_that_does_not_answer_is_named(
    store: Store, gateway: Gateway, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    big = tmp_path / "big"
    big.write_bytes(bytes(BIG))
    monkeypatch.setitem(buckets._CLIENT, "timeout", timedelta(seconds=1))
    monkeypatch.setitem(buckets._RETRIES, "max_retries", 1)
    buckets._client_of.cache_clear()
    store.put("a", b"content")
    gateway.pause()
    try:
        for call in (lambda: store.get("a"), lambda: store.put("b", big), lambda: names(store)):
            with pytest.raises(TimeoutError, match="the store did not answer in time"):
                call()
    finally:
        gateway.resume()
        buckets._client_of.cache_clear()
    assert names(store) == ["a"]


def test_half_an_upload_is_no_file(store: Store, gateway: Gateway, tmp_path: Path) -> None:
    big = tmp_path / "big"
    big.write_bytes(os.urandom(10 * BIG))
    upload = """
        import sys
        from pathlib import Path
        from stream.stores.open import store_of
        store_of(sys.argv[1]).put("a", Path(sys.argv[2]))
    """
    halves = 0
    while halves < 3:
        store.put("a", b"earlier")
        process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(upload), str(store), big])
        while not any(gateway.parts()) and process.poll() is None:
            pass
        process.send_signal(signal.SIGKILL)
        process.wait()
        found = store.get("a")
        assert found in (b"earlier", big.read_bytes())
        halves += found == b"earlier"
        assert names(store) == ["a"]
        gateway.forget_parts()
    store.put("a", big)
    store.download("a", tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == big.read_bytes()


def test_a_full_store_is_named_and_keeps_what_it_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SMALL_DISK}", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("no tmpfs can be mounted")
    server = None
    try:
        server = Gateway(disk)
        for name, value in server.environment(USER).items():
            monkeypatch.setenv(name, value)
        store = store_of(f"s3://{BUCKET}/{ALLOWED}")
        store.put("a", b"earlier")
        big = tmp_path / "big"
        big.write_bytes(os.urandom(BIG))
        with pytest.raises(OSError, match="the upload failed; the reason is told if s3:AbortMultipartUpload"):
            store.put("a", big)
        server.forget_parts()
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", ROOT[0])
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", ROOT[1])
        for content in (big, big.read_bytes()):
            with pytest.raises(OSError, match="the store is full") as error:
                store.put("a", content)
            assert error.value.errno == errno.ENOSPC
        assert server.parts() == []
        assert store.get("a") == b"earlier"
        assert names(store) == ["a"]
    finally:
        if server:
            server.stop()
        subprocess.run(["umount", disk], check=True)
