"""The memory of a device that has its own: a domain beside the machine's, with a budget of its own.

The ledger of the machine counts what a build takes in the machine's memory; what it takes on the device is known when
it has been loaded there, by how much more of the device was taken then. Where the budget does not suffice for one more,
whoever was used longest ago leaves, with its last run.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from appliance.domain.errors import LoadFailed
from appliance.domain.hardware import PreparedForm

ASSUMED = 1.3
"""What a build takes before it has been loaded once: so many times its file."""
CONTEXT_BYTES = 512 << 20
"""What the driver and its libraries take of the device besides, of a budget that was not set."""


@dataclass(slots=True)
class _Held:
    handle: Any
    build_id: str
    size_bytes: int


class DeviceMemory:
    """Event-loop thread only; loads go one at a time, so that each is seen by itself."""

    def __init__(
        self, total_bytes: Callable[[], int | None], used_bytes: Callable[[], int | None], budget_bytes: int | None
    ) -> None:
        """`total_bytes` and `used_bytes` of the device, None where nobody tells. `budget_bytes` None: what the device
        has, without a share for its driver; no limit where that is not known.
        """
        self._total_bytes = total_bytes
        self._used_bytes = used_bytes
        self._set_bytes = budget_bytes
        self._device_bytes: int | None = None
        """Asked once: it stays what it is."""
        self._held: dict[int, _Held] = {}
        """By identity of the handle, the one used longest ago first."""
        self._seen: dict[str, int] = {}
        """Build → what it took at its last load."""
        self._turn = asyncio.Lock()
        self.unload: Callable[[str], Awaitable[None]] = _nobody
        """Has a build leave, by id, with its last run."""

    @property
    def budget_bytes(self) -> int | None:
        """What builds may take together."""
        if self._set_bytes is not None:
            return self._set_bytes
        if self._device_bytes is None:
            self._device_bytes = self._total_bytes()
        return None if self._device_bytes is None else max(0, self._device_bytes - CONTEXT_BYTES)

    @property
    def held_bytes(self) -> int:
        """What they take."""
        return sum(one.size_bytes for one in self._held.values())

    async def load(self, form: PreparedForm, begin: Callable[[], Awaitable[Any]]) -> Any:
        """What `begin` loads, once there is room for it. Raises: LoadFailed, and what `begin` raises."""
        async with self._turn:
            wanted = self._wanted_bytes(form)
            await self._make_room(form.build_id, wanted)
            before = self._used_bytes()
            handle = await begin()
            after = self._used_bytes()
            taken = wanted if before is None or after is None else max(after - before, form.size_bytes)
            self._seen[form.build_id] = taken
            self._held[id(handle)] = _Held(handle, form.build_id, taken)
            await self._have_leave(0, {form.build_id})  # it may have taken more than its file told
            return handle

    def check(self, forms: Sequence[PreparedForm]) -> None:
        """Raises: LoadFailed where builds that are to be here together would take more than all may, before anybody
        leaves for them.
        """
        budget = self.budget_bytes
        wanted = sum(self._wanted_bytes(form) for form in forms)
        if budget is not None and wanted > budget:
            raise _too_large(forms[0].build_id, wanted, budget)

    def _wanted_bytes(self, form: PreparedForm) -> int:
        return self._seen.get(form.build_id, int(ASSUMED * form.size_bytes))

    def used(self, handle: Any) -> None:
        """It runs now."""
        held = self._held.pop(id(handle), None)
        if held is not None:
            self._held[id(handle)] = held

    def left(self, handle: Any) -> None:
        """It has been unloaded."""
        self._held.pop(id(handle), None)

    async def _make_room(self, build_id: str, wanted: int) -> None:
        """Raises: LoadFailed."""
        budget = self.budget_bytes
        fits = budget is None or (wanted <= budget and await self._have_leave(wanted, set()))
        if not fits:
            raise _too_large(build_id, wanted, budget)

    async def _have_leave(self, wanted: int, staying: set[str]) -> bool:
        """Have builds leave until there is room for so many bytes; whether there is."""
        budget = self.budget_bytes
        while budget is not None and self.held_bytes + wanted > budget:
            longest = next((one for one in self._held.values() if one.build_id not in staying), None)
            if longest is None:
                return False
            staying.add(longest.build_id)  # asked once: where nobody knows it, it stays
            await self.unload(longest.build_id)
        return True


def _too_large(build_id: str, wanted: int, budget: int | None) -> LoadFailed:
    told = f"{wanted} bytes of the device's memory, of which builds may take {budget}"
    return LoadFailed(build_id=build_id, reason=f"it needs {told}")


async def _nobody(_: str) -> None:
    """Nobody unloads: what is there stays."""
