"""The papers' experiments in virtual time, the sweeps, and the bounds of a clairvoyant."""
