"""What an object keeps alive: bounds on memory are asked of it, not of the lists in which it keeps things."""

import gc
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

_SHARED = (type, ModuleType, FunctionType, BuiltinFunctionType)
"""What a program has once."""


def reachable(root: object) -> list[Any]:
    """All objects that one object refers to, over others too; without types, modules and functions."""
    found: dict[int, Any] = {}
    left = [root]
    while left:
        one = left.pop()
        if id(one) not in found and not isinstance(one, _SHARED):
            found[id(one)] = one
            left += gc.get_referents(one)
    return list(found.values())


def alive(kind: type) -> int:
    """How many instances of a class there are."""
    gc.collect()
    return sum(isinstance(one, kind) for one in gc.get_objects())
