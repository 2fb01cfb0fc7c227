"""Every selection policy in the registry keeps the family's contract."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.domain.catalogue import Prefer
from appliance.policies.selection import SELECTION_POLICIES
from appliance.policies.selection.base import SelectionInput
from tests.fakes.candidate import FakeCandidate

every_policy = pytest.mark.parametrize("name", sorted(SELECTION_POLICIES))

accuracies = st.sampled_from([0.0, 50.0, 90.0, 100.0])
losses = st.none() | st.sampled_from([0.0, 0.5, 3.0])
latencies = st.none() | st.sampled_from([1.0, 5.0, 20.0])


@st.composite
def problems(draw: st.DrawFn) -> SelectionInput:
    """Up to eight candidates with many ties and unknowns."""
    names = draw(st.lists(st.text("abc", min_size=1, max_size=3), unique=True, max_size=8))
    candidates = tuple(
        FakeCandidate(n, draw(accuracies), draw(latencies), draw(st.integers(1, 3)), draw(latencies), draw(losses))
        for n in names
    )
    slo_ms, least = draw(st.none() | st.sampled_from([5.0, 15.0])), draw(st.sampled_from([0.0, 70.0]))
    return SelectionInput(candidates, slo_ms, least, draw(st.sampled_from(Prefer)), 0.5)


@every_policy
@given(problem=problems())
def test_selection_order_has_exactly_the_variants_above_the_accuracy_floor(name: str, problem: SelectionInput) -> None:
    """Each of them once."""
    plan = SELECTION_POLICIES[name]().order(problem)
    allowed = {c.name for c in problem.candidates if c.accuracy >= problem.accuracy_min}
    assert sorted(plan.order) == sorted(allowed)
    assert plan.reason


@every_policy
@given(data=st.data(), problem=problems())
def test_selection_order_ignores_the_order_of_candidates(
    name: str, data: st.DataObject, problem: SelectionInput
) -> None:
    """The same candidates in any order give the same plan."""
    shuffled = tuple(data.draw(st.permutations(problem.candidates)))
    policy = SELECTION_POLICIES[name]()
    assert policy.order(problem) == policy.order(replace(problem, candidates=shuffled))
