"""Checks whether a broker is up by a Metadata request over a plain socket, without an event loop."""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass

from aiokafka.protocol.metadata import MetadataRequest_v2, MetadataResponse_v2


@dataclass(frozen=True, slots=True)
class BrokerAnswer:
    """A broker's answer about its Kafka cluster."""

    cluster_id: str | None
    ports: frozenset[int]
    """Advertised ports of the live brokers; empty while a broker starts."""


def ping(host: str, port: int, timeout: float) -> BrokerAnswer | None:
    """The broker's answer to a Metadata request, or None if there is none within `timeout` seconds."""
    request = MetadataRequest_v2([])
    message = request.build_request_header(1, "neardup").encode() + request.encode()
    try:
        with socket.create_connection((host, port), timeout) as connection:
            connection.sendall(struct.pack(">i", len(message)) + message)
            with connection.makefile("rb") as stream:
                (size,) = struct.unpack(">i", stream.read(4))
                body = stream.read(size)
    except (OSError, struct.error):
        return None
    try:
        response = MetadataResponse_v2.decode(body[4:])  # after the correlation id
    except ValueError:
        return None
    return BrokerAnswer(response.cluster_id, frozenset(broker[2] for broker in response.brokers))
