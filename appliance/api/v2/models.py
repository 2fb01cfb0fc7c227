"""The models of `/v2`: what they take and give, whether they are ready, and the repository extension that loads and
unloads them.
"""

from collections.abc import Mapping
from typing import Any

import orjson

from appliance.api.auth.keyring import Principal
from appliance.api.auth.named import callable_application
from appliance.api.box import ServingBox
from appliance.api.v2.names import managed, model_and_version, servable_variants, variant_of
from appliance.clock import NS_PER_US
from appliance.domain.catalogue import Application, TensorSpec, Variant
from appliance.domain.errors import ModelUnavailable

_CONFIG_TYPES = {"BYTES": "TYPE_STRING"}
"""Words of the model configuration that are not `TYPE_` and the protocol's own word."""


async def metadata(box: ServingBox, principal: Principal, parts: list[str], _: Mapping[str, Any]) -> Any:
    name, version = model_and_version(parts)
    application = callable_application(box.catalogue, principal, name)
    variant = variant_of(box, application, version)
    versions = {str(each.number): each.name for each in servable_variants(box.catalogue.entry(application.id))}
    return {
        "name": name,
        "versions": list(versions),
        "variants": versions,
        "platform": "onnxruntime_onnx",
        "inputs": [{"name": t.name, "datatype": t.datatype, "shape": t.shape} for t in variant.inputs],
        "outputs": [{"name": t.name, "datatype": t.datatype, "shape": t.shape} for t in variant.outputs],
    }


async def config(box: ServingBox, principal: Principal, parts: list[str], _: Mapping[str, Any]) -> Any:
    name, version = model_and_version(parts[:-1])
    application = callable_application(box.catalogue, principal, name)
    variant = variant_of(box, application, version)
    task = box.catalogue.model_of(application).task
    batch_max = max_batch_size(variant)
    shown = {
        "name": name,
        "platform": "onnxruntime_onnx",
        "backend": "onnxruntime",
        "max_batch_size": batch_max,
        "input": [
            _configured(t, batch_max) | ({"optional": True} if t.name in task.supplied else {}) for t in variant.inputs
        ],
        "output": [_configured(t, batch_max) for t in variant.outputs],
    }
    if not task.state:
        return shown
    return shown | {"sequence_batching": {"max_sequence_idle_microseconds": box.sequences.idle_ns // NS_PER_US}}


def max_batch_size(variant: Variant) -> int:
    """The largest batch that was measured; 0 where the first axis of some tensor is not free, or is its only one.

    0 is the configuration's word for "shapes are complete as they stand, nothing is put before them".
    """
    shapes = [tensor.shape for tensor in (*variant.inputs, *variant.outputs)]
    if not all(len(shape) > 1 and shape[0] < 0 for shape in shapes):
        return 0
    return max((row.batch for row in variant.profile.latencies), default=1) if variant.profile else 1


def _configured(tensor: TensorSpec, batch_max: int) -> dict[str, Any]:
    """A tensor as the model configuration describes it: without the batch axis where there is one."""
    word = _CONFIG_TYPES.get(tensor.datatype, f"TYPE_{tensor.datatype}")
    return {"name": tensor.name, "data_type": word, "dims": tensor.shape[1:] if batch_max else tensor.shape}


async def ready(box: ServingBox, principal: Principal, parts: list[str], _: Mapping[str, Any]) -> Any:
    name, version = model_and_version(parts[:-1])
    application = callable_application(box.catalogue, principal, name)
    if not box.availability.is_open(application):
        raise ModelUnavailable(name=name)
    variant_of(box, application, version)
    return {"name": name, "ready": True}


async def index(box: ServingBox, principal: Principal, _: list[str], parameters: Mapping[str, Any]) -> Any:
    is_ready = parameters.get("ready") is True
    visible = [a for a in box.catalogue.visible(principal.tenant) if principal.may_call(a.name)]
    rows = (row for a in visible for row in _index_rows(box, a, only_ready=is_ready))
    return await box.turns.json_list(principal.tenant, map(orjson.dumps, rows))


def _index_rows(box: ServingBox, application: Application, *, only_ready: bool) -> list[dict[str, str]]:
    if box.availability.is_open(application):
        return [
            {
                "name": application.name,
                "version": str(each.number),
                "variant": each.name,
                "state": "READY",
                "reason": "",
            }
            for each in servable_variants(box.catalogue.entry(application.id))
        ]
    if only_ready:
        return []
    reason = "unloaded, or no variant is servable yet"
    return [{"name": application.name, "version": "", "state": "UNAVAILABLE", "reason": reason}]


async def load(box: ServingBox, principal: Principal, parts: list[str], _: Mapping[str, Any]) -> Any:
    await box.availability.load(managed(box, principal, parts[2]))
    return {}


async def unload(box: ServingBox, principal: Principal, parts: list[str], _: Mapping[str, Any]) -> Any:
    await box.availability.unload(managed(box, principal, parts[2]))
    return {}
