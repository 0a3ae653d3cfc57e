"""Verdicts -> figures that people look at: a Faust app folds them, a page and a JSON API show them."""
