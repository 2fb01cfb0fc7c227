"""A kind beside the first one, with real runtimes: lost in the middle of a run, it serves again once that is over.
Stories in virtual time stand in `tests/runtime/serving/test_lost_processor.py`.
"""

import asyncio
from pathlib import Path

import numpy as np
import pytest

from appliance.clock import NS_PER_S, SystemClock, pause_s
from appliance.domain.errors import ProcessorLost
from appliance.domain.hardware import PreparedForm
from appliance.domain.states import ProcessorState
from appliance.runtime.processors import PROCESSORS
from appliance.runtime.processors.group import ProcessorGroup
from appliance.runtime.processors.member import Limits, Member
from tests import toys
from tests.contracts.conftest import KINDS

pytestmark = pytest.mark.gate("real runtimes compute")

ONE, MANY = ({"gpu_0/data_0": np.zeros((count, 3, 224, 224), np.float32)} for count in (1, 128))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.anyio
async def test_kind_lost_in_the_middle_of_a_run_serves_again(kind: str, tmp_path: Path) -> None:
    """Callers wait no longer, its builds are told of, and nothing of it stays; after that it takes loads again."""
    path = toys.shufflenet(tmp_path / "net.onnx")
    form = PreparedForm(f"net@{kind}", str(path), path.stat().st_size, optimised=False, kind=kind)

    clock, lost = SystemClock(), list[str]()
    inner = PROCESSORS[kind](name="p", workers=1, threads_per_run=1, loads_parallel_max=1)
    member = Member(inner, clock, Limits(run_s=0.02, grace_s=0.0))
    member.on_lost = lost.append
    with pytest.raises(ProcessorLost):
        await member.load(form)
    member.serve()
    loaded = await member.load(form)
    standing, waiting = member.run(loaded, MANY, None), member.run(loaded, ONE, None)
    for run in (standing, waiting):
        with pytest.raises(ProcessorLost):
            await run
    assert (member.state, lost, member.is_clear) == (ProcessorState.LOST, [form.build_id], False)
    assert ProcessorGroup(inner, [member]).away() == {kind}
    with pytest.raises(ProcessorLost):
        await member.run(loaded, ONE, None)
    while not member.is_clear:
        await asyncio.to_thread(pause_s, 0.05)
    member.serve()
    with pytest.raises(ProcessorLost):  # that build has gone, though the kind is back
        await member.run(loaded, ONE, None)
    await member.unload(loaded)
    again = await member.load(form)
    deadline_ns = clock.now_ns() + 100 * NS_PER_S
    assert await member.run(again, ONE, None, deadline_ns=deadline_ns)
    assert len(await member.run_rows(again, [ONE], [1], None, deadline_ns=deadline_ns)) == 1
    await member.unload(again)
    status = member.status()
    assert (status.state, status.reason, status.runs) == (ProcessorState.SERVING, "", 4)
    assert status.busy_ms > 0
    member.close()
