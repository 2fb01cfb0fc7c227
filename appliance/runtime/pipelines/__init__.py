"""Pipelines: frames through several networks, planned together, each answered once."""
