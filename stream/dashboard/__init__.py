"""The dashboard: a Faust app aggregates verdicts, and a web page and a JSON API show the figures."""
