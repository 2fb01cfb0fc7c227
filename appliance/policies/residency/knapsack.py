"""A small knapsack with several choices for each item (multiple-choice knapsack), answered exactly.

Items are added one after the other to the combinations of those before, and a combination that another one beats with
no more bytes is forgotten. What is left grows with the number of items, so this is for few; where there are many, the
greedy answer loses little, for it is at most one step short.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from appliance.policies.residency.base import Option


class Choice(NamedTuple):
    """One of an item's: how many bytes more than its smallest it takes, how many more while it loads, and what it is
    worth.
    """

    bytes: int
    peak_bytes: int
    worth: float
    option: Option | None


def best_choices(items: Sequence[Sequence[Choice]], free_bytes: int) -> list[Choice]:
    """One choice of each item, worth most together of those that fit into `free_bytes`, with the peak of any one of
    them. Of equal worth, the fewer bytes.

    Each item has a choice of 0 bytes, and gets it where `free_bytes` are below zero, for others took them.
    """
    free_bytes = max(0, free_bytes)
    front: list[tuple[int, float, Any]] = [(0, 0.0, None)]
    for choices in items:
        found = [
            (held + choice.bytes, worth + choice.worth, (before, choice))
            for choice in choices
            if choice.peak_bytes <= free_bytes
            for held, worth, before in front
            if held + choice.bytes <= free_bytes
        ]
        found.sort(key=_by_bytes)
        front = []
        for combination in found:
            if not front or combination[1] > front[-1][1]:
                front.append(combination)
    for held, _, last in reversed(front):
        taken = _unwound(last)
        if held + max((choice.peak_bytes - choice.bytes for choice in taken), default=0) <= free_bytes:
            return taken
    raise ValueError("an item has no choice of 0 bytes")


def _by_bytes(combination: tuple[int, float, Any]) -> tuple[int, float]:
    return combination[0], -combination[1]


def _unwound(last: Any) -> list[Choice]:
    taken: list[Choice] = []
    while last is not None:
        last, choice = last
        taken.append(choice)
    return taken[::-1]
