"""The page, the JSON API, and who may read them."""
