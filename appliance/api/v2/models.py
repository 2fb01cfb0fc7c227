"""The models of `/v2`: what they take and give, whether they are ready, and the repository extension that loads and unloads them."""

from collections.abc import Mapping
from typing import Any

from appliance.api.auth.keyring import Principal
from appliance.api.box import Box
from appliance.api.v2.names import managed, model_and_version, resolve, variant_of
from appliance.domain.errors import ModelUnavailable


async def metadata(box: Box, principal: Principal, parts: list[str], _: Mapping[str, Any]) -> Any:
    name, version = model_and_version(parts)
    application = resolve(box, principal, name)
    variant = variant_of(box, application, version)
    entry = box.catalogue.entry(application.id)
    return {
        "name": name,
        "versions": sorted(entry.servables),
        "platform": "onnxruntime_onnx",
        "inputs": [{"name": t.name, "datatype": t.datatype, "shape": t.shape} for t in variant.inputs],
        "outputs": [{"name": t.name, "datatype": t.datatype, "shape": t.shape} for t in variant.outputs],
    }


async def config(box: Box, principal: Principal, parts: list[str], _: Mapping[str, Any]) -> Any:
    name, version = model_and_version(parts[:-1])
    application = resolve(box, principal, name)
    variant = variant_of(box, application, version)
    return {
        "name": name,
        "platform": "onnxruntime_onnx",
        "backend": "onnxruntime",
        "max_batch_size": 0,
        "input": [{"name": t.name, "data_type": f"TYPE_{t.datatype}", "dims": t.shape} for t in variant.inputs],
        "output": [{"name": t.name, "data_type": f"TYPE_{t.datatype}", "dims": t.shape} for t in variant.outputs],
    }


async def ready(box: Box, principal: Principal, parts: list[str], _: Mapping[str, Any]) -> Any:
    name, version = model_and_version(parts[:-1])
    application = resolve(box, principal, name)
    if not box.availability.is_open(application):
        raise ModelUnavailable(name=name)
    variant_of(box, application, version)
    return {"name": name, "ready": True}


async def index(box: Box, principal: Principal, _: list[str], parameters: Mapping[str, Any]) -> Any:
    rows = []
    for application in box.catalogue.visible(principal.tenant):
        if not principal.may_call(application.name):
            continue
        is_ready = box.availability.is_open(application)
        state, reason = ("READY", "") if is_ready else ("UNAVAILABLE", "unloaded, or no variant is servable yet")
        versions = sorted(box.catalogue.entry(application.id).servables) if is_ready else [""]
        rows += [{"name": application.name, "version": v, "state": state, "reason": reason} for v in versions]
    return [row for row in rows if row["state"] == "READY"] if parameters.get("ready") is True else rows


async def load(box: Box, principal: Principal, parts: list[str], _: Mapping[str, Any]) -> Any:
    await box.availability.load(managed(box, principal, parts[2]))
    return {}


async def unload(box: Box, principal: Principal, parts: list[str], _: Mapping[str, Any]) -> Any:
    await box.availability.unload(managed(box, principal, parts[2]))
    return {}
