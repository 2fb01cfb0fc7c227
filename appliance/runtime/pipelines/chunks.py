"""Orders to plan several pipelines and their answers, on the way to the process that computes and back: pickled one
pipeline after another, for writing or reading those of many in one go holds the event loop for milliseconds.

A problem has a profile for each batch on each kind of processor, so what they are made of is pickled as rows: a
frozen dataclass with slots takes two to five times as long as its values.
"""

import copyreg
import io
import pickle
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from functools import partial
from operator import attrgetter
from typing import Any

from appliance.clock import others_first
from appliance.policies.allocation.base import (
    Allocation,
    AllocationInput,
    AllocationPlan,
    Draw,
    Existing,
    Module,
    Part,
    Placed,
    Profile,
    WorkerType,
)
from appliance.policies.allocation.several import Demand, Served, Several, plan_beside, plan_several

_ROWS = (
    Allocation,
    AllocationInput,
    AllocationPlan,
    Demand,
    Draw,
    Existing,
    Module,
    Part,
    Placed,
    Profile,
    Served,
    WorkerType,
)
"""Classes whose objects are pickled as the values of their fields."""


def _as_row(cls: type[Any]) -> Callable[[Any], tuple[type[Any], tuple[Any, ...]]]:
    values = attrgetter(*(one.name for one in fields(cls)))
    return lambda value: (cls, values(value))


_REDUCED: Mapping[type, Callable[[Any], Any]] = {**copyreg.dispatch_table, **{cls: _as_row(cls) for cls in _ROWS}}


async def order_of(compute: Callable[[], object]) -> bytes:
    """What `answered` computes elsewhere; others have their turn between two pipelines."""
    written = io.BytesIO()
    pickler = _pickler(written)
    if not isinstance(compute, partial) or compute.func not in (plan_beside, plan_several):
        pickler.dump((compute, None))
        return written.getvalue()
    demands, *more = compute.args
    pickler.dump((partial(compute.func, *more, **compute.keywords), len(demands)))
    for demand in demands:
        await others_first()
        pickler.dump(demand)
    return written.getvalue()


def answered(order: bytes) -> bytes:
    """What an order computes; a later chunk refers to what is in those before it."""
    unpickler = pickle.Unpickler(io.BytesIO(order))
    compute, count = unpickler.load()
    if count is not None:
        demands = [unpickler.load() for _ in range(count)]
        compute = partial(compute.func, demands, *compute.args, **compute.keywords)
    found = compute()
    written = io.BytesIO()
    pickler = _pickler(written)
    if isinstance(found, Several):
        pickler.dump(replace(found, served={}))
        pickler.dump(len(found.served))
        for chunk in found.served.items():
            pickler.dump(chunk)
    else:
        pickler.dump(found)
    return written.getvalue()


async def read_answer(written: bytes) -> Any:
    """What `answered` has computed; others have their turn between two pipelines."""
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


def _pickler(written: io.BytesIO) -> pickle.Pickler:
    found = pickle.Pickler(written, pickle.HIGHEST_PROTOCOL)
    found.dispatch_table = _REDUCED
    return found
