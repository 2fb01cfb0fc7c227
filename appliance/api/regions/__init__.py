"""Shared memory of processes on the box itself, by which tensors come and go beside the connection."""
