"""Infer over `/v2`: tensors in, tensors out, with the parameters that the protocol and its extensions know."""

from collections.abc import Mapping
from typing import Any

from appliance.api.auth.keyring import Principal
from appliance.api.auth.named import callable_application
from appliance.api.box import ServingBox
from appliance.api.http.limits import HeldBody, Receive
from appliance.api.v2.classification import classified, is_slow_to_classify
from appliance.api.v2.messages import BINARY, JSON, Answer, content_length, json_length, whole_body
from appliance.api.v2.names import model_and_version, named_variant
from appliance.api.v2.shared_memory import infer_shared
from appliance.api.v2.tensors import (
    Body,
    Header,
    InferCall,
    encode_infer,
    has_long_json,
    is_slow_to_make,
    is_slow_to_write,
    make_call,
    read_header,
    scan_header,
)
from appliance.clock import NS_PER_MS, NS_PER_US
from appliance.domain.catalogue import Application
from appliance.domain.errors import BadTensor
from appliance.domain.request import Request, Result
from appliance.runtime.serving.eager import in_task
from appliance.tasks.large_json import LARGE_BYTES

UNCOUNTED_BYTES = LARGE_BYTES
"""What may be made of a small body before that is counted."""
_PRIORITY_LEVELS = 64
_TIMEOUT_US_MAX = 3_600_000_000
"""An hour, as under `/v1`; who allows more allows this much."""


async def infer(
    box: ServingBox,
    principal: Principal,
    parts: list[str],
    headers: Mapping[bytes, bytes],
    receive: Receive,
    small: Body | None = None,
    source: int = 0,
) -> Answer:
    """Read the body, run the request, and write what came of it.

    `small`: the whole body, where it is there already and no more than what a connection may keep anyway; it counts
    against nothing. `source`: a number of the connection.
    """
    name, version = model_and_version(parts[:-1])
    application = callable_application(box.catalogue, principal, name)
    arrival_ns = box.clock.now_ns()
    ahead = json_length(headers)
    if small is not None:
        header = read_header(small, ahead)
        if header.built:
            _check_built(box, application, principal.tenant, version, header)
        held = box.in_flight.body(principal.tenant) if header.built_bytes > UNCOUNTED_BYTES else None
        try:
            if held is not None:
                held.add(header.built_bytes)
            call = make_call(header, small)
            asked = (box, application, principal, version, call, arrival_ns, source)
            if call.shared is None:
                result = await box.engine.infer(made_of(*asked))
            else:
                box.engine.check(application, principal.tenant)
                variant = _variant(box, application, version)
                asking = (box, application, principal.tenant, variant, call, call.shared)
                result = await infer_shared(*asking, lambda: made_of(*asked))
        finally:
            if held is not None:
                held.release()
        return await encoded(box, application, principal.tenant, call, name, result)
    box.engine.check(application, principal.tenant)
    variant = _variant(box, application, version)
    if variant is not None:
        box.catalogue.servable(box.catalogue.entry(application.id), variant)
    with box.in_flight.body(principal.tenant) as held:
        with box.engine.announce(application, principal.tenant):
            began_cold = box.engine.wake_ahead(application, variant)
            body = await whole_body(receive, content_length(headers), box.body_bytes_max, held, ahead or 0)
            call = await call_of(box, application, principal.tenant, version, body, ahead, held)
        del body

        def request() -> Request:
            made = made_of(box, application, principal, version, call, arrival_ns, source)
            made.began_cold = began_cold
            return made

        if call.shared is None:
            result = await box.engine.infer(request())
        else:
            result = await infer_shared(box, application, principal.tenant, variant, call, call.shared, request)
    return await encoded(box, application, principal.tenant, call, name, result)


async def call_of(
    box: ServingBox,
    application: Application,
    tenant: str,
    version: str | None,
    body: Body,
    length: int | None,
    held: HeldBody,
) -> InferCall:
    """Read a body of which `held` counts the bytes; what is made of it is counted, too. Where media is worked on, when
    it takes long: the event loop is everybody's.

    Raises: BadTensor, also where no variant takes such inputs; TooLarge, Busy.
    """
    header = read_header(body, length) if not has_long_json(body, length) else None
    if header is None:
        await in_task()
        scanned = await box.media.run(application.id, tenant, None, lambda: scan_header(body, length))
        held.add(scanned.tree_bytes)
        header = await box.media.run(application.id, tenant, None, lambda: read_header(body, length, scanned))
    if header.built:
        _check_built(box, application, tenant, version, header)
        held.add(header.built_bytes)
    if not is_slow_to_make(header, body):
        return make_call(header, body)
    await in_task()
    call = await box.media.run(application.id, tenant, None, lambda: make_call(header, body))
    held.add(max(0, call.texts_bytes - header.built_bytes))
    return call


def _check_built(box: ServingBox, application: Application, tenant: str, version: str | None, header: Header) -> None:
    """Before anything is made of the data. Raises: BadTensor."""
    described = [each.described for each in header.built]
    box.engine.check_inputs(application, tenant, _variant(box, application, version), described)


def _variant(box: ServingBox, application: Application, version: str | None) -> str | None:
    return None if version is None else named_variant(box.catalogue.entry(application.id), version)


def made_of(
    box: ServingBox,
    application: Application,
    principal: Principal,
    version: str | None,
    call: InferCall,
    arrival_ns: int,
    source: int,
) -> Request:
    variant = _variant(box, application, version)
    request = Request(application.id, principal.tenant, call.inputs, arrival_ns, variant=variant, outputs=call.outputs)
    request.source = source
    if call.id:
        request.id = call.id
    if call.parameters:
        _apply(call.parameters, request)
    return request


async def encoded(
    box: ServingBox, application: Application, tenant: str, call: InferCall, name: str, result: Result
) -> Answer:
    answered = {"variant": result.variant, "evidence": result.evidence.value}
    if result.doubt:
        answered["warnings"] = result.doubt
    model = box.catalogue.model_of(application) if call.classes else None

    def write() -> tuple[bytes, int | None]:
        outputs = result.outputs
        if model is not None:
            outputs = dict(classified(outputs, call.classes, model, result.variant))
        return encode_infer(call, outputs, name, str(result.variant_number), answered)

    if is_slow_to_write(call, result.outputs) or (call.classes and is_slow_to_classify(result.outputs, call.classes)):
        await in_task()
        with box.in_flight.body(tenant) as held:
            held.take_outputs(sum(array.nbytes for array in result.outputs.values()))
            text, json_bytes = await box.media.run(application.id, tenant, None, write)
    else:
        text, json_bytes = write()
    timing = (b"server-timing", _timing(result) + (b", emulated" if box.is_emulated else b""))
    if json_bytes is None:
        return 200, [JSON, timing], text
    return 200, [BINARY, (b"inference-header-content-length", b"%d" % json_bytes), timing], text


def _timing(result: Result) -> bytes:
    """Warm or cold, and where the time inside the box went, ms, in the words of the header `Server-Timing`."""
    parts = (result.queue_ns / NS_PER_MS, result.load_ns / NS_PER_MS, result.compute_ns / NS_PER_MS)
    text = (b"warm, " if result.warm else b"cold, ") + b"queue;dur=%.3f, load;dur=%.3f, compute;dur=%.3f" % parts
    if not result.warm:
        text += b", wake;dur=%.3f" % (result.wake_ns / NS_PER_MS)
    for one in result.parts:
        where = f"{one.kind} in {one.group}".encode()
        text += b', part-%d;desc="%b";dur=%.3f' % (one.number, where, one.took_ns / NS_PER_MS)
    return text


def _apply(parameters: Mapping[str, Any], request: Request) -> None:
    """Per-request parameters: `timeout` in microseconds, `priority` (1 = most urgent, 0 = none stated), and the
    sequence extension.
    """
    timeout, priority = parameters.get("timeout"), parameters.get("priority")
    if timeout is not None:
        if type(timeout) is not int or timeout < 0:
            raise BadTensor(reason="parameters.timeout: must be a whole number of microseconds")
        if timeout:
            request.deadline_ns = request.arrival_ns + min(timeout, _TIMEOUT_US_MAX) * NS_PER_US
    if priority is not None:
        if type(priority) is not int or priority < 0:
            raise BadTensor(reason="parameters.priority: must be a whole number ≥ 0 (1 is the most urgent)")
        request.priority = max(_PRIORITY_LEVELS - priority, 0) if priority else 0
    sequence = parameters.get("sequence_id")
    if sequence not in (None, 0, ""):
        if type(sequence) not in (int, str) or len(str(sequence)) > 128:
            raise BadTensor(reason="parameters.sequence_id: must be a number or a string of at most 128 characters")
        request.sequence_id = str(sequence)
        request.sequence_start = parameters.get("sequence_start") is True
        request.sequence_end = parameters.get("sequence_end") is True
