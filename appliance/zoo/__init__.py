"""Real networks and real inputs, fetched by name from the ordinary package registries, and small graphs made on the spot."""
