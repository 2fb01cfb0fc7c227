"""A second kind of processor."""

import asyncio

from appliance.domain.catalogue import Model
from appliance.domain.hardware import ProcessorDescription
from tests.modelstore.boxes import Parts

OTHER = ProcessorDescription("openvino", "openvino", 2, 1, "host", "library 2")


async def measured(box: Parts) -> Model:
    """The model once its variants were measured on the other kind."""

    async def is_so() -> bool:
        return all(one.other_profiles for one in (await box.store.models.get("default/net")).variants)

    async with asyncio.timeout(120):
        await box.settled(is_so)
    return await box.store.models.get("default/net")
