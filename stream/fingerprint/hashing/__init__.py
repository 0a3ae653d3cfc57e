"""Hash functions of features, of 32, 64 or 128 bits. Each is loaded only if a scheme selects it."""
