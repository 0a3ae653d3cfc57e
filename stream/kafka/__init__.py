"""Topics -> roles -> topics: the thin shell that moves bytes, exactly once."""
