"""What the box says of a session, in the messages of a stream."""

import json
from typing import Any

from appliance.api.http.problems import plain_problem, problem_response
from appliance.clock import NS_PER_MS
from appliance.domain.accuracy import share
from appliance.domain.session import DropCause, Notice, SessionPlan
from appliance.runtime.sessions.frame import FrameResult
from appliance.runtime.sessions.live import LiveSession
from appliance.tasks.pictures import kind_of
from appliance.wire.stream import (
    ErrorMessage,
    Message,
    Picture,
    PlanMessage,
    ResultMessage,
    StageVariant,
    write_message,
)
from appliance.wire.stream import Notice as NoticeMessage


def said(message: Message) -> bytes:
    """A message as it is sent."""
    return write_message(message).encode()


def plan_fields(plan: SessionPlan, live: LiveSession, now_ns: int) -> dict[str, Any]:
    """What a device is told of a plan, by field, with times from now on."""
    following, wait_ms = live.next_due(now_ns)
    return {
        "number": plan.number,
        "variant": plan.variant,
        "size": plan.size,
        "quality": plan.quality,
        "interval": plan.interval,
        "frames": plan.frames,
        "next": following,
        "wait_ms": round(wait_ms, 3),
        "valid_ms": round(max(0, plan.valid_until_ns - now_ns) / NS_PER_MS, 3),
        "accuracy": None if plan.accuracy is None else share(plan.accuracy),
        "expected_drop": plan.expected_drop,
        "stages": stages_of(plan),
    }


def stages_of(plan: SessionPlan) -> list[dict[str, Any]] | None:
    """What answers at the stages of a pipeline; None: there are none."""
    rows = [
        {
            "stage": one.stage,
            "variant": one.variant,
            "accuracy": None if one.accuracy is None else share(one.accuracy),
        }
        for one in plan.stages
    ]
    return rows or None


def plan_of(plan: SessionPlan, live: LiveSession, now_ns: int) -> PlanMessage:
    """A plan for the device that follows it."""
    return PlanMessage(**plan_fields(plan, live, now_ns), credit=live.credit)


def notice_of(notice: Notice) -> NoticeMessage:
    """What a device is told beside its plan."""
    plan = notice.plan
    stages = None if plan is None else stages_of(plan)
    return NoticeMessage(
        kind=notice.kind,
        state=notice.state,
        variant=None if plan is None else plan.variant,
        accuracy=None if plan is None or plan.accuracy is None else share(plan.accuracy),
        stages=None if stages is None else [StageVariant(**one) for one in stages],
        reason=notice.reason,
    )


def end_of(result: FrameResult) -> tuple[bytes, bytes | None]:
    """How a frame ended: a result, or an error where what was sent is no picture; and the binary message that follows,
    where the answer is a picture. The answer is not parsed.
    """
    cause = None if result.cause is None else str(result.cause)
    if result.cause is DropCause.BAD_MEDIA and result.error is not None:
        return said(ErrorMessage(problem=problem_of(result.error), frame=result.frame, outcome=result.end)), None
    kind = None if result.body is None else kind_of(result.body)
    if kind is not None and result.body is not None:
        picture = Picture(media_type=kind, bytes=len(result.body))
        head = ResultMessage(frame=result.frame, outcome=result.end, cause=cause, picture=picture)
        return said(head), result.body
    text = said(ResultMessage(frame=result.frame, outcome=result.end, cause=cause))
    return (text if result.body is None else b'%b,"answer":%b}' % (text[:-1], result.body)), None


def problem_of(error: Exception) -> dict[str, object]:
    """The document that a request gets."""
    return _read(problem_response(error)[2])


def plain_problem_of(slug: str, detail: str) -> dict[str, object]:
    """That of what the domain does not know."""
    return _read(plain_problem(slug, detail, "")[1])


def _read(document: bytes) -> dict[str, object]:
    members: dict[str, object] = json.loads(document)
    return members
