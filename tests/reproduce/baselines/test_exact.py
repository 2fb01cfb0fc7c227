"""The mixed-integer program against trying everything, its fallback, its time limit."""

from dataclasses import replace

import pytest

from appliance.lab.plan import plan_one
from appliance.policies.adaptation.base import AdaptationInput
from reproduce.baselines import exact
from reproduce.baselines.exact import Exact
from tests.checkers.adaptation import faults, optimum
from tests.instances.adaptation import drawn, overloaded
from tests.instances.adaptation.written import written

pytestmark = pytest.mark.gate("whole simulations")


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("family", [drawn, overloaded])
def test_exact_plan_equals_brute_force(seed: int, family: object) -> None:
    """Six clients on two workers: as many mapped and the same objective as the best of all 729 assignments."""
    problem: AdaptationInput = replace(family(seed, 2, 3), workers=2)  # type: ignore[operator]
    document = written(problem, "exact")
    count, objective = optimum(document)

    answer = plan_one(document)

    assert faults(document, answer) == []
    assert len(problem.clients) - len(answer["unmapped"]) == count  # type: ignore[arg-type]
    assert answer["objective"] == pytest.approx(objective)
    assert answer["proven"] == 1.0


def test_exact_program_by_client_agrees_with_the_program_by_pattern(monkeypatch: pytest.MonkeyPatch) -> None:
    """With no patterns allowed the paper's program is solved: the same optimum."""
    problem = drawn(1, 2, 3)
    by_pattern = Exact().plan(problem)
    monkeypatch.setattr(exact, "PATTERNS_MAX", 0)

    by_client = Exact().plan(problem)

    assert by_client.facts["proven"] == 1.0
    assert by_client.objective == pytest.approx(by_pattern.objective)
    assert len(by_client.unmapped) == len(by_pattern.unmapped)


def test_exact_at_its_time_limit_has_a_plan_without_proof() -> None:
    """Stopped at once, the policy answers with the heuristic's plan or its own, whichever is better."""
    problem = replace(drawn(0, 8, 6), time_limit_s=0.1)
    document = written(problem, "exact")

    answer = plan_one(document)

    assert faults(document, answer) == []
    assert answer["proven"] == 0.0
    assert answer["unmapped"] == []


def test_exact_with_more_resources_serves_no_fewer_clients() -> None:
    """One worker more, or all clients on a better link, maps at least as many."""
    for seed in range(4):
        problem = overloaded(seed, 2, 5)
        more = replace(problem, workers=3)
        faster = replace(problem, clients=tuple(replace(c, bandwidth_bps=2 * c.bandwidth_bps) for c in problem.clients))
        unmapped = len(Exact().plan(problem).unmapped)

        assert len(Exact().plan(more).unmapped) <= unmapped
        assert len(Exact().plan(faster).unmapped) <= unmapped
