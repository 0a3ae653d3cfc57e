"""Options that decide verdicts, and the id that names them."""

from __future__ import annotations

import pytest
from msgspec import ValidationError, convert, structs

from stream.cli.options import structure
from stream.errors import SettingsError
from stream.fingerprint import minima
from stream.messages.verdict_options import DECIDING, RULE, VerdictOptions


class LaterOptions(VerdictOptions, frozen=True):
    """Those of a later version, which has one more."""

    haste: int = 3


def test_an_option_that_is_added_changes_no_id() -> None:
    for options in (VerdictOptions(), VerdictOptions(baselines=9), VerdictOptions.paper()):
        later = LaterOptions(**structs.asdict(options))
        assert later.id == options.id
        assert structs.replace(later, haste=4).id != options.id


def test_every_option_that_is_not_at_its_default_changes_the_id() -> None:
    others = {
        "mode": "strict", "distance": 3, "short_distance": 1, "similarity": "0.9", "margin": "0.01",
        "evidence": "0.6", "blocks": 6, "choose": 3,
        "bucket_cap": 9, "compared": 0, "baselines": 3, "lifetime": 600, "disclosure": "public",
    }  # fmt: skip
    given: dict[str, object] = {"mode": "strict", "distance": 2}
    assert others.keys() == set(VerdictOptions.__struct_fields__)
    plain = VerdictOptions(**given)  # type: ignore[arg-type]
    ids = {plain.id, VerdictOptions().id}
    for name in others.keys() - {"mode"}:
        ids.add(structs.replace(plain, **{name: others[name]}).id)
    assert len(ids) == 2 + len(others) - 1


@pytest.mark.parametrize("name", RULE)
def test_every_constant_that_decides_changes_the_id(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before, value = VerdictOptions().id, getattr(minima, name)
    monkeypatch.setattr(minima, name, value[:-1] if isinstance(value, tuple) else value + 1)
    assert VerdictOptions().id != before


@pytest.mark.parametrize("name", DECIDING)
def test_every_default_that_decides_changes_the_id(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before, defaults = VerdictOptions().id, structs.asdict(VerdictOptions())
    monkeypatch.setattr(structs, "asdict", lambda _: defaults | {name: "another"})
    assert VerdictOptions().id != before


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"distance": 14}, "distance=14: decides in mode=strict alone"),
        ({"short_distance": 20}, "short_distance=20: decides in mode=strict alone"),
        ({"mode": "strict", "distance": 3, "short_distance": 9}, "short_distance=9"),
        ({"mode": "strict"}, "mode=strict: distance is missing"),
        ({"mode": "strict", "distance": 4}, "distance=4 needs other blocks"),
        ({"blocks": 6}, "blocks=6: divides fingerprints in mode=strict alone; otherwise it is 5"),
        ({"choose": 3}, "choose=3: divides fingerprints in mode=strict alone; otherwise it is 2"),
        ({"keys": "fingerprint"}, "keys"),
        ({"flips": 2}, "flips"),
    ],
)
def test_tables_of_fingerprints_are_of_strict_mode_alone(options: dict[str, object], named: str) -> None:
    with pytest.raises(ValidationError, match=named):
        convert(options, VerdictOptions)


@pytest.mark.parametrize("evidence", ["0.5", "0.0", "1", "1.0"])
def test_evidence_is_a_similarity(evidence: str) -> None:
    assert convert({"evidence": evidence}, VerdictOptions).evidence == evidence


@pytest.mark.parametrize("evidence", ["2", ".5", "-0.5", "0.12345", "none"])
def test_evidence_that_is_none_is_refused(evidence: str) -> None:
    with pytest.raises(ValidationError, match="evidence"):
        convert({"evidence": evidence}, VerdictOptions)


@pytest.mark.parametrize(
    ("given", "outcome"),
    [
        ("90d", 7_776_000),
        ("1.5h", 5400),
        ("600", 600),
        ("36500d", 3_153_600_000),
        ("9m", "--option: lifetime=540s: must be from 10 minutes to 100 years"),
        ("36501d", "--option: lifetime=3153686400s: must be from 10 minutes to 100 years"),
        (f"{'9' * 400}d", f"--option lifetime={'9' * 400}d: not a whole number of seconds"),
        ("600.5", r"--option lifetime=600\.5: not a whole number of seconds"),
        ("-1d", "--option lifetime=-1d: '-1d' is not a duration; write 3600, 90s, 15m, 1h or 7d"),
    ],
)
def test_a_lifetime_is_a_duration_of_ten_minutes_to_a_hundred_years(given: str, outcome: int | str) -> None:
    if isinstance(outcome, int):
        assert structure(VerdictOptions, (f"lifetime={given}",), "--option").lifetime == outcome
    else:
        with pytest.raises(SettingsError, match=f"^{outcome}"):
            structure(VerdictOptions, (f"lifetime={given}",), "--option")
