"""Brings a build from the store onto its processor and takes it off again. Knows no budget: that is `memory`'s."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from appliance.domain.errors import ApplianceError, LoadFailed
from appliance.domain.hardware import PreparedForm
from appliance.runtime.ports import Processor, VariantSource

PartsOf = Callable[[str], Mapping[tuple[int, str], str] | None]
"""Gives the builds of parts that are in memory as one, by number and kind of processor; None: it is none of several."""

Check = Callable[[Sequence[PreparedForm]], None]
"""Asked before parts are loaded that are to be in memory together. Raises: LoadFailed where they cannot be."""


@dataclass(frozen=True, slots=True)
class LoadedParts:
    """The handle of parts of a network that are in memory as one build: the processor's of each, by number and kind."""

    build_id: str
    builds: Mapping[tuple[int, str], str]
    """Their own."""
    handles: dict[tuple[int, str], Any] = field(default_factory=dict)


class Loader:
    """Finds the prepared form of a build and hands it to the processor; of parts that serve together each."""

    def __init__(self, source: VariantSource, processor: Processor, parts_of: PartsOf = lambda build_id: None) -> None:
        self._source = source
        self._processor = processor
        self._parts_of = parts_of
        self._holders: dict[str, str] = {}
        """Build of a part that is in memory → the build that it came with."""
        self.checks: list[Check] = []

    async def load(self, build_id: str) -> Any:
        """The processor's handle. Raises: LoadFailed, whatever went wrong below."""
        parts = self._parts_of(build_id)
        try:
            if parts is None:
                return await self._processor.load(await self._source.open_build(build_id))
            return await self._load_parts(build_id, parts)
        except ApplianceError:
            raise
        except Exception as error:
            raise LoadFailed(build_id=build_id, reason=f"{type(error).__name__}: {error}"[:300]) from error

    async def _load_parts(self, build_id: str, parts: Mapping[tuple[int, str], str]) -> LoadedParts:
        """One after the other, so that no more than one of them is at its peak."""
        loaded = LoadedParts(build_id, parts)
        forms = {key: await self._source.open_build(part) for key, part in parts.items()}
        for check in self.checks:
            check(list(forms.values()))
        try:
            for key, form in forms.items():
                loaded.handles[key] = await self._processor.load(form)
                self._holders[parts[key]] = build_id  # at once: its processor may go while the others are loaded
        except BaseException:
            with suppress(Exception):  # what went wrong first says why
                await self.unload(loaded)
            raise
        return loaded

    def holder_of(self, build_id: str) -> str:
        """The build in memory, or on its way there, that this one is, or came with as a part."""
        return self._holders.get(build_id, build_id)

    async def wake(self, build_id: str, handle: Any) -> None:
        """Bring the pages of a build that sleeps back. Raises: LoadFailed, whatever went wrong below."""
        try:
            for each in handles_of(handle):
                await self._processor.wake(each)
        except ApplianceError:
            raise
        except Exception as error:
            raise LoadFailed(build_id=build_id, reason=f"{type(error).__name__}: {error}"[:300]) from error

    def can_sleep(self, handle: Any) -> bool:
        """Whether the build can keep its session without the pages of its weights."""
        return all(self._processor.can_sleep(each) for each in handles_of(handle))

    async def sleep(self, handle: Any) -> int:
        """Give the pages back, and return the bytes that it keeps."""
        return sum([await self._processor.sleep(each) for each in handles_of(handle)])

    async def read_ahead(self, handle: Any) -> None:
        """Have the file of a build that sleeps read into the page cache."""
        for each in handles_of(handle):
            await self._processor.read_ahead(each)

    def wake_ns(self, handle: Any) -> int:
        """How long a wake is expected to take now."""
        return sum(self._processor.wake_ns(each) for each in handles_of(handle))

    async def unload(self, handle: Any) -> None:
        """Drop the build; returns when its memory is back. Raises what the last one does that fails."""
        if isinstance(handle, LoadedParts):
            for part in handle.builds.values():
                if self._holders.get(part) == handle.build_id:  # else others have come with it meanwhile
                    del self._holders[part]
        failure: Exception | None = None
        for each in handles_of(handle):
            try:
                await self._processor.unload(each)
            except Exception as error:
                failure = error
        if failure is not None:
            raise failure


def handles_of(handle: Any) -> list[Any]:
    """The processor's handles that the handle of a build stands for: one, or one of each part."""
    return list(handle.handles.values()) if isinstance(handle, LoadedParts) else [handle]
