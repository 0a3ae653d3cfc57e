"""Requests of `neardup forget`, and what has become of them."""
