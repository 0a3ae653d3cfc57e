"""What the images of Apache Kafka do at their start: properties from the environment, storage, a JVM."""

import os
import re
import socket
import struct
import subprocess
import sys
from pathlib import Path

PROPERTIES = Path("/etc/kafka/kafka.properties")
CLUSTER = "NkU3OEVBNTcwNTJENDM2Qg"
NOT_PROPERTIES = {"KAFKA_HEAP_OPTS", "KAFKA_OPTS"}


def properties() -> None:
    """`KAFKA_A_B=c` becomes `a.b=c`; two underscores are one, three a dash."""
    lines = []
    for name, value in os.environ.items():
        if name.startswith("KAFKA_") and name not in NOT_PROPERTIES:
            words = re.split(r"(___|__|_)", name.removeprefix("KAFKA_").lower())
            signs = {"___": "-", "__": "_", "_": "."}
            lines.append("".join(signs.get(word, word) for word in words) + f"={value}")
    PROPERTIES.write_text("\n".join([*lines, ""]))


def java(*main: str) -> list[str]:
    """The command of a class of Kafka's."""
    options = [*os.environ.get("KAFKA_HEAP_OPTS", "-Xmx512m").split(), "-XX:+ExitOnOutOfMemoryError"]
    logging = "-Dlog4j2.configurationFile=/opt/kafka/log4j2.properties"
    return ["java", *options, logging, "-cp", "/opt/kafka/libs/*", *main]


def launch() -> None:
    """Become the broker."""
    command = java("kafka.Kafka", str(PROPERTIES))
    os.execvp(command[0], command)  # noqa: S606 (as `exec` in a start script)


def answers(server: str) -> None:
    """Exit with 0 if the broker answers an ApiVersions request (key 18, version 0)."""
    host, _, port = server.rpartition(":")
    request = struct.pack(">hhih", 18, 0, 1, -1)
    with socket.create_connection((host, int(port)), 5) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        if len(connection.recv(10)) < 10:
            sys.exit("no answer")


what, *rest = sys.argv[1:]
match what:
    case "properties":
        properties()
    case "launch":
        launch()
    case "storage":
        sys.exit(subprocess.run(java("kafka.tools.StorageTool", *rest), check=False).returncode)
    case "answers":
        answers(rest[rest.index("--bootstrap-server") + 1])
    case "run":
        properties()
        tool = ("kafka.tools.StorageTool", "format", "--ignore-formatted", "-t", CLUSTER, "-c")
        subprocess.run(java(*tool, str(PROPERTIES)), check=True)
        launch()
