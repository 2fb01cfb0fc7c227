"""What becomes of plans: the waits that they reserve."""

from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from appliance.clock import NS_PER_S
from appliance.domain.pipeline import Ask, Pipeline, PipelinePlan, StagePlan
from appliance.domain.slots import PlannedRows
from appliance.policies.residency.base import Wish
from appliance.runtime.pipelines.accounts import Tariff
from appliance.runtime.pipelines.enacting import Actuators, Enacting
from appliance.runtime.pipelines.problem import Group, Machine

MACHINE = Machine.made([Group("cores", ("cpu",), 2, has_host=True)], Tariff(lambda kind: None, {}), 2)
ONE = Pipeline("t/one", "t", "one", 500.0, (Ask(name="read", application_id="t/read"),))


def planned(instances: float) -> PipelinePlan:
    row = StagePlan("read", "cpu", "v", 4, 1, 10.0, instances, 300.0, 200.0)
    host = StagePlan("cut", "host", "", 1, 1, 10.0, 2.0, 1.0, 0.0)
    return PipelinePlan(1, True, 1.0, 300.0, (row, host), "", 10.0)


def catalogue_of(*applications: str) -> Any:
    """Applications that all serve one content."""
    servable = SimpleNamespace(variant=SimpleNamespace(content_sha256="c"), build_id="c@cpu", parts=None)
    entries = {
        id: SimpleNamespace(servables={"v": servable}, application=SimpleNamespace(id=id, tenant=id.partition("/")[0]))
        for id in applications
    }
    return SimpleNamespace(entry_for=lambda tenant, id: entries[id], entries=lambda: list(entries.values()))


def pipeline_of(tenant: str, name: str = "one") -> Pipeline:
    return Pipeline(f"{tenant}/{name}", tenant, name, 500.0, (Ask(name="read", application_id=f"{tenant}/read"),))


@pytest.mark.parametrize(("wait_ms", "waits"), [(200.0, True), (0.0, False)])
def test_batches_wait_to_fill_where_the_plan_counts_on_a_wait(wait_ms: float, waits: bool) -> None:
    """However many workers idle; batches of items that come together do not wait. The plan counts on three intervals
    of 66.7 ms, and a run waits for half of one more.
    """
    told: list[Mapping[str, PlannedRows]] = [{}]
    enacting = Enacting(Actuators(catalogue_of("t/read"), lambda *wishes: None, told.append, lambda kinds: None))
    plan = planned(0.1)
    enacting.put(ONE, replace(plan, stages=(replace(plan.stages[0], wait_ms=wait_ms), plan.stages[1])), MACHINE)
    enacting.enact(0)
    assert told[-1] == ({"c@cpu": PlannedRows(4, 233_333_333, 200_000_000)} if waits else {})


def test_build_that_a_plan_runs_without_batches_does_not_wait() -> None:
    """Though another tenant's plan for the same build has batches; what is left over of a stage with batches is no plan
    without batches.
    """
    told: list[Mapping[str, PlannedRows]] = [{}]
    enacting = Enacting(
        Actuators(catalogue_of("t/read", "u/read"), lambda *wishes: None, told.append, lambda kinds: None)
    )
    batches = planned(2.0)
    alone = replace(batches.stages[0], batch=1, wait_ms=0.0)
    enacting.put(pipeline_of("t"), replace(batches, stages=(batches.stages[0], alone)), MACHINE)
    enacting.enact(0)
    assert told[-1] == {"c@cpu": PlannedRows(4, 233_333_333, 600_000_000)}
    enacting.put(pipeline_of("u"), replace(batches, stages=(alone,)), MACHINE)
    enacting.enact(0)
    assert told[-1] == {}
    enacting.forget("u/one")
    enacting.enact(0)
    assert told[-1] == {"c@cpu": PlannedRows(4, 233_333_333, 600_000_000)}


def test_plan_moves_no_model_that_another_tenant_serves() -> None:
    """A content that another tenant serves, too, stays where a request costs least, unless that tenant has a plan with
    it as well; other applications of the same tenant go along.
    """
    told: list[Mapping[str, str]] = []
    catalogue = catalogue_of("t/read", "t/also", "u/read")
    enacting = Enacting(Actuators(catalogue, lambda *wishes: None, lambda waits: None, told.append))
    enacting.put(pipeline_of("t"), planned(1.0), MACHINE)
    enacting.enact(0)
    assert told == []
    enacting.put(pipeline_of("u"), planned(1.0), MACHINE)
    enacting.enact(0)
    assert told == [{"c": "cpu"}]
    enacting.forget("u/one")
    enacting.enact(0)
    assert told[-1] == {}


def test_plan_moves_no_network_that_serves_in_parts() -> None:
    """The plan has the network on one kind; on which kind each part runs stays with dispatch."""
    told: list[Mapping[str, str]] = []
    catalogue = catalogue_of("t/read")
    catalogue.entry_for("t", "t/read").servables["v"].parts = object()
    enacting = Enacting(Actuators(catalogue, lambda *wishes: None, lambda waits: None, told.append))
    enacting.put(pipeline_of("t"), planned(1.0), MACHINE)
    enacting.enact(0)
    assert told == []


@pytest.mark.parametrize("turn_off_ns", [0, NS_PER_S // 2, 30 * NS_PER_S])
def test_planned_variant_is_wished_for_whatever_the_turn_off_delay(turn_off_ns: int) -> None:
    """At every moment, though wishes are said again only now and then; after the plan has gone, for the delay and no
    longer.
    """
    told: list[tuple[Wish, ...]] = []
    actuators = Actuators(
        catalogue_of("t/read"), lambda id, wishes, source: told.append(wishes), lambda _: None, lambda _: None
    )
    enacting = Enacting(actuators, turn_off_ns)
    enacting.put(pipeline_of("t"), planned(1.0), MACHINE)
    enacting.enact(0)
    for now_ns in range(0, 20 * NS_PER_S, NS_PER_S // 2):
        enacting.refresh(now_ns)
        ((wish,),) = told[-1:]
        assert wish.until_ns > now_ns + NS_PER_S // 2
    enacting.forget("t/one")
    enacting.enact(20 * NS_PER_S)
    assert all(wish.until_ns <= 20 * NS_PER_S + turn_off_ns for wish in told[-1])
