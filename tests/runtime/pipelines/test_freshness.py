"""What changes while a policy is asked about it, in virtual time."""

import asyncio
import itertools
from collections import Counter
from dataclasses import replace

import pytest

from appliance.domain.catalogue import Quota, Tenant
from appliance.domain.errors import PipelineNotPossible
from appliance.runtime.pipelines.clients import Clients
from tests.fakes.clock import story
from tests.present import present
from tests.runtime.pipelines.bench import find_and_read, planning_bench


@story
async def test_plan_made_stale_by_a_leaving_client_is_made_anew() -> None:
    """The client leaves while the policy is asked: the answer is followed by one about the clients that are left."""
    async with planning_bench() as bench:
        live = bench.add()
        await bench.join(live, 20, "c1")
        await bench.join(live, 5, "c2")
        left: list[str] = []

        def leave() -> None:
            if not left:
                left.append("c2")
                live.clients.leave("c2")

        bench.thread = leave
        bench.leave(live, "c1")
        await bench.pause(0.2)
        assert left
        assert bench.planning.figures.stale == 1
        await bench.pause(0.6)
        assert present(live.plan).fps == 0


@story
async def test_pipeline_defined_anew_while_others_are_planned_has_a_plan() -> None:
    """The new pipeline has had no frame yet, and what was seen of the old one says nothing of it: it is planned by its
    own frames.
    """
    async with planning_bench() as bench:
        live, other = bench.add("signs"), bench.add("other")
        feed = asyncio.create_task(bench.feed(live, 20, 7, 2))
        await bench.pause(7)
        await feed
        bench.answer_s = 1.0
        joining = asyncio.create_task(bench.join(other, 2))
        await bench.pause(0.5)
        again = replace(live, plan=None, clients=Clients(), frames=0, joined=0, items=Counter())
        bench.put(again)
        await joining
        bench.answer_s = 0.02
        feed = asyncio.create_task(bench.feed(again, 2, 8, 2))
        await bench.pause(6)
        assert present(again.plan).fps == pytest.approx(2, rel=0.3)
        feed.cancel()


@story
async def test_pipeline_that_keeps_changing_costs_other_pipelines_nothing() -> None:
    """One pipeline is changed at every round: the other has its plan after the first round, and what was planned beside
    the old definition is kept free until the new one is planned.
    """
    async with planning_bench() as bench:
        noisy = bench.add("noisy")
        quiet = bench.add("quiet")

        def change() -> None:
            pipeline = replace(noisy.pipeline, weight=3.0 - noisy.pipeline.weight)
            bench.pipelines[pipeline.id] = replace(noisy, pipeline=pipeline)
            noisy.pipeline = pipeline
            bench.planning.wake()

        bench.thread = change
        await bench.pause(0.1)
        await bench.feed(quiet, 20, 2, 3)
        assert present(quiet.plan).fps == pytest.approx(20, rel=0.1)
        assert bench.planning.figures.stale >= 10
        await bench.join(quiet, 5)
        assert len(quiet.clients) == 1


@story
async def test_pipeline_of_a_tenant_that_keeps_changing_is_still_planned() -> None:
    """The tenant's weight is another at every round: after some answers that are thrown away one is applied; a client
    that would join is told to ask again.
    """
    bench = find_and_read()
    weights = itertools.cycle((2.0, 1.0))

    def change() -> None:
        bench.box.catalogue.put_tenant(Tenant("t", Quota(processor_weight=next(weights))))

    bench.thread = change
    async with bench.working():
        live = bench.add()
        await bench.pause(0.2)
        with pytest.raises(PipelineNotPossible, match="ask again"):
            await bench.join(live, 5)
        assert len(live.clients) == 0


@story
async def test_changing_applications_of_others_cost_a_pipeline_nothing() -> None:
    """Another tenant changes its own application at every round: no answer is thrown away for that, and a client that
    joins is let in. A change of an application that the pipeline asks counts.
    """
    bench = find_and_read()
    catalogue = bench.box.catalogue
    catalogue.put_tenant(Tenant("u"))
    asked = catalogue.entry("t/read").application
    own = replace(asked, id="u/read", tenant="u")

    def change() -> None:
        catalogue.put_application(replace(own, weight=1.0 + catalogue.version))

    async with bench.working():
        live = bench.add()
        await bench.pause(1)
        bench.thread = change
        version, rounds = catalogue.version, bench.planning.figures.rounds
        await bench.join(live, 5)
        assert (len(live.clients), bench.planning.figures.stale) == (1, 0)
        await bench.pause(2)
        assert catalogue.version > version
        assert bench.planning.figures.rounds <= rounds + 2
        before = live.plan
        catalogue.put_application(replace(asked, weight=2.0))
        await bench.pause(1)
        assert live.plan is not before
