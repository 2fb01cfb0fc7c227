"""What every adaptation policy keeps, whatever the problem."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.lab.plan import plan_one
from reproduce.baselines import ADAPTATION
from tests.checkers.adaptation import faults
from tests.harness.lanes import examples

pytestmark = pytest.mark.gate("hundreds of problems are solved")

UNALIGNED = ("half-budget", "three-quarters-budget", "one-picture")
"""Ablations: they plan with other pictures, or links, than there are."""
KEEPING = [name for name in ADAPTATION if not name.startswith("open-") and name not in UNALIGNED]
"""Those that serve nobody whom they cannot serve in time; the others have an open door."""

latencies = st.dictionaries(
    st.integers(1, 12).map(str), st.floats(1.0, 90.0).map(lambda ms: round(ms, 2)), min_size=1, max_size=4
)
models = st.lists(
    st.fixed_dictionaries(
        {"accuracy": st.floats(0.0, 1.0), "input_bytes": st.integers(0, 90_000), "latency_ms": latencies}
    ),
    min_size=1,
    max_size=4,
)
clients = st.lists(
    st.fixed_dictionaries(
        {
            "rate_rps": st.sampled_from([0.1, 5, 10, 15, 25, 29.97]) | st.floats(0.01, 120.0),
            "slo_ms": st.sampled_from([50, 75, 100, 150]),
            "bandwidth_bps": st.integers(1_000_000, 50_000_000),
        }
    ),
    max_size=9,
)


@st.composite
def problems(draw: st.DrawFn) -> dict[str, Any]:
    zoo = [{"name": f"m{i}", **model} for i, model in enumerate(draw(models))]
    names = st.sampled_from([m["name"] for m in zoo]) | st.none()
    return {
        "kind": "adaptation",
        "models": zoo,
        "workers": draw(st.integers(1, 4)),
        "previous": draw(st.lists(names, max_size=5)),
        "clients": [{"name": f"c{i}", **client} for i, client in enumerate(draw(clients))],
        "seed": draw(st.integers(0, 3)),
        "time_limit_s": 5,
    }


def decided(problem: dict[str, Any], policy: str) -> dict[str, Any]:
    answer = plan_one({**problem, "policy": policy})
    return {key: value for key, value in answer.items() if key != "elapsed_ms"}


@pytest.mark.parametrize("policy", KEEPING)
@examples(gate=10)
@given(problem=problems(), data=st.data())
def test_plan_keeps_constraints_and_depends_on_no_order(
    policy: str, problem: dict[str, Any], data: st.DataObject
) -> None:
    """Every constraint holds by the independent checker; equal input gives equal output; permuted input gives the
    same plan.
    """
    answer = decided(problem, policy)
    mixed = {
        **problem,
        "clients": data.draw(st.permutations(problem["clients"])),
        "models": data.draw(st.permutations(problem["models"])),
    }

    assert faults(problem, answer) == []
    assert decided(problem, policy) == answer
    assert decided(mixed, policy) == answer


@pytest.mark.parametrize("policy", KEEPING)
def test_plan_without_servable_clients_is_empty_and_says_why(policy: str) -> None:
    """No clients, and clients that no network can serve, are states and no faults; the reason says which."""
    zoo = [{"name": "m", "accuracy": 0.5, "input_bytes": 9000, "latency_ms": {"1": 60}}]
    hopeless = [{"name": "c", "rate_rps": 10, "slo_ms": 100, "bandwidth_bps": 1e7}]

    nobody = decided({"kind": "adaptation", "models": zoo, "workers": 1, "clients": []}, policy)
    unmapped = decided({"kind": "adaptation", "models": zoo, "workers": 1, "clients": hopeless}, policy)

    assert (nobody["workers"], nobody["unmapped"], nobody["objective"]) == ([], [], 0)
    assert (unmapped["workers"], unmapped["unmapped"]) == ([], ["c"])
    assert "no network meets the SLO of 1" in unmapped["reason"]


@pytest.mark.parametrize("policy", [name for name in ADAPTATION if name not in UNALIGNED])
def test_network_runs_on_two_workers_when_clients_need_both(policy: str) -> None:
    """Four clients, of whom two fill a worker: the only network runs twice, and every client is on one worker."""
    zoo = [{"name": "m", "accuracy": 0.5, "input_bytes": 9000, "latency_ms": {"1": 25}}]
    four = [{"name": f"c{i}", "rate_rps": 20, "slo_ms": 100, "bandwidth_bps": 1e7} for i in range(4)]

    answer = decided({"kind": "adaptation", "models": zoo, "workers": 2, "clients": four}, policy)

    assert [(worker["model"], len(worker["clients"])) for worker in answer["workers"]] == [("m", 2), ("m", 2)]
    assert answer["unmapped"] == []
