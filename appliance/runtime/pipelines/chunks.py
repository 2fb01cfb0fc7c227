"""Answers about several pipelines on their way from the process that computes them: pickled one pipeline after another,
for reading those of sixty large ones in one go holds the event loop for tens of milliseconds.
"""

import io
import pickle
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from appliance.clock import others_first
from appliance.policies.allocation.several import Several


def in_chunks(compute: Callable[[], object]) -> bytes:
    """What `compute` returns; a later chunk refers to what is in those before it."""
    found, written = compute(), io.BytesIO()
    pickler = pickle.Pickler(written, pickle.HIGHEST_PROTOCOL)
    if isinstance(found, Several):
        pickler.dump(replace(found, served={}))
        pickler.dump(len(found.served))
        for chunk in found.served.items():
            pickler.dump(chunk)
    else:
        pickler.dump(found)
    return written.getvalue()


async def read_chunks(written: bytes) -> Any:
    """The same again; others have their turn between two chunks."""
    unpickler = pickle.Unpickler(io.BytesIO(written))
    found = unpickler.load()
    if not isinstance(found, Several):
        return found
    served = {}
    for _ in range(unpickler.load()):
        name, one = unpickler.load()
        served[name] = one
        await others_first()
    return replace(found, served=served)
