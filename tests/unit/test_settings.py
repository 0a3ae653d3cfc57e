"""Options come from flags, environment and file, in this order, and errors name the option at fault."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from stream.errors import SettingsError
from stream.kafka import clients
from stream.settings import Settings, load, unknown_variables
from tests.commands import neardup


@pytest.fixture(autouse=True)
def _no_other_options(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.upper().startswith("NEARDUP_") and name != "NEARDUP_TEST_SESSION":
            monkeypatch.delenv(name)


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "neardup.toml"
    monkeypatch.setenv("NEARDUP_CONFIG", str(path))
    return path


def test_flags_win_over_environment_over_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_text('namespace = "file"\njudge_rows = 7\npage_bytes = "3MiB"\n')
    monkeypatch.setenv("NEARDUP_NAMESPACE", "variable")
    monkeypatch.setenv("NEARDUP_JUDGE_ROWS", "8")
    found = load(namespace="flag", judge_rows=None)
    assert (found.namespace, found.judge_rows, found.page_bytes) == ("flag", 8, 3 << 20)


@pytest.mark.parametrize(
    ("written", "size"), [("4194304", 4 << 20), ("4MiB", 4 << 20), ("4 MB", 4_000_000), (4 << 20, 4 << 20)]
)
def test_sizes_may_have_units(written: object, size: int) -> None:
    found = load(worker_memory=written).worker_memory
    assert found == size
    assert type(found) is int


@pytest.mark.parametrize(
    ("written", "seconds"),
    [("90", 90), ("90s", 90), ("1.5m", 90), ("6 h", 21_600), ("7d", 604_800), (90, 90), (0.5, 0.5)],
)
def test_durations_may_have_units(written: object, seconds: float) -> None:
    found = load(checkpoint_interval=written)
    assert found.checkpoint_interval == seconds
    assert load(**{"checkpoint_interval": found.environment()["NEARDUP_CHECKPOINT_INTERVAL"]}) == found


def refused(option: str, said: str, *values: str) -> list[tuple[dict[str, str], str]]:
    return [({option: value}, f"--{option.replace('_', '-')}: {said}") for value in values]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        *refused("checkpoint_interval", "", "soon", "-1h", "0", "1w", "h", ""),
        *refused("elect", "write first, longest, newest, quality or hosts=", "longer", "longest ", "hosts="),
        *refused("elect", "write first", "hosts=a.example,", "hosts=A.example", "hosts=a.example:80"),
        *refused("elector_name", "use at most 32 ", "-", "Newest", "a" * 33, "a.b"),
        ({"worker_memory": "4 horses"}, "--worker-memory: .*'4 horses' is not a size; .* 128MiB$"),
        ({"log_format": "jsn"}, r"--log-format: not one of .*, json; did you mean json\?$"),
        ({"sasl_mechanism": "GSSAPI"}, "--sasl-mechanism: not one of SCRAM-SHA-512, .*, OAUTHBEARER$"),
    ],
)  # fmt: skip
def test_other_values_are_refused_by_the_flag(options: dict[str, str], said: str) -> None:
    with pytest.raises(SettingsError, match=f"^{said}"):
        load(**options)


def test_a_policy_that_records_cannot_repeat_is_refused() -> None:
    hosts = ",".join(f"{number:03}.example" for number in range(400))
    assert load(elect=f"hosts={hosts[:4090]}").elect
    with pytest.raises(SettingsError, match=r"^--elect: String should have at most 4096 characters"):
        load(elect=f"hosts={hosts}")


def test_an_error_names_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEARDUP_page_deadline", "soon")
    with pytest.raises(SettingsError, match=r"^NEARDUP_PAGE_DEADLINE: "):
        load()


def test_an_error_names_the_file(file: Path) -> None:
    file.write_text("page_deadline = 0\nno_such_option = 1\n")
    with pytest.raises(SettingsError) as refused:
        load()
    assert f"page_deadline in {file}: " in str(refused.value)
    assert f"no_such_option in {file}: " in str(refused.value)
    file.write_text("page_deadline = = 0")
    with pytest.raises(SettingsError, match=f"NEARDUP_CONFIG, file {file}: "):
        load()
    file.unlink()
    with pytest.raises(SettingsError, match=f"NEARDUP_CONFIG: no file {file}"):
        load()


def test_what_may_be_written_is_listed_and_what_was_meant_is_named(
    monkeypatch: pytest.MonkeyPatch, file: Path
) -> None:
    file.write_text("page_deadlin = 5")
    with pytest.raises(
        SettingsError, match=r"page_deadlin in .*: no such option; did you mean page_deadline\?"
    ):
        load()
    file.write_text("")
    for name, field in Settings.model_fields.items():
        if any("pattern" in str(each) for each in field.metadata):
            with pytest.raises(SettingsError) as refused:
                load(**{name: " ^"})
            assert not re.search(r"pattern|\^|\[", str(refused.value)), "a regular expression is for programs"


def test_unknown_variables_are_named_with_the_nearest_option() -> None:
    service = {
        "NEARDUP_JUDGE_SERVICE_HOST": "10.0.0.1",
        "NEARDUP_JUDGE_SERVICE_PORT": "9500",
        "NEARDUP_JUDGE_SERVICE_PORT_METRICS": "9500",
        "NEARDUP_JUDGE_PORT": "tcp://10.0.0.1:9500",
        "NEARDUP_JUDGE_PORT_9500_TCP": "tcp://10.0.0.1:9500",
        "NEARDUP_JUDGE_PORT_9500_TCP_ADDR": "10.0.0.1",
    }
    known = {"NEARDUP_namespace": "x", "NEARDUP_CONFIG": "x", "NEARDUP_TEST_SESSION": "x", "HOME": "x"}
    wrong = {"NEARDUP_NAMESPASE": "x", "NEARDUP_DASHBORD_PORT": "8787", "NEARDUP_OF_A_LATER_VERSION": "x"}
    assert unknown_variables(service | known | wrong) == {
        "NEARDUP_NAMESPASE": "NEARDUP_NAMESPACE",
        "NEARDUP_DASHBORD_PORT": "NEARDUP_DASHBOARD_PORT",
        "NEARDUP_OF_A_LATER_VERSION": None,
    }


def test_a_service_of_kubernetes_is_no_option(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEARDUP_DASHBOARD_PORT", "tcp://10.0.0.1:80")
    assert load().dashboard_port == 8787


def test_a_command_tells_of_unknown_variables_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEARDUP_PAGE_BYTE", "1MiB")
    outcome = neardup("fingerprint", "-", input="{}")
    assert outcome.exit_code == 0
    assert "NEARDUP_PAGE_BYTE: no such option, ignored; did you mean NEARDUP_PAGE_BYTES?" in outcome.stderr


def test_the_environment_of_settings_loads_equal_ones(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    settings = load(state_dir=tmp_path, dev=True, page_bytes="2MiB", ops_port=-1)
    for name, value in settings.environment().items():
        monkeypatch.setenv(name, value)
    assert Settings() == settings


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"ssl_cafile": "ca.pem"}, "ssl_cafile has no effect with security_protocol PLAINTEXT"),
        ({"sasl_password": "x"}, "sasl_password has no effect with security_protocol PLAINTEXT"),
        ({"security_protocol": "SSL", "sasl_username": "x"}, "sasl_username has no effect with .* SSL"),
        ({"security_protocol": "SSL", "ssl_keyfile": "k.pem"}, "require ssl_certfile"),
        ({"security_protocol": "SASL_SSL", "sasl_username": "x"}, "SCRAM-SHA-512 requires sasl_username and"),
        (
            {"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER"},
            "requires either sasl_token_file or",
        ),
        ({"security_protocol": "TLS"}, "^--security-protocol: "),
    ],
)
def test_half_a_security_is_refused(options: dict[str, str], named: str) -> None:
    with pytest.raises(SettingsError, match=named):
        load(**options)


def test_secrets_are_shown_to_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    secret = "correct-horse"  # noqa: S105
    settings = load(security_protocol="SASL_PLAINTEXT", sasl_username="someone", sasl_password=secret)
    assert secret not in f"{settings!r} {settings} {settings.model_dump()}"
    for name, value in settings.environment().items():
        monkeypatch.setenv(name, value)
    assert load() == settings
    with pytest.raises(SettingsError) as refused:
        load(security_protocol="SSL")
    assert secret not in str(refused.value)


@pytest.mark.parametrize("option", ["ssl_cafile", "ssl_certfile"])
def test_files_that_are_no_certificates_are_named(option: str, tmp_path: Path) -> None:
    path = tmp_path / "no.pem"
    path.write_text("no certificate")
    for file in (path, tmp_path / "absent.pem"):
        with pytest.raises(SettingsError, match=f"{option}.*: {file}"):
            clients.tls(load(security_protocol="SSL", **{option: file}))


def test_every_client_is_made_in_one_place() -> None:
    package = Path(clients.__file__).parents[1]
    made = re.compile(r"\bAIOKafka(Consumer|Producer|AdminClient|Client)\(")
    makers = {file.name for file in package.rglob("*.py") if made.search(file.read_text("utf-8"))}
    assert makers == {"clients.py"}, "a client made elsewhere knows nothing of security"
