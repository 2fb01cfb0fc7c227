"""HTTP in front of the engine and the store: who may ask, what a question looks like, and how an error is told."""
