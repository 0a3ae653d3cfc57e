"""Learns how main content is told from the rest of a page, from pages of which it is known."""
