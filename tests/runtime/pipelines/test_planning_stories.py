"""Stories of clients that come and go and frames that crowd: their plans hold and their decisions replay."""

import random
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

import pytest

from appliance.domain.catalogue import Quota, Tenant
from appliance.domain.errors import PipelineNotPossible
from tests.fakes.clock import run_virtual
from tests.harness.lanes import seeds
from tests.runtime.pipelines.bench import planning_bench, replayed, taken

pytestmark = pytest.mark.gate("a whole engine for minutes of virtual time")


async def _told(seed: int) -> list[tuple[str, Mapping[str, object]]]:
    """A minute with clients that come and go and frames that crowd; what was decided."""
    dice = random.Random(seed)
    async with planning_bench(workers=dice.choice((1, 2, 4))) as bench:
        lives = [
            bench.add(f"p{at}", slo_ms=dice.choice((60, 200, 600)), weight=dice.choice((1.0, 2.0))) for at in range(3)
        ]
        for index in range(25):
            live = dice.choice(lives)
            match dice.randrange(4):
                case 0:
                    with suppress(PipelineNotPossible):
                        await bench.join(live, dice.choice((2.0, 5.0, 10.0)), f"c{index}")
                case 1:
                    for client in list(live.clients)[:1]:
                        bench.leave(live, client.id)
                case 2:
                    quota = Quota(memory_ceiling_bytes=dice.choice((30, 45, 1000)))
                    bench.box.catalogue.put_tenant(Tenant("t", quota))
                case _:
                    sender = next((one.id for one in live.clients), None)
                    await bench.feed(live, dice.choice((5, 20, 60)), 1.0, dice.randrange(8), sender)
            await bench.pause(dice.random())
            assert taken(*lives) <= bench.workers + 1e-6
        assert replayed(bench)
        return [(kind, facts) for kind, facts in bench.box.decisions.told if kind == "pipeline"]


@pytest.mark.parametrize("seed", seeds(gate=3, nightly=8))
def test_planning_decisions_of_random_stories_replay(seed: int) -> None:
    """Whatever comes, plans keep SLO and capacity, alone and together; equal seeds make equal decisions."""

    def decided() -> list[object]:
        return [_without_times(facts) for _, facts in run_virtual(lambda: _told(seed))]

    assert decided() == decided()


def _without_times(facts: Mapping[str, object]) -> object:
    """What was decided, as it compares."""
    return {**facts, "plan": replace(facts["plan"], facts={})}  # type: ignore[type-var]
