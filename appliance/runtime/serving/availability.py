"""Which applications may be called, and what people order that changes it: load, unload, delete.

What is taken out of service first answers those who are inside, so requests under way are counted here.
"""

import asyncio
from collections.abc import Callable

from appliance.domain.catalogue import Application
from appliance.domain.errors import ApplianceError, ModelUnavailable, ShuttingDown
from appliance.runtime.catalogue import Catalogue, Entry
from appliance.runtime.memory.manager import MemoryManager
from appliance.runtime.residency.loop import ResidencyLoop
from appliance.runtime.serving.placement import Placement
from appliance.runtime.serving.sequences import Sequences
from appliance.runtime.telemetry import Telemetry


class Availability:
    """Takes applications in and out of service. Event-loop thread only."""

    def __init__(
        self,
        *,
        catalogue: Catalogue,
        memory: MemoryManager,
        placement: Placement,
        sequences: Sequences,
        residency: ResidencyLoop,
        telemetry: Telemetry,
    ) -> None:
        self._catalogue = catalogue
        self._memory = memory
        self._placement = placement
        self._sequences = sequences
        self._telemetry = telemetry
        self._residency = residency
        self._unloaded: set[str] = set()
        """Applications that somebody unloaded, by id."""
        self._running: dict[str, int] = {}
        """Requests under way by model id, where there are any."""
        self.begun = 0
        """Requests since the start."""
        self._changed = asyncio.Event()
        self.is_closing = False
        """The box shuts down: nothing new may begin."""

    # -- the inference path --------------------------------------------------------------------------------------------

    def entry(self, application_id: str) -> Entry:
        """What serves an application. Raises: ShuttingDown, ModelUnavailable."""
        if self.is_closing:
            raise ShuttingDown()
        entry = self._catalogue.entry(application_id)
        if application_id in self._unloaded:
            raise ModelUnavailable(name=entry.application.name)
        return entry

    def begin(self, model_id: str) -> None:
        """A request of a model is under way; `end` must follow."""
        self._running[model_id] = self._running.get(model_id, 0) + 1
        self.begun += 1

    def end(self, model_id: str) -> None:
        """It has its answer."""
        left = self._running.pop(model_id) - 1
        if left:
            self._running[model_id] = left
        else:
            self._changed.set()

    def running(self) -> int:
        """Requests under way."""
        return sum(self._running.values())

    def is_open(self, application: Application) -> bool:
        """Whether it may be called: a servable variant exists (a cold load counts) and nobody unloaded it."""
        try:
            return bool(self._catalogue.entry(application.id).order) and application.id not in self._unloaded
        except ModelUnavailable:
            return False

    # -- orders --------------------------------------------------------------------------------------------------------

    async def load(self, application: Application, variant: str | None = None) -> None:
        """Undo an explicit unload and make the wanted variant resident.

        Raises: ModelUnavailable, UnknownVariant, OutOfMemory, LoadFailed.
        """
        self._open(application.id)
        self._changed.set()  # an unload that still waits for this application has nothing to wait for any more
        servable = self._placement.preferred(self._catalogue.entry(application.id), variant)
        self._memory.unpin(await self._placement.pin(servable, application.tenant))

    async def unload(self, application: Application) -> None:
        """Make the application unavailable, wait for its running requests, and unload the builds that nobody else
        uses.
        """
        entry = self._catalogue.entry(application.id)
        self._unloaded.add(application.id)
        self._residency.leave_out(application.id)
        model_id = entry.model.id
        await self._until(lambda: model_id not in self._running or self._is_model_in_use(model_id))
        used = {build for e in self._entries_open() for s in e.servables.values() for build in s.builds}
        for build in sorted({build for s in entry.servables.values() for build in s.builds} - used):
            await self._memory.unload(build)

    async def retire_model(self, model_id: str) -> None:
        """After the catalogue has forgotten a model: wait for its running requests, then unload what nobody refers
        to any more.
        """
        await self._until(lambda: model_id not in self._running)
        for build in self._memory.known_builds():
            if not self._catalogue.users_of(build):
                await self._memory.unload(build)

    def forget_application(self, application_id: str) -> None:
        """Drop what is kept of a deleted application, so that a new one of the same name starts afresh."""
        self._open(application_id)
        self._sequences.drop_application(application_id)
        self._telemetry.forget_application(application_id)

    async def prefetch(self, build_ids: list[str]) -> None:
        """Make builds resident in the background, in this order, as far as they fit without evicting; for the start
        of the box.
        """
        servables = [s for e in self._catalogue.entries() for s in e.order]
        sizes = {s.build_id: s for one in servables for s in (one, one.whole) if s is not None}
        for build_id in build_ids:
            servable = sizes.get(build_id)
            if servable is None or servable.peak_bytes > self._memory.free_bytes:
                continue
            try:
                build = await self._memory.pin(
                    build_id, servable.resident_bytes, servable.peak_bytes, None, is_urgent=False
                )
                self._memory.unpin(build)
            except ApplianceError:  # counted and announced by the memory manager; the next request tries again
                continue

    async def close(self) -> None:
        """Let nothing new begin; return when nothing is under way any more."""
        self.is_closing = True
        await self._until(lambda: not self._running)

    # -- inside --------------------------------------------------------------------------------------------------------

    def _open(self, application_id: str) -> None:
        if application_id in self._unloaded:
            self._unloaded.discard(application_id)
            self._residency.take_in(application_id)

    async def _until(self, is_met: Callable[[], bool]) -> None:
        """Return when a condition holds that the end of a request or a load may bring about."""
        while not is_met():
            self._changed.clear()
            await self._changed.wait()

    def _entries_open(self) -> list[Entry]:
        return [e for e in self._catalogue.entries() if e.application.id not in self._unloaded]

    def _is_model_in_use(self, model_id: str) -> bool:
        """Whether an available application still uses the model, so that its builds stay anyway."""
        return any(e.model.id == model_id for e in self._entries_open())
