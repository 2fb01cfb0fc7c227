"""Samples that every reader can work out again."""

from appliance.history.file import HistoryFile
from appliance.history.pieces import DAY_S, HOUR_S, STEP_S

START = 20_000 * DAY_S
"""A midnight."""


def sampled(slot: int) -> dict[str, float]:
    """What is said at a time: one series always, one now and then, one rate only in the first hour."""
    values = {"up": 1.0, "memory": float(slot // 10 % 997)}
    if slot % 70 == 0:
        values["p99"] = slot % 13 + 1.0
    if slot - START < HOUR_S and slot % 20 == 0:
        values["requests"] = 2.0
    return values


def fill(file: HistoryFile, start: int, end: int, *, fold: bool = True) -> None:
    """As the box does, but a write for an hour."""
    for hour in range(start, end, HOUR_S):
        file.write({slot: sampled(slot) for slot in range(hour, min(end, hour + HOUR_S), STEP_S)})
        if fold:
            file.fold(min(end, hour + HOUR_S))
