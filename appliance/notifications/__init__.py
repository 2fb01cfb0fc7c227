"""Sends messages to receivers outside the box. A slow receiver delays nothing else."""
