"""Sequences: bounded, expiring, of one application each."""

import pytest

from appliance.domain.errors import IllegalState, LimitReached
from appliance.runtime.serving.sequences import Sequences
from tests.fakes.clock import story
from tests.fakes.hand_clock import HandClock


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def sequences(clock: HandClock) -> Sequences:
    return Sequences(clock, count_max=3, idle_s=10)


def test_sequence_is_found_again_by_its_key(sequences: Sequences) -> None:
    """Another key is another sequence. An unknown one is refused: to go on from zeros would give wrong answers in
    silence.
    """
    one = sequences.open(("t/a", "t", "s"), start=True)
    assert sequences.open(("t/a", "t", "s"), start=False) is one
    with pytest.raises(IllegalState, match="sequence_start"):
        sequences.open(("t/b", "t", "s"), start=False)
    assert sequences.open(("t/b", "t", "s"), start=True) is not one


def test_second_start_begins_a_sequence_anew(sequences: Sequences) -> None:
    """It forgets the state; the end of the sequence's first run does not end the second."""
    old = sequences.open(("t/a", "t", "s"), start=True)
    new = sequences.open(("t/a", "t", "s"), start=True)
    assert new is not old
    sequences.close(("t/a", "t", "s"), old)
    assert sequences.open(("t/a", "t", "s"), start=False) is new
    sequences.close(("t/a", "t", "s"), new)
    assert len(sequences) == 0
    sequences.close(("t/a", "t", "s"), new)


def test_sequence_beyond_the_limit_is_refused_until_another_expires(sequences: Sequences, clock: HandClock) -> None:
    """A third is refused, a second start of a known one is not; when one has expired there is room."""
    sequences.open(("t/a", "t", "1"), start=True)
    clock.pass_s(5)
    sequences.open(("t/a", "t", "2"), start=True)
    with pytest.raises(LimitReached) as caught:
        sequences.open(("t/a", "t", "3"), start=True)
    assert caught.value.retry_after_s == 10
    sequences.open(("t/a", "t", "2"), start=True)
    clock.pass_s(5)
    sequences.open(("t/a", "t", "3"), start=True)
    with pytest.raises(IllegalState):
        sequences.open(("t/a", "t", "1"), start=False)


@story
async def test_sequence_in_use_does_not_expire(sequences: Sequences, clock: HandClock) -> None:
    """Idle time counts from the last use, not from the start, and not while a request runs: it takes as long as it
    likes.
    """
    one = sequences.open(("t/a", "t", "1"), start=True)
    for _ in range(5):
        clock.pass_s(9)
        sequences.open(("t/a", "t", "1"), start=False)
    async with one.lock:
        clock.pass_s(60)
        assert sequences.open(("t/a", "t", "1"), start=False) is one
    clock.pass_s(10)
    with pytest.raises(IllegalState):
        sequences.open(("t/a", "t", "1"), start=False)


def test_idle_sequence_expires_before_an_older_sequence_in_use(sequences: Sequences, clock: HandClock) -> None:
    """The first sequence is still in use when the second has expired: the second makes room."""
    sequences.open(("t/a", "t", "1"), start=True)
    sequences.open(("t/a", "t", "2"), start=True)
    clock.pass_s(9)
    sequences.open(("t/a", "t", "1"), start=False)
    clock.pass_s(2)
    sequences.open(("t/a", "t", "3"), start=True)
    sequences.open(("t/a", "t", "1"), start=False)


def test_drop_application_ends_its_sequences_only(sequences: Sequences) -> None:
    sequences.open(("t/a", "t", "1"), start=True)
    sequences.open(("t/ab", "t", "1"), start=True)
    sequences.drop_application("t/a")
    assert len(sequences) == 1
    sequences.open(("t/ab", "t", "1"), start=False)


def test_sequences_of_a_tenant_leave_places_to_other_tenants(clock: HandClock) -> None:
    """Seven eighths for one alone; another tenant still begins its sequences, and a place comes back at the end."""
    sequences = Sequences(clock, count_max=16, idle_s=10)
    for i in range(14):
        sequences.open(("t/a", "greedy", str(i)), start=True)
    with pytest.raises(LimitReached):
        sequences.open(("t/a", "greedy", "more"), start=True)
    one = sequences.open(("t/a", "quiet", "1"), start=True)
    sequences.close(("t/a", "quiet", "1"), one)
    sequences.drop_application("t/a")
    for i in range(14):
        sequences.open(("t/a", "quiet", str(i)), start=True)
