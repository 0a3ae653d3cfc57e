"""Page messages -> rows, in child processes that a page may hang or kill."""
