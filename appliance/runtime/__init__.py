"""The engine: from an admitted request to its result, and the memory it happens in."""
