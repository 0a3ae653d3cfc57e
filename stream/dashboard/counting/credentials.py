"""Kafka credentials in the form that Faust expects."""

from __future__ import annotations

import faust

from stream.kafka import clients
from stream.settings import Settings


def credentials(settings: Settings) -> faust.auth.Credentials | None:
    """Return the credentials for Faust's clients, or None for PLAINTEXT."""
    options = clients.arguments(settings)
    context = options["ssl_context"]
    if (tokens := options.get("sasl_oauth_token_provider")) is not None:
        return faust.auth.OAuthCredentials(oauth_cb=tokens, ssl_context=context)
    if "sasl_mechanism" in options:
        return faust.SASLCredentials(
            username=options["sasl_plain_username"],
            password=options["sasl_plain_password"],
            ssl_context=context,
            mechanism=options["sasl_mechanism"],
        )
    return faust.SSLCredentials(context) if context else None
