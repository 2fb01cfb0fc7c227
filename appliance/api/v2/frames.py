"""Frames of sessions that come as infer requests: tensors in place of a picture, the session's deadline and variant."""

import struct
from collections.abc import Mapping

from appliance.api.auth.keyring import Principal
from appliance.api.auth.named import callable_application
from appliance.api.box import ServingBox
from appliance.api.http.limits import Receive
from appliance.api.streams.plain import answer_of, begun, coming, head_of, plan_header, session_in
from appliance.api.v2.infer import call_of, encoded, made_of
from appliance.api.v2.messages import BINARY, JSON, Answer, content_length, error_answer, json_length, whole_body
from appliance.api.v2.names import model_and_version
from appliance.api.v2.tensors import Body
from appliance.domain.errors import ApplianceError, BadTensor
from appliance.runtime.serving.eager import in_task
from appliance.runtime.sessions.frame import FrameCall

_JSON_BYTES = struct.Struct("<q")
"""What an answer is kept with: the length of its JSON before binary tensors, -1 where it has none."""


async def infer_frame(
    box: ServingBox,
    principal: Principal,
    parts: list[str],
    headers: Mapping[bytes, bytes],
    receive: Receive,
    small: Body | None = None,
    source: int = 0,
) -> Answer:
    """As `infer`, of a request with `X-Session`. Whatever comes of it, the answer says what to send next."""
    await in_task()
    name, version = model_and_version(parts[:-1])
    application = callable_application(box.catalogue, principal, name)
    live = session_in(box, principal, headers, application)
    arrival_ns = box.clock.now_ns()

    async def work(call: FrameCall) -> bytes:
        asked = await call_of(box, application, principal.tenant, version, body, json_length(headers), held)
        if asked.shared is not None:
            raise BadTensor(reason="the tensors of a frame come with it, and not by shared memory")
        request = made_of(box, application, principal, version, asked, arrival_ns, source)
        request.deadline_ns = call.deadline_ns
        if request.variant is None:
            request.variant = call.variant
        else:  # what memory refuses, and what is shown, is of this one
            frame.runs_on(request.variant)
        request.is_frame, request.slot, request.priority = True, call.slot(), call.priority
        try:
            result = await box.engine.infer(request)
        finally:
            frame.began(request)
        call.ran(result.variant)
        _, made, text = await encoded(box, application, principal.tenant, asked, name, result)
        lengths = [int(value) for key, value in made if key == b"inference-header-content-length"]
        return _JSON_BYTES.pack(lengths[0] if lengths else -1) + text

    with box.in_flight.body(principal.tenant) as held:
        try:
            length = content_length(headers) if small is None else len(small)
            with begun(box, live, head_of(headers, arrival_ns, length), length or None) as frame:  # 0: not said
                with coming(frame):
                    body = (
                        await whole_body(receive, length, box.frame_bytes_max, held, json_length(headers) or 0)
                        if small is None
                        else small
                    )
                    frame.received(bytes(body))
                result = await frame.run(work)
                box.wall.session_frame(live, result)
                answer = _kept(answer_of(result))
        except ApplianceError as error:
            answer = error_answer(error)
    answer[1].extend((key.lower().encode(), value.encode()) for key, value in plan_header(box, live).items())
    return answer


def _kept(answer: bytes) -> Answer:
    (json_bytes,) = _JSON_BYTES.unpack_from(answer)
    text = answer[_JSON_BYTES.size :]
    if json_bytes < 0:
        return 200, [JSON], text
    return 200, [BINARY, (b"inference-header-content-length", b"%d" % json_bytes)], text
