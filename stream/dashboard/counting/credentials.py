"""Kafka credentials in the form that Faust expects."""

from __future__ import annotations

import faust

from stream.kafka.clients import OAuthTokens, tls
from stream.settings import OAUTHBEARER, Settings


def credentials(settings: Settings) -> faust.auth.Credentials | None:
    """Return the credentials for Faust's clients, or None for PLAINTEXT."""
    context = tls(settings)
    if settings.security_protocol.startswith("SASL"):
        if settings.sasl_mechanism == OAUTHBEARER:
            return faust.auth.OAuthCredentials(oauth_cb=OAuthTokens(settings), ssl_context=context)
        secret = settings.sasl_password
        return faust.SASLCredentials(
            username=settings.sasl_username,
            password=secret.get_secret_value() if secret else None,
            ssl_context=context,
            mechanism=settings.sasl_mechanism,
        )
    return faust.SSLCredentials(context) if context else None
