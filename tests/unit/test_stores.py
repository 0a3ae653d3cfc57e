"""Stores: a directory, what errors of a bucket mean, and where settings and credentials come from."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from botocore.credentials import SSOProvider
from botocore.utils import ContainerMetadataFetcher

from stream.errors import SettingsError
from stream.stores import aws
from stream.stores import bucket as buckets
from stream.stores.bucket import Bucket
from stream.stores.open import store_of
from stream.stores.store import Store
from tests.store_claims import StoreClaims, names

KEY, SECRET = "an-id-that-nobody-may-see", "a-secret-that-nobody-may-see"
ENTRY = "<Contents><Key>{}</Key><LastModified>2020-01-01T00:00:00Z</LastModified><Size>{}</Size></Contents>"
LIST = "<ListBucketResult><IsTruncated>false</IsTruncated>{}</ListBucketResult>"
ERROR = f"<Error><Code>{{}}</Code><Message>about {KEY}</Message></Error>"


class TestDirectory(StoreClaims):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Store:
        return store_of(f"file://{tmp_path}/store")


def test_only_its_owner_reads_a_directory(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        store_of(str(tmp_path / "store")).put("a/b/c", b"content")
    finally:
        os.umask(old)
    made = {
        each: stat.S_IMODE(each.stat().st_mode) for each in (tmp_path / "store", *tmp_path.glob("store/**/*"))
    }
    assert {mode for each, mode in made.items() if each.is_dir()} == {0o700}
    assert {mode for each, mode in made.items() if each.is_file()} == {0o600}


def test_a_directory_that_is_not_mounted_is_named(tmp_path: Path) -> None:
    store = store_of(f"{tmp_path}/mounted/store")
    for call in (lambda: store.put("a", b""), lambda: names(store)):
        with pytest.raises(FileNotFoundError):
            call()
    assert list(tmp_path.iterdir()) == []


def test_parts_of_killed_writers_are_removed_after_a_day(tmp_path: Path) -> None:
    store = store_of(str(tmp_path))
    store.put("a", b"")
    young, old = tmp_path / ".parts/young", tmp_path / ".parts/old"
    young.touch()
    old.touch()
    os.utime(old, (time.time() - 90_000,) * 2)
    store.put("b", b"")
    assert list((tmp_path / ".parts").iterdir()) == [young]
    assert names(store) == ["a", "b"]


def test_a_full_disk_is_that_of_the_store_or_ours(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(small)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("no tmpfs can be mounted")
    try:
        large = tmp_path / "large"
        large.write_bytes(bytes(4 << 20))
        full = store_of(f"{small}/store")
        with pytest.raises(OSError, match="No space left") as error:
            full.put("a", large)
        assert (error.value.errno, error.value.filename) == (errno.ENOSPC, f"{full}/a")
        assert names(full) == []
        assert list((small / "store/.parts").iterdir()) == []
        store = store_of(f"{tmp_path}/store")
        store.put("a", large)
        with pytest.raises(OSError, match="No space left") as error:
            store.download("a", small / "copy")
        assert (error.value.errno, error.value.filename) == (errno.ENOSPC, f"{small}/copy")
        assert not (small / "copy").exists()
    finally:
        subprocess.run(["umount", small], check=True)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("", "names no directory"),
        ("s3://id:word@bucket/prefix", r"^s3://\.\.\.: has credentials in it"),
        ("az://bucket/prefix?sig=word", r"^az://bucket/\.\.\.: a prefix has letters"),
        ("s3://", "the only URLs are such as s3://bucket/key"),
        ("s3://bucket/a//b", r"^s3://bucket/\.\.\.: a prefix has letters"),
        ("https://bucket/a", "the only URLs are such as s3://bucket/key"),
        ("file://word@machine/directory", "names a machine"),
        ("file:///data?word=1", r"^file://\.\.\.: has a query \(\?\.\.\.\); in a name, it is %3F"),
        ("file:///data#word", r"^file://\.\.\.: has a fragment \(#\.\.\.\); in a name, it is %23"),
    ],
)
def test_urls_that_name_no_store_are_refused(url: str, message: str) -> None:
    with pytest.raises(SettingsError, match=message) as error:
        store_of(url)
    assert "word" not in str(error.value)


def test_urls_of_each_kind_name_a_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert str(store_of("a/b")) == f"{tmp_path}/a/b"
    assert str(store_of("file:///with%20space")) == "/with space"
    for url in ("s3://bucket", "gs://bucket/a/b", "az://container/a"):
        assert str(store_of(f"{url}/")) == str(store_of(url)) == url


class Answers(BaseHTTPRequestHandler):
    """Says what the test has it say."""

    protocol_version = "HTTP/1.1"
    status = 200
    body = ""
    requests: list[tuple[str, str, str]]
    """Methods, paths and authorizations."""
    missing: set[str]
    """Paths that are answered with 404."""
    answering: threading.Event
    """No answer is given before it is set."""

    def answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.requests.append((self.command, self.path, self.headers.get("Authorization", "")))
        self.answering.wait()
        body = self.body.encode()
        self.send_response(404 if self.path in self.missing else self.status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Last-Modified", "Wed, 01 Jan 2020 00:00:00 GMT")
        self.send_header("ETag", '"1"')
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = answer  # noqa: N815 - names of the base class

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """An environment without settings of a provider, in which requests are not repeated."""
    for name in os.environ:
        if name.startswith(("AWS_", "GOOGLE_", "AZURE_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    monkeypatch.setitem(buckets._RETRIES, "max_retries", 0)
    buckets._client_of.cache_clear()
    return monkeypatch


@pytest.fixture
def server(environment: pytest.MonkeyPatch) -> Iterator[type[Answers]]:
    """The store that the environment names."""
    answering = threading.Event()
    answering.set()
    answers = type("Fresh", (Answers,), {"requests": [], "missing": set(), "answering": answering})
    http = ThreadingHTTPServer(("127.0.0.1", 0), answers)
    environment.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{http.server_port}")
    environment.setenv("AWS_ACCESS_KEY_ID", KEY)
    environment.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    thread = threading.Thread(target=http.serve_forever)
    thread.start()
    yield answers
    answering.set()
    http.shutdown()
    http.server_close()
    thread.join()


@pytest.mark.parametrize(
    ("status", "code", "number", "words"),
    [
        (403, "AccessDenied", errno.EACCES, "access denied to these credentials"),
        (403, "InvalidAccessKeyId", errno.EACCES, "the store does not know these credentials"),
        (403, "SignatureDoesNotMatch", errno.EACCES, "the secret key is wrong"),
        (400, "ExpiredToken", errno.EACCES, "the credentials have expired"),
        (
            403,
            "RequestTimeTooSkewed",
            errno.EACCES,
            "the clocks of this machine and the store differ too much",
        ),
        (404, "NoSuchBucket", errno.ENOENT, "no such bucket"),
        (404, "NoSuchKey", errno.ENOENT, "no such object"),
        (301, "PermanentRedirect", errno.EREMOTE, "the bucket is in another region"),
        (400, "AuthorizationHeaderMalformed", errno.EREMOTE, "the bucket is in another region"),
        (403, "QuotaExceeded", errno.EDQUOT, "the store's quota is used up"),
        (507, "XMinioStorageFull", errno.ENOSPC, "the store is full"),
        (507, "Other", errno.ENOSPC, "the store is full"),
        (503, "SlowDown", errno.EAGAIN, "the store asks for fewer requests"),
        (429, "Other", errno.EAGAIN, "the store asks for fewer requests"),
        (500, "InternalError", errno.EIO, "the store answers with an error"),
        (418, "Other", errno.EIO, "the store answers with an error"),
    ],
)
def test_errors_of_a_store_are_told_in_our_words(
    status: int, code: str, number: int, words: str, server: type[Answers]
) -> None:
    server.status, server.body = status, ERROR.format(code)
    with pytest.raises(OSError, match="store") as error:
        store_of("s3://bucket/store").put("a", b"content")
    assert (error.value.errno, error.value.strerror) == (number, words)
    assert error.value.filename == "s3://bucket/store/a"
    assert not any(secret in str(error.value) for secret in (KEY, SECRET))
    assert error.value.__cause__ is None
    assert error.value.__suppress_context__


def test_a_file_that_another_replaces_while_it_is_read_is_named(server: type[Answers]) -> None:
    server.status, server.body = 412, ERROR.format("PreconditionFailed")
    with pytest.raises(OSError, match="the object was replaced while it was read") as error:
        Bucket("s3", "bucket").read("a", 0, 5, '"2"')
    assert error.value.errno == errno.ESTALE


def test_an_upload_to_a_store_that_hangs_ends_when_its_turn_raises(
    server: type[Answers], tmp_path: Path
) -> None:
    class EndedError(Exception):
        pass

    def end_after_the_first_request() -> None:
        if server.requests:
            raise EndedError

    server.answering.clear()
    (tmp_path / "file").write_bytes(b"content")
    with pytest.raises(EndedError):
        store_of("s3://bucket").put("a", tmp_path / "file", turn=end_after_the_first_request)
    assert not server.answering.is_set()
    assert [each[0] for each in server.requests] == ["PUT"]


def test_part_of_a_deletion_that_is_denied_is_an_error(server: type[Answers]) -> None:
    server.body = (
        f"<DeleteResult><Error><Key>b</Key><Code>AccessDenied</Code><Message>{KEY}</Message></Error>"
    )
    server.body += "</DeleteResult>"
    with pytest.raises(PermissionError, match="access denied to these credentials"):
        store_of("s3://bucket").delete(["a", "b"])
    server.body = f"<DeleteResult><Error><Key>b</Key><Code>Other</Code><Message>{KEY}</Message></Error>"
    server.body += "</DeleteResult>"
    with pytest.raises(OSError, match="the store answers with an error"):
        store_of("s3://bucket").delete(["a", "b"])


def test_a_store_that_is_away_is_named(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(OSError, match="the store cannot be reached") as error:
        store_of("s3://bucket").get("a")
    assert error.value.errno == errno.EHOSTUNREACH


def test_markers_of_directories_are_no_objects(server: type[Answers]) -> None:
    server.body = LIST.format("".join(ENTRY.format(*each) for each in [("a/", 0), ("a/d", 0), ("a/x", 3)]))
    bucket = Bucket("s3", "bucket")
    assert [each.name for each in bucket.list_all("a/")] == ["a/d", "a/x"]
    assert [each[:2] for each in server.requests] == [
        ("GET", "/bucket?list-type=2&prefix=a%2F"),
        ("HEAD", "/bucket/a/d"),
    ]
    server.missing.add("/bucket/a/d")
    server.body = server.body.replace("a/d<", "a/d/<")
    assert [each.name for each in bucket.list_all("a/")] == ["a/x"]
    assert [each.name for each in bucket.list_level("a/")] == ["a/x"]


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("a//b", "two slashes in a row in the key"),
        ("/a", "two slashes in a row in the key"),
        ("a/../b", "or a control character"),
        ("a/\nb", "or a control character"),
    ],
)
def test_keys_that_cannot_be_read_are_named(key: str, words: str, server: type[Answers]) -> None:
    bucket = Bucket("s3", "bucket")
    for call in (lambda: bucket.head(key), lambda: bucket.read(key, 0, 1), lambda: bucket.put(key, b"")):
        with pytest.raises(OSError, match=words) as error:
            call()
        assert error.value.errno == errno.EINVAL
    assert server.requests == []


def test_a_listing_with_two_slashes_in_a_row_is_named(server: type[Answers]) -> None:
    server.body = LIST.format(ENTRY.format("a/b//c", 3))
    with pytest.raises(OSError, match="two slashes in a row in the key, which obstore does not read"):
        list(store_of("s3://bucket").list("a"))


def test_keys_with_any_other_character_are_read_as_they_are(server: type[Answers]) -> None:
    key = "a b#c%20d~e*f+gä?&=\\"
    server.body = LIST.format(ENTRY.format(key.replace("&", "&amp;"), 3))
    bucket = Bucket("s3", "bucket")
    assert [each.name for each in bucket.list_all("")] == [key]
    assert bucket.head(key).name == key
    assert server.requests[-1][1] == "/bucket/a%20b%23c%2520d~e%2Af%2Bg%C3%A4%3F%26%3D%5C"


STS = """<AssumeRole{0}Response xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRole{0}Result>
<Credentials><AccessKeyId>{1}</AccessKeyId><SecretAccessKey>word</SecretAccessKey>
<SessionToken>token</SessionToken><Expiration>2999-01-01T00:00:00Z</Expiration></Credentials>
</AssumeRole{0}Result></AssumeRole{0}Response>"""
PRINTED = json.dumps(
    {"Version": 1, "AccessKeyId": "printed-id", "SecretAccessKey": "word", "SessionToken": "token"}
)
MACHINE = {
    "AccessKeyId": "machine-id", "SecretAccessKey": "word", "Token": "token",
    "Expiration": "2999-01-01T00:00:00Z",
}  # fmt: skip
CONFIG = f"""
[default]
region = eu-north-1
[profile work]
region = eu-central-1
s3 =
  addressing_style = path
[profile program]
credential_process = {sys.executable} -c 'print({json.dumps(PRINTED)})'
[profile identity]
role_arn = arn:aws:iam::1:role/identity
web_identity_token_file = HOME/token
[profile role]
role_arn = arn:aws:iam::1:role/of-another
source_profile = work
[profile sso]
sso_start_url = https://a.example/start
sso_region = eu-west-1
sso_account_id = 1
sso_role_name = reader
[profile broken]
credential_process = false
[profile hangs]
credential_process = sh -c "sleep 600; true"
[profile through-hangs]
role_arn = arn:aws:iam::1:role/of-another
source_profile = hangs
[profile list]
credential_process = echo []
[profile null]
credential_process = echo null
[profile reads]
credential_process = sh -c "cat; false"
[profile absent]
credential_process = absent-program
[profile code]
role_arn = arn:aws:iam::1:role/of-another
source_profile = work
mfa_serial = arn:aws:iam::1:mfa/person
[profile half]
aws_access_key_id = half-id
[profile signed-out]
sso_start_url = https://b.example/start
sso_region = eu-west-1
sso_account_id = 1
sso_role_name = reader
"""
CREDENTIALS = """
[default]
aws_access_key_id = default-id
aws_secret_access_key = word%
[work]
aws_access_key_id = work-id
aws_secret_access_key = word
"""


class Profiles:
    """Profiles in the home directory, and the one by which a request was signed."""

    def __init__(self, home: Path, server: type[Answers]) -> None:
        self.config, self.credentials = home / ".aws/config", home / ".aws/credentials"
        self.config.parent.mkdir()
        self.config.write_text(CONFIG.replace("HOME", str(home)))
        self.credentials.write_text(CREDENTIALS)
        (home / "token").write_text("a token")
        self._server = server

    def authorization(self) -> str:
        Bucket("s3", "bucket").head("a")
        return self._server.requests[-1][2]


@pytest.fixture
def profiles(server: type[Answers], environment: pytest.MonkeyPatch, tmp_path: Path) -> Profiles:
    """Profiles, in an environment without credentials."""
    for name in ("AWS_REGION", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        environment.delenv(name)
    return Profiles(tmp_path, server)


@pytest.mark.parametrize(
    ("profile", "key", "region"),
    [
        (None, "default-id", "eu-north-1"),
        ("work", "work-id", "eu-central-1"),
        ("program", "printed-id", "us-east-1"),
        ("identity", "identity-id", "us-east-1"),
        ("role", "role-id", "us-east-1"),
        ("sso", "sso-id", "us-east-1"),
    ],
)
def test_a_profile_signs_requests(
    profile: str | None,
    key: str,
    region: str,
    profiles: Profiles,
    server: type[Answers],
    environment: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """By keys, a program, a token of another provider, another role or a sign-in."""
    if profile is not None:
        environment.setenv("AWS_PROFILE", profile)
    if profile in ("identity", "role"):
        environment.setenv("AWS_ENDPOINT_URL_STS", os.environ["AWS_ENDPOINT_URL"])
        server.body = STS.format("WithWebIdentity" if profile == "identity" else "", key)
    if profile == "sso":
        digest = hashlib.sha1(b"https://a.example/start", usedforsecurity=False).hexdigest()
        environment.setattr(SSOProvider, "_SSO_TOKEN_CACHE_DIR", str(tmp_path))  # of the home at import
        (tmp_path / f"{digest}.json").write_text(
            json.dumps({"accessToken": "token", "expiresAt": "2999-01-01T00:00:00Z"})
        )
        role = {"accessKeyId": key, "secretAccessKey": "word", "sessionToken": "t", "expiration": 1 << 45}
        server.body = json.dumps({"roleCredentials": role})
        environment.setenv("AWS_ENDPOINT_URL_SSO", os.environ["AWS_ENDPOINT_URL"])
        environment.setenv("AWS_ENDPOINT_URL_STS", os.environ["AWS_ENDPOINT_URL"])
    signed = profiles.authorization()
    assert f"Credential={key}/" in signed
    assert f"/{region}/" in signed


def test_keys_that_are_rotated_in_a_profile_are_read_again(profiles: Profiles) -> None:
    assert "default-id" in profiles.authorization()
    profiles.credentials.write_text(CREDENTIALS.replace("default-id", "rotated-id"))
    os.utime(profiles.credentials, (1, 1))
    assert "rotated-id" in profiles.authorization()


@pytest.mark.parametrize(
    ("profile", "message"),
    [
        ("broken", r"config: profile broken: no credentials \(CredentialRetrievalError\); `aws sts"),
        ("signed-out", "config: profile signed-out: no credentials"),
        ("missing", "^AWS_PROFILE: .*config: profile missing: there is no such profile"),
        ("list", r"config: profile list: no credentials \(AttributeError\)"),
        ("null", r"config: profile null: no credentials \(AttributeError\)"),
        ("reads", r"config: profile reads: no credentials \(CredentialRetrievalError\)"),
        ("absent", r"config: profile absent: no credentials \(FileNotFoundError\)"),
        ("code", "config: profile code: mfa_serial: a profile that asks a person for a code"),
        ("half", "config: profile half: aws_secret_access_key: missing"),
    ],
)
def test_a_profile_that_gives_no_credentials_is_named(
    profile: str, message: str, profiles: Profiles, environment: pytest.MonkeyPatch
) -> None:
    environment.setenv("AWS_PROFILE", profile)
    with pytest.raises(SettingsError, match=message):
        profiles.authorization()


@pytest.mark.parametrize("profile", ["hangs", "through-hangs"])
def test_a_program_that_hangs_is_ended(
    profile: str, profiles: Profiles, environment: pytest.MonkeyPatch
) -> None:
    environment.setattr(aws, "_PROGRAM_SECONDS", 0.2)
    environment.setenv("AWS_PROFILE", profile)
    with pytest.raises(OSError, match=rf"profile {profile}: no credentials \(TimeoutExpired\)") as error:
        profiles.authorization()
    assert error.value.filename == "s3://bucket"


WEB = "AWS_ROLE_ARN, AWS_WEB_IDENTITY_TOKEN_FILE"
CONTAINER = "AWS_CONTAINER_CREDENTIALS_FULL_URI or _RELATIVE_URI"
FAULT = "<ErrorResponse><Error><Code>{}</Code></Error></ErrorResponse>"


@pytest.mark.parametrize(
    ("kind", "status", "code", "source", "error"),
    [
        ("web", 503, "ServiceUnavailable", WEB, OSError),
        ("web", 400, "Throttling", WEB, OSError),
        ("web", 429, "Other", WEB, OSError),
        ("web", None, "", WEB, OSError),
        ("web", 403, "AccessDenied", WEB, SettingsError),
        ("role", 500, "InternalFailure", "config: profile role", OSError),
        ("role", 403, "AccessDenied", "config: profile role", SettingsError),
        ("container", 503, "", CONTAINER, OSError),
        ("container", 429, "", CONTAINER, OSError),
        ("container", None, "", CONTAINER, OSError),
        ("container", 200, "", CONTAINER, OSError),
    ],
)
def test_a_failure_that_may_pass_is_no_fault_of_settings(
    kind: str,
    status: int | None,
    code: str,
    source: str,
    error: type[Exception],
    profiles: Profiles,
    server: type[Answers],
    environment: pytest.MonkeyPatch,
) -> None:
    """Of the service that gives roles, or of the container's; without a status, it cannot be reached."""
    url = os.environ["AWS_ENDPOINT_URL"] if status else "http://127.0.0.1:9"
    server.status, server.body = status or 200, FAULT.format(code)
    environment.setenv("AWS_MAX_ATTEMPTS", "1")
    environment.setattr(ContainerMetadataFetcher, "RETRY_ATTEMPTS", 1)
    environment.setenv("AWS_ENDPOINT_URL_STS", url)
    if kind == "role":
        environment.setenv("AWS_PROFILE", "role")
    elif kind == "web":
        environment.setenv("AWS_ROLE_ARN", "arn:aws:iam::1:role/identity")
        environment.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(profiles.config.parent.parent / "token"))
    else:
        profiles.credentials.unlink()
        environment.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{url}/credentials")
    with pytest.raises(error, match=f"{source}: no credentials"):
        profiles.authorization()


def test_keys_of_the_environment_come_before_a_profile(
    profiles: Profiles, environment: pytest.MonkeyPatch
) -> None:
    environment.setenv("AWS_PROFILE", "work")
    environment.setenv("AWS_ACCESS_KEY_ID", "id-of-the-environment")
    with pytest.raises(SettingsError, match=r"^AWS_SECRET_ACCESS_KEY: missing"):
        profiles.authorization()
    environment.setenv("AWS_SECRET_ACCESS_KEY", "word")
    environment.delenv("AWS_ACCESS_KEY_ID")
    with pytest.raises(SettingsError, match=r"^AWS_ACCESS_KEY_ID: missing"):
        profiles.authorization()
    environment.setenv("AWS_ACCESS_KEY_ID", "id-of-the-environment")
    assert "id-of-the-environment" in profiles.authorization()


def test_credentials_of_the_machine_sign_requests(
    server: type[Answers], environment: pytest.MonkeyPatch
) -> None:
    """As a container has them, which is asked for them no more often than they need it."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        environment.delenv(name)
    environment.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{os.environ['AWS_ENDPOINT_URL']}/credentials")
    server.body = json.dumps(MACHINE)
    asks: list[object] = []

    def counted(name: str) -> aws.S3Options:
        options = aws.s3_options(name)
        ask = options.credentials
        assert ask is not None

        def count() -> Any:
            asks.append(None)
            return ask()

        return options._replace(credentials=count)

    environment.setattr(buckets, "s3_options", counted)
    for _ in range(3):
        Bucket("s3", "bucket").head("a")
        assert "machine-id" in server.requests[-1][2]
        time.sleep(0.15)  # obstore asks no more often than ten times a second
    assert len(asks) == 1
    end = datetime.now(UTC).replace(microsecond=0) + timedelta(minutes=7)
    server.body = server.body.replace("2999-01-01T00:00:00Z", end.isoformat())
    ask = aws.s3_options("bucket").credentials
    assert ask is not None
    assert ask().get("expires_at") == end


@pytest.mark.parametrize("failures", [1, 2, 9])
def test_a_metadata_service_that_fails_is_asked_again(
    failures: int, server: type[Answers], environment: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_EC2_METADATA_DISABLED"):
        environment.delenv(name)
    environment.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", os.environ["AWS_ENDPOINT_URL"])
    roles = "/latest/meta-data/iam/security-credentials/"
    server.body = json.dumps(MACHINE)
    left = iter([True] * failures)
    answer = server.answer

    def answer_or_fail(self: Answers) -> None:
        server.status = 500 if self.path.startswith(roles) and next(left, False) else 200
        answer(self)
        server.status = 200

    environment.setattr(server, "do_GET", answer_or_fail)
    environment.setattr(buckets, "_ANONYMOUS_SECONDS", 1e9)
    Bucket("s3", "bucket").head("a")
    assert ("machine-id" in server.requests[-1][2]) == (failures < 3)
    environment.setattr(buckets, "_ANONYMOUS_SECONDS", 0.0)
    for _ in range(3):
        Bucket("s3", "bucket").head("a")
    assert "machine-id" in server.requests[-1][2]


def test_without_credentials_requests_are_not_signed(
    server: type[Answers], environment: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        environment.delenv(name)
    Bucket("s3", "bucket").head("a")
    assert server.requests[-1][2] == ""
    server.status = 403
    with pytest.raises(PermissionError, match="access denied, and no credentials were found"):
        Bucket("s3", "bucket").head("a")


@pytest.mark.parametrize("value", ["store.example.com", "ftp://store", "https://id:word@store", "http://"])
def test_endpoints_that_name_no_server_are_refused(value: str, environment: pytest.MonkeyPatch) -> None:
    environment.setenv("AWS_ENDPOINT_URL", value)
    with pytest.raises(SettingsError, match=r"^AWS_ENDPOINT_URL: not such as https://store") as error:
        store_of("s3://bucket").get("a")
    assert "word" not in str(error.value)


def test_settings_that_a_provider_cannot_use_are_named(
    environment: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    environment.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "missing"))
    with pytest.raises(SettingsError, match=r"variables GOOGLE_\.\.\., or files that they name"):
        store_of("gs://bucket").get("a")
    with pytest.raises(SettingsError, match=r"variables AZURE_\.\.\., or files that they name"):
        store_of("az://container").get("a")
    environment.setenv("AWS_CA_BUNDLE", str(tmp_path / "missing"))
    with pytest.raises(SettingsError, match=r"AWS_CA_BUNDLE .*missing: No such file"):
        store_of("s3://bucket").get("a")
