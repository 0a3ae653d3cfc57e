"""`schemas/asyncapi.yaml` is valid AsyncAPI 3 and agrees with the topics that the code creates."""

from __future__ import annotations

import json
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator, Draft202012Validator

from stream.fingerprint.row import Row, Status
from stream.kafka.names import TopicNames
from stream.kafka.topic_plan import BATCH_MARGIN, plan
from stream.messages.best import ELECT_HEADER, decode_best
from stream.messages.verdict import Verdict
from stream.roles.worker.backlog import PagesTopic, Rejected
from stream.roles.worker.dead_letters import _headers
from stream.settings import load

SCHEMAS = Path(__file__).parents[2] / "schemas"
API: dict[str, Any] = yaml.safe_load((SCHEMAS / "asyncapi.yaml").read_text("utf-8"))
SPECIFICATION = "@asyncapi/specs@6.11.1"


@pytest.fixture(scope="module")
def specification(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The JSON Schema of AsyncAPI 3.0, from the package that its authors publish."""
    place = tmp_path_factory.mktemp("asyncapi")
    try:
        packed = subprocess.run(
            ["npm", "pack", "--silent", SPECIFICATION],
            cwd=place, capture_output=True, text=True, timeout=120, check=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as error:
        pytest.skip(f"{SPECIFICATION} cannot be fetched: {error}")
    with tarfile.open(place / packed.stdout.split()[-1]) as package:
        member = package.extractfile("package/schemas/3.0.0.json")
        assert member is not None
        found: dict[str, Any] = json.load(member)
    return found


def references(node: object) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"]
        for each in node.values():
            yield from references(each)
    elif isinstance(node, list):
        for each in node:
            yield from references(each)


def test_the_document_is_valid_asyncapi(specification: dict[str, Any]) -> None:
    validator = Draft7Validator(specification)
    assert not [f"{list(error.path)}: {error.message[:300]}" for error in validator.iter_errors(API)]


def test_every_reference_leads_somewhere() -> None:
    for reference in set(references(API)):
        if not reference.startswith("#/"):
            assert (SCHEMAS / reference).is_file(), reference
            continue
        node: Any = API
        for step in reference[2:].split("/"):
            node = node[step]
        assert node


def test_channels_are_the_topics_as_the_code_makes_them() -> None:
    settings = load(namespace="n", verdict_routes="duplicate", elect="longest")
    topics = {each.name: each for each in plan(settings)}
    channels = {
        each["address"].format(namespace="n", verdict="duplicate"): each for each in API["channels"].values()
    }
    assert channels.keys() == topics.keys()
    for name, topic in topics.items():
        kafka = channels[name]["bindings"]["kafka"]
        assert kafka.get("partitions") == topic.partitions, name
        told = {option: _written(value) for option, value in kafka["topicConfiguration"].items()}
        assert told == {**topic.config, "max.message.bytes": str(topic.largest + BATCH_MARGIN)}, name


def test_examples_are_what_their_schemas_say() -> None:
    found = 0
    for message in API["components"]["messages"].values():
        for example in message.get("examples", []):
            schema = json.loads((SCHEMAS / message["payload"]["schema"]["$ref"]).read_text("utf-8"))
            Draft202012Validator(schema).validate(example["payload"])
            found += 1
    assert found == 3
    kept = API["components"]["messages"]["best"]
    assert API["components"]["schemas"]["bestHeaders"]["required"] == [ELECT_HEADER]
    for example in kept["examples"]:
        decode_best(json.dumps(example["payload"]).encode(), example["name"])


def _written(value: object) -> str:
    """A value as Kafka's configuration writes it."""
    if isinstance(value, list):
        return ",".join(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def test_groups_and_headers_are_the_codes() -> None:
    groups = {
        each["bindings"]["kafka"]["groupId"]["const"].format(namespace="n")
        for each in API["operations"].values()
        if "bindings" in each
    }
    names = TopicNames("n")
    assert groups == {names.workers, names.judge}
    messages = API["components"]["messages"]
    verdict = API["components"]["schemas"]["verdictHeaders"]["properties"]["verdict"]["enum"]
    assert verdict == [each.name.lower() for each in Verdict]
    row = Row(Status.REJECTED, None, None, reason="failed")
    written = dict(_headers(PagesTopic("cluster", "pages", "0" * 32), Rejected(0, 5, None, b"", row)))
    assert messages["deadLetter"]["headers"]["required"] == list(written)
