"""A second kind of processor."""

from appliance.domain.catalogue import Model
from appliance.domain.hardware import ProcessorDescription
from tests.modelstore.boxes import Parts

OTHER = ProcessorDescription("openvino", "openvino", 2, 1, "host", "library 2")


async def measured(box: Parts) -> Model:
    """The model once its variants were measured on the other kind."""
    return await box.model_once(lambda one: one.other_profiles)
