"""Every state machine has a whole table, no dead corner, and refuses what is not in it."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import pytest

from appliance.domain.states import (
    JOB_MOVES,
    PROCESSOR_MOVES,
    REQUEST_MOVES,
    RESIDENCY_MOVES,
    SESSION_MOVES,
    VARIANT_MOVES,
    JobState,
    ProcessorState,
    RequestState,
    ResidencyState,
    SessionState,
    VariantState,
    move,
)

Table = Mapping[Any, frozenset[Any]]
MACHINES: list[tuple[type[StrEnum], Table, StrEnum, set[StrEnum]]] = [
    (
        RequestState,
        REQUEST_MOVES,
        RequestState.ADMITTED,
        {RequestState.DONE, RequestState.EXPIRED, RequestState.REJECTED, RequestState.FAILED},
    ),
    (ResidencyState, RESIDENCY_MOVES, ResidencyState.ABSENT, set()),
    (VariantState, VARIANT_MOVES, VariantState.MAKING, set()),
    (ProcessorState, PROCESSOR_MOVES, ProcessorState.NOT_RUN, set()),
    (JobState, JOB_MOVES, JobState.QUEUED, {JobState.DONE, JobState.FAILED, JobState.CANCELLED}),
    (SessionState, SESSION_MOVES, SessionState.WAITING, {SessionState.ENDED}),
]
machines = pytest.mark.parametrize(
    ("states", "table", "start", "ends"), MACHINES, ids=lambda value: getattr(value, "__name__", None)
)


@machines
def test_state_table_has_a_row_for_every_state(
    states: type[StrEnum], table: Table, start: StrEnum, ends: set[StrEnum]
) -> None:
    """Rows name states of the same machine only."""
    assert set(table) == set(states)
    assert set().union(*table.values()) <= set(states)


@machines
def test_state_machine_final_states_have_no_moves(
    states: type[StrEnum], table: Table, start: StrEnum, ends: set[StrEnum]
) -> None:
    """From every other state a final state, or the start, can be reached."""
    assert {state for state in states if not table[state]} == ends
    for state in set(states) - ends:
        assert _reachable(table, state) & (ends or {start, *table[start]})


@machines
def test_state_machine_reaches_every_state_from_the_start(
    states: type[StrEnum], table: Table, start: StrEnum, ends: set[StrEnum]
) -> None:
    """Except that of a rejected request, which never started."""
    assert set(states) - _reachable(table, start) - {start} <= {RequestState.REJECTED}


@machines
def test_state_move_is_allowed_only_as_the_table_lists(
    states: type[StrEnum], table: Table, start: StrEnum, ends: set[StrEnum]
) -> None:
    """`move` returns the new state where the table lists it and asserts everywhere else."""
    for old in states:
        for new in states:
            if new in table[old]:
                assert move(table, old, new) is new
            else:
                with pytest.raises(AssertionError, match="illegal move"):
                    move(table, old, new)


def _reachable(table: Table, start: StrEnum) -> set[StrEnum]:
    found: set[StrEnum] = set()
    border = [start]
    while border:
        for state in table[border.pop()]:
            if state not in found:
                found.add(state)
                border.append(state)
    return found
