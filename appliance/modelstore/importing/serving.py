"""Builds as serving opens them: damage that a load finds is written down, so that people see which variant needs to
be uploaded again.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from appliance.domain.errors import ContentDamaged
from appliance.domain.hardware import PreparedForm
from appliance.domain.names import owner_of
from appliance.log import get as get_log
from appliance.modelstore.importing.prepared import Builds

if TYPE_CHECKING:
    from appliance.modelstore.store.models import Models

log = get_log("store")


class ServedBuilds:
    """Port `VariantSource` over the table of builds."""

    def __init__(self, builds: Builds, models: "Callable[[], Awaitable[Models]]") -> None:
        """`models`: the store's, which is made after the first builds are served."""
        self._builds = builds
        self._models = models

    async def open_build(self, build_id: str) -> PreparedForm:
        """As `Builds.open_build`; a build of a guard is the same file. Raises: LoadFailed."""
        shared, tenant = owner_of(build_id)
        try:
            form = await self._builds.open_build(shared)
            return replace(form, build_id=build_id, guarded_for=tenant)
        except ContentDamaged as damage:
            log.error("content damaged", sha256=damage.build_id)
            models = await self._models()
            has_form = await asyncio.to_thread(self._builds.has_sound_form, damage.build_id)
            await models.mark_damaged(damage.build_id, damage.reason, has_form=has_form)
            raise

    def distrust(self, build_id: str) -> None:
        """As `Builds.distrust`."""
        self._builds.distrust(owner_of(build_id)[0])
