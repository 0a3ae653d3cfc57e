"""Topics -> roles -> topics: the thin shell that moves bytes, exactly once; and brokers to try it on."""
