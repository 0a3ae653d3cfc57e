"""A secured broker with TLS, certificates, SASL and ACLs, generated for a test run."""

from __future__ import annotations

import base64
import datetime
import ipaddress
import json
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiokafka.protocol.admin import CreateAclsRequest, DescribeAclsRequest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from stream.brokers.embedded import EmbeddedBroker, Secured
from stream.kafka import broker_metadata
from stream.kafka.acls import Grant
from stream.settings import Settings, load
from tests.waiting import until

USER, PASSWORD = "someone", "correct-horse"
KIND = {"topic": 2, "group": 3, "transactional-id": 5}
OPERATION = {
    "Read": 3, "Write": 4, "Create": 5, "Delete": 6, "Alter": 7, "Describe": 8, "DescribeConfigs": 10,
}  # fmt: skip
ANY, LITERAL, ALLOW = 1, 3, 3


@dataclass(frozen=True)
class Authority:
    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @classmethod
    def create(cls, name: str) -> Authority:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = _builder(subject, subject, key).add_extension(x509.BasicConstraints(True, None), True)
        usage = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
        return cls(key, builder.add_extension(usage, True).sign(key, hashes.SHA256()))

    def issue(self, name: str, path: Path, password: bytes | None = None) -> Path:
        """Write the key and certificate of `name`, good for 127.0.0.1, to one PEM file."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        here = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
        signed = (
            _builder(subject, self.certificate.subject, key)
            .add_extension(here, False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()), False)
            .sign(self.key, hashes.SHA256())
        )
        hidden = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
        pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
        path.write_bytes(key.private_bytes(pem, pkcs8, hidden) + signed.public_bytes(pem))
        return path

    def write(self, path: Path) -> Path:
        path.write_bytes(self.certificate.public_bytes(serialization.Encoding.PEM))
        return path


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=2))
    )


class SecuredBroker:
    """The broker, and settings for principals of all kinds."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        scram = f"[name={USER},password={PASSWORD}]"
        authority = Authority.create("authority")
        self.authority = authority
        self.cafile = authority.write(directory / "authority.pem")
        self.other_cafile = Authority.create("another authority").write(directory / "other.pem")
        server = authority.issue("broker", directory / "broker.pem")
        module = "org.apache.kafka.common.security"
        tokens = f'{module}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="b";'
        self._broker = EmbeddedBroker(
            None,
            print,
            Secured(
                listeners={"SASL": "SASL_SSL", "MTLS": "SSL"},
                scram=[f"SCRAM-SHA-{bits}={scram}" for bits in (256, 512)],
                properties={
                    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                    "super.users": "User:ANONYMOUS",
                    "ssl.keystore.type": "PEM",
                    "ssl.keystore.location": str(server),
                    "ssl.truststore.type": "PEM",
                    "ssl.truststore.location": str(self.cafile),
                    "ssl.principal.mapping.rules": "RULE:^CN=(.*)$/$1/",
                    "listener.name.mtls.ssl.client.auth": "required",
                    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
                    "listener.name.sasl.plain.sasl.jaas.config": (
                        f'{module}.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
                    ),
                    **{
                        f"listener.name.sasl.scram-sha-{bits}.sasl.jaas.config": (
                            f"{module}.scram.ScramLoginModule required;"
                        )
                        for bits in (256, 512)
                    },
                    "listener.name.sasl.oauthbearer.sasl.jaas.config": tokens,
                },
            ),
        )

    def close(self) -> None:
        self._broker.stop()

    def everything(self, namespace: str, **options: Any) -> Settings:
        """Return settings of a principal with all rights, on the plain listener."""
        return load(**self._common(namespace), bootstrap_servers=self._broker.bootstrap_servers, **options)

    def by_password(self, namespace: str, mechanism: str = "SCRAM-SHA-512", **options: Any) -> Settings:
        given = {"sasl_username": USER, "sasl_password": PASSWORD, "sasl_mechanism": mechanism, **options}
        return self._over_tls(namespace, "SASL", **given)

    def by_token(self, namespace: str, principal: str, **options: Any) -> Settings:
        """Return settings with an unsigned token for a principal, which Kafka accepts for tests."""
        path = self._directory / f"token-{principal}"
        path.write_text(token_of(principal))
        return self._over_tls(
            namespace, "SASL", sasl_mechanism="OAUTHBEARER", sasl_token_file=path, **options
        )

    def by_certificate(self, namespace: str, principal: str, **options: Any) -> Settings:
        certificate = self.authority.issue(principal, self._directory / f"{principal}.pem", b"secret key")
        given = {"ssl_certfile": certificate, "ssl_password": "secret key", **options}
        return self._over_tls(namespace, "MTLS", **given)

    def _over_tls(self, namespace: str, listener: str, **options: Any) -> Settings:
        given = {
            "bootstrap_servers": f"127.0.0.1:{self._broker.ports[listener]}",
            "security_protocol": "SSL" if listener == "MTLS" else "SASL_SSL",
            "ssl_cafile": self.cafile,
        }
        return load(**(self._common(namespace) | given | options))

    def _common(self, namespace: str) -> dict[str, Any]:
        return {
            "namespace": namespace, "dev": True, "partitions": 2, "worker_processes": 1, "ops_port": -1,
            "dashboard_port": 0, "state_dir": self._directory / "state",
        }  # fmt: skip

    async def grant(self, principal: str, grants: Iterable[Grant]) -> None:
        """Allow a principal these grants and nothing else. The broker knows them then, not the controller
        alone."""
        user, count = f"User:{principal}", 0
        async with broker_metadata.connect(self.everything("any")) as client:

            async def known() -> bool:
                question = DescribeAclsRequest(ANY, None, ANY, user, None, ANY, ANY)
                answer = await client.send(client.get_random_node(), question)
                return sum(len(acls) for *_, acls in answer.resources) >= count

            for each in grants:
                what = KIND[each.kind], each.name, LITERAL
                for operation in each.operations:
                    answer = await client.send(
                        client.get_random_node(),
                        CreateAclsRequest(*what, user, "*", OPERATION[operation], ALLOW),
                    )
                    assert [code for code, _ in answer.creation_responses] == [0], answer
                    count += 1
            await until(known)


def token_of(principal: str) -> str:
    now = time.time()
    parts = {"alg": "none"}, {"sub": principal, "iat": now, "exp": now + 3600}
    encoded = (base64.urlsafe_b64encode(json.dumps(each).encode()).decode().rstrip("=") for each in parts)
    return ".".join([*encoded, ""])
