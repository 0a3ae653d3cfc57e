"""Text -> features: one file a method, all but plain words loaded only where a scheme selects them."""
