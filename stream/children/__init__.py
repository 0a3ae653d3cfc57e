"""Fingerprints page messages in child processes, which hostile pages may hang or kill."""
