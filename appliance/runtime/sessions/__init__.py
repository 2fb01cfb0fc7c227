"""Devices' sessions: what each was promised, what it sends when, and what became of its frames."""
