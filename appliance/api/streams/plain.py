"""Frames of a session that come as plain requests: what their headers say, and what their answers do.

`X-Session`, `X-Frame` and `X-Capture-Age-Ms` on the way in, `Session-Plan` on the way out.
"""

import math
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace

from appliance.api.auth.keyring import Principal
from appliance.api.box import ServingBox
from appliance.api.streams.offset import TIME_MS_MAX
from appliance.api.streams.sessions import session_of
from appliance.domain.catalogue import Application
from appliance.domain.errors import BadInput, BadMedia, Busy, CreditExceeded, FrameDropped, TooLarge
from appliance.domain.pipeline import Pipeline
from appliance.domain.session import DropCause, FrameHead
from appliance.runtime.sessions.frame import Frame, FrameResult
from appliance.runtime.sessions.live import LiveSession

SESSION, FRAME, CAPTURE_AGE = b"x-session", b"x-frame", b"x-capture-age-ms"
SESSION_PLAN = "Session-Plan"
"""A dictionary of RFC 9651."""
_NEVER_NS = 0
_FRAME = re.compile(rb"[0-9]{1,16}")


def session_in(
    box: ServingBox, principal: Principal, headers: Mapping[bytes, bytes], target: Application | Pipeline
) -> LiveSession:
    """The session that a request to this application, or pipeline, belongs to. Raises: UnknownSession, BadInput."""
    live = session_of(box, principal, headers[SESSION].decode("latin-1"))
    is_pipeline = isinstance(target, Pipeline)
    if target.id != (live.session.pipeline_id if is_pipeline else live.session.application_id):
        what = "pipeline" if is_pipeline else "application"
        raise BadInput(reason=f"X-Session: this session is not of the {what} {target.name!r}")
    return live


def head_of(headers: Mapping[bytes, bytes], arrived_ns: int, body_bytes: int | None) -> FrameHead:
    """What stands in the headers of a frame. Raises: BadInput."""
    number = headers.get(FRAME, b"")
    if not _FRAME.fullmatch(number) or int(number) > 2**53:
        raise BadInput(reason="X-Frame: must be the number of the frame, a whole one from 0 on")
    age_ms = _age_ms(headers.get(CAPTURE_AGE))
    is_known = age_ms is None or abs(age_ms) < TIME_MS_MAX
    return FrameHead(
        frame=int(number),
        arrived_ns=arrived_ns,
        captured_ns=None if is_known else _NEVER_NS,  # of no time at all: so long ago that it has expired
        age_ms=age_ms if is_known else None,
        body_bytes=body_bytes or None,
    )


def _age_ms(text: bytes | None) -> float | None:
    if text is None:
        return None
    try:
        return float(text)
    except ValueError:
        raise BadInput(reason="X-Capture-Age-Ms: must be a number of milliseconds") from None


@contextmanager
def begun(box: ServingBox, live: LiveSession, head: FrameHead, length: int | None) -> Iterator[Frame]:
    """A frame that comes in a request with a body of `length` bytes (None: not said), as long as that is in memory: all
    pictures of a session take at most what two of the largest do, repeats counted.

    Raises: as `Sessions.frame_begins`; TooLarge, and CreditExceeded where there is no room, both counted as dropped.
    """
    limit_bytes = box.frame_bytes_max
    if length is not None and length > limit_bytes:
        with suppress(FrameDropped):
            box.sessions.frame_begins(live, head, DropCause.BAD_MEDIA)
        raise TooLarge(what="the frame", limit_bytes=limit_bytes)
    frame = box.sessions.frame_begins(live, head)
    count = limit_bytes if length is None else length
    if not live.holding.has_room(count, limit_bytes):
        if not frame.is_repeat:
            frame.drop(DropCause.CREDIT)
        raise CreditExceeded(credit=live.credit, frame=head.frame)
    with live.holding.posted(count):
        yield frame


@contextmanager
def coming(frame: Frame) -> Iterator[None]:
    """While its body is read: one that is too large, empty or finds no room is dropped, one that does not come lost."""
    try:
        yield
    except (TooLarge, BadMedia, Busy) as error:
        frame.refused(error)
        raise
    except BaseException:
        frame.lost()
        raise


def answer_of(result: FrameResult) -> bytes:
    """The answer of a frame. Raises: why there is none."""
    if result.body is not None:
        return result.body
    if result.error is not None:
        raise replace(result.error)  # raised itself, the one that is kept would keep what the callers hold
    raise FrameDropped(frame=result.frame, cause=str(result.cause or result.end))


def plan_header(box: ServingBox, live: LiveSession) -> dict[str, str]:
    """What to send next, where the session has a plan."""
    plan = live.plan
    if plan is None:
        return {}
    following, wait_ms = live.next_due(box.clock.now_ns())
    numbers = {"size": plan.size, "quality": plan.quality, "next": following, "wait_ms": math.ceil(wait_ms)}
    members = [f"{name}={value}" for name, value in numbers.items() if value is not None]
    if plan.variant:
        members.append(f'variant="{plan.variant}"')
    return {SESSION_PLAN: ", ".join(members)}
