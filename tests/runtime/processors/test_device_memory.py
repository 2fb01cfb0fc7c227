"""The memory of a device that has its own: who was used longest ago leaves for who is wanted."""

import pytest

from appliance.domain.errors import LoadFailed
from appliance.domain.hardware import PreparedForm
from appliance.runtime.processors.device_memory import ASSUMED, CONTEXT_BYTES, DeviceMemory

MB = 1 << 20


class Device:
    """Builds take what is written here, in megabytes."""

    def __init__(self, budget_mb: int | None, takes: dict[str, int], total_mb: int | None = 1000) -> None:
        self.takes = takes
        self.used_bytes = 300 * MB
        self.loaded: dict[str, list[str]] = {}
        self.unloaded: list[str] = []
        self.memory = DeviceMemory(
            lambda: None if total_mb is None else total_mb * MB,
            lambda: None if total_mb is None else self.used_bytes,
            None if budget_mb is None else budget_mb * MB,
        )
        self.memory.unload = self.unload

    async def load(self, name: str, size_mb: int = 1) -> list[str]:
        async def begin() -> list[str]:
            self.used_bytes += self.takes[name] * MB
            return [name]

        handle: list[str] = await self.memory.load(PreparedForm(name, "", size_mb * MB, True), begin)
        self.loaded[name] = handle
        return handle

    async def unload(self, name: str) -> None:
        self.unloaded.append(name)
        if name in self.loaded:
            self.used_bytes -= self.takes[name] * MB
            self.memory.left(self.loaded.pop(name))


@pytest.mark.anyio
async def test_longest_unused_build_leaves_a_full_device_memory() -> None:
    """By what a build was seen to take, at a first load by its file."""
    device = Device(100, {"a": 40, "b": 40, "c": 40})
    first = await device.load("a", 30)
    await device.load("b", 30)
    assert device.memory.held_bytes == 80 * MB
    device.memory.used(first)
    await device.load("c", 30)
    assert device.unloaded == ["b"]
    await device.load("b", 1)  # known to take 40
    assert device.unloaded == ["b", "a"]
    assert device.memory.held_bytes == 80 * MB


@pytest.mark.anyio
async def test_build_that_never_fits_into_device_memory_is_refused() -> None:
    """The error says so, and no build leaves for it."""
    device = Device(100, {"a": 40, "b": 200})
    await device.load("a")
    with pytest.raises(LoadFailed, match="of the device's memory, of which builds may take 104857600"):
        await device.load("b", 100)
    assert device.unloaded == []


@pytest.mark.anyio
async def test_build_that_does_not_leave_device_memory_is_asked_once() -> None:
    """A ledger that does not know the build leaves it there: the load fails, and does not turn for ever."""
    device = Device(100, {"a": 80, "b": 80})
    await device.load("a", 70)
    device.loaded.clear()
    with pytest.raises(LoadFailed):
        await device.load("b", 70)
    assert device.unloaded == ["a"]


@pytest.mark.anyio
async def test_failed_load_holds_no_device_memory() -> None:
    device = Device(100, {"a": 10})
    with pytest.raises(KeyError):
        await device.load("b")
    await device.load("a")
    assert device.memory.held_bytes == 10 * MB


@pytest.mark.anyio
async def test_device_memory_budget_is_as_set_or_the_devices_less_the_driver() -> None:
    """What was set, else the device's without its driver's share; without either there is no limit, and a build counts
    by its file.
    """
    assert Device(100, {}).memory.budget_bytes == 100 * MB
    assert Device(None, {}, 2000).memory.budget_bytes == 2000 * MB - CONTEXT_BYTES
    unknown = Device(None, {"a": 5}, None)
    assert unknown.memory.budget_bytes is None
    await unknown.load("a", 10)
    assert unknown.memory.held_bytes == int(ASSUMED * 10 * MB)
