"""Brings a build from the store onto its processor and takes it off again. Knows no budget: that is `memory`'s."""

from typing import Any

from appliance.domain.errors import ApplianceError, LoadFailed
from appliance.runtime.ports import Processor, VariantSource


class Loader:
    """Finds the prepared form of a build and hands it to the processor."""

    def __init__(self, source: VariantSource, processor: Processor) -> None:
        self._source = source
        self._processor = processor

    async def load(self, build_id: str) -> Any:
        """The processor's handle. Raises: LoadFailed, whatever went wrong below."""
        try:
            return await self._processor.load(await self._source.open_build(build_id))
        except ApplianceError:
            raise
        except Exception as error:
            raise LoadFailed(build_id=build_id, reason=f"{type(error).__name__}: {error}"[:300]) from error

    async def wake(self, build_id: str, handle: Any) -> None:
        """Bring the pages of a build that sleeps back. Raises: LoadFailed, whatever went wrong below."""
        try:
            await self._processor.wake(handle)
        except ApplianceError:
            raise
        except Exception as error:
            raise LoadFailed(build_id=build_id, reason=f"{type(error).__name__}: {error}"[:300]) from error

    def can_sleep(self, handle: Any) -> bool:
        """Whether the build can keep its session without the pages of its weights."""
        return self._processor.can_sleep(handle)

    async def sleep(self, handle: Any) -> int:
        """Give the pages back, and return the bytes that it keeps."""
        return await self._processor.sleep(handle)

    async def read_ahead(self, handle: Any) -> None:
        """Have the file of a build that sleeps read into the page cache."""
        await self._processor.read_ahead(handle)

    def wake_ns(self, handle: Any) -> int:
        """How long a wake is expected to take now."""
        return self._processor.wake_ns(handle)

    async def unload(self, handle: Any) -> None:
        """Drop the build; returns when its memory is back."""
        await self._processor.unload(handle)
