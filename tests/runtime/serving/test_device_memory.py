"""A card whose memory does not hold all that serves there: all is answered, and who was used longest ago leaves."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from appliance.domain.errors import LoadFailed
from appliance.domain.hardware import PreparedForm
from appliance.runtime.memory.loader import Loader
from appliance.runtime.processors.device_memory import DeviceMemory
from tests.fakes.clock import story
from tests.fakes.engine import EngineBench
from tests.fakes.processor import Cost
from tests.runtime.at_work import also_on, at_work

NAMES = ("a", "b", "c")


def bench_with_a_card(budget: int, takes: int) -> tuple[EngineBench, DeviceMemory]:
    """Three models that serve on a card, where each takes as much; the machine's own memory has room for all."""
    bench = EngineBench(budget=10_000, workers=2, other_kind="card")
    used: dict[str, int] = {}
    memory = DeviceMemory(lambda: None, lambda: sum(used.values()), budget)
    load, unload = bench.other.load, bench.other.unload

    async def loaded(form: PreparedForm) -> Any:
        async def begin() -> Any:
            handle = await load(form)
            used[form.build_id] = takes
            return handle

        return await memory.load(form, begin)

    async def unloaded(handle: Any) -> None:
        await unload(handle)
        used.pop(handle.build_id)
        memory.left(handle)

    patches: dict[str, Callable[..., Awaitable[Any]] | DeviceMemory] = {
        "load": loaded,
        "unload": unloaded,
        "device_memory": memory,
    }
    for name, value in patches.items():
        setattr(bench.other, name, value)
    for name in NAMES:
        bench.add({name: Cost(run_ms=20, load_ms=5)}, name=name)
        also_on(bench, "card", 5, f"t/{name}", load_ms=5)
    bench.follow_kinds()
    assert bench.member.device_memory is memory
    memory.unload = bench.memory.unload
    bench.member.serve()
    return bench, memory


@story
async def test_requests_of_three_models_are_answered_on_a_card_that_holds_two() -> None:
    """One after the other and all at once; a build leaves the card after its last run."""
    bench, memory = bench_with_a_card(budget=100, takes=40)
    async with at_work(bench):
        for name in NAMES:
            await bench.infer(1.0, f"t/{name}")
        assert memory.held_bytes == 80
        status = bench.member.status()
        assert (status.memory_used_bytes, status.memory_budget_bytes) == (80, 100)
        assert bench.other.unloads[bench.build("a", "t/a")] == 1
        await asyncio.gather(*(bench.infer(1.0, f"t/{name}") for _ in range(5) for name in NAMES))
    assert memory.held_bytes <= 100
    assert len(bench.other.ran) == 18


@story
async def test_parts_that_do_not_fit_a_device_together_evict_no_build() -> None:
    """Each of them would fit alone. No part is loaded, and the build that serves there stays."""
    bench, memory = bench_with_a_card(budget=100, takes=40)
    parts = {(at, "card"): f"c.{at}@card" for at in range(3)}
    bench.source.sizes = dict.fromkeys(parts.values(), 30)
    loader = Loader(bench.source, bench.group, {"c.p@card": parts}.get)
    loader.checks.append(bench.member.check_room)
    async with at_work(bench):
        await bench.infer(1.0, "t/a")
        with pytest.raises(LoadFailed, match="117 bytes of the device's memory, of which builds may take 100"):
            await loader.load("c.p@card")
        assert bench.memory.is_resident(bench.build("a", "t/a"))
        assert (memory.held_bytes, set(bench.other.loads)) == (40, {bench.build("a", "t/a")})
