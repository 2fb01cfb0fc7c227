"""The live wall: the last frame of each stream of a tenant, while a viewer looks.

A frame is kept only where the tenant allows viewers and one of them has looked within `LOOK_S`. It is kept in memory
only, one frame for each stream, within bounds. `LOOK_S` after the last look all frames of the tenant are forgotten.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from appliance.api.auth.keyring import Principal
from appliance.clock import NS_PER_MS, NS_PER_S, NS_PER_US, Clock
from appliance.domain.catalogue import DEFAULT_TENANT, WallViewers
from appliance.domain.session import DropCause, FrameEnd
from appliance.domain.states import SessionState
from appliance.runtime.engine.portions import Portions
from appliance.runtime.sessions.frame import FrameResult
from appliance.runtime.sessions.live import LiveSession
from appliance.tasks.pictures import kind_of
from appliance.wire.wall import WallStreamShape

LOOK_S = 4.0
"""Time that a look lasts. A page looks every second, so the frames of a closed page go after this time."""
STREAMS_MAX = 24
"""Streams of one tenant on its wall: as many as a person can follow."""
FRAMES_BYTES_MAX = 8 * 2**20
"""Bound of the pictures and answers in `_frames`, which tenants share; a frame has 20 to 100 kB. The frames of the last
looks (`_looked_at`) take at most as much again."""
ANSWER_BYTES_MAX = 32 * 1024
"""Longest answer that is shown; longer ones hold numbers rather than words."""
SILENT_NS = 60 * NS_PER_S
"""A stream without a frame for so long leaves the wall."""


def may_look(viewers: WallViewers, principal: Principal) -> bool:
    """Return whether a key may see the frames of its tenant. Admin keys belong to the tenant `default`; they see frames
    of other tenants only where the tenant allows the operator.
    """
    if principal.is_admin and principal.tenant != DEFAULT_TENANT:
        return viewers is WallViewers.OPERATOR
    return viewers is not WallViewers.NOBODY


@dataclass(frozen=True, slots=True)
class WallFrame:
    """The last frame of one stream."""

    stream: str
    name: str
    application: str | None
    pipeline: str | None
    frame: int | None
    outcome: FrameEnd
    cause: DropCause | None
    at_ns: int
    picture: bytes
    """JPEG or PNG as it was sent; empty: none."""
    answer: bytes
    """JSON; empty: none."""
    has_left: Callable[[], bool]
    """Returns whether the stream has ended since the frame."""

    @property
    def number(self) -> int:
        """Names the frame in its stream: microseconds, for a browser rounds what nanoseconds come to in 104 days."""
        return self.at_ns // NS_PER_US

    @property
    def bytes(self) -> int:
        return len(self.picture) + len(self.answer)


class Wall:
    """The last frames of tenants with viewers. Event-loop thread only."""

    def __init__(self, clock: Clock, frames_bytes_max: int = FRAMES_BYTES_MAX) -> None:
        self._clock = clock
        self._room, self._looked_at_room = Portions(frames_bytes_max), Portions(frames_bytes_max)
        self._looks: dict[str, asyncio.TimerHandle] = {}
        """Tenant with a viewer → timer of the end of the last look."""
        self._frames: dict[str, dict[str, WallFrame]] = {}
        """Tenant → stream → its last frame."""
        self._looked_at: dict[str, dict[str, WallFrame]] = {}
        """Frames of the last look, whose pictures the page fetches while newer frames come."""

    def session_frame(
        self, live: LiveSession, result: FrameResult, body: bytes = b"", answer: bytes | None = None
    ) -> None:
        """Show an ended frame of a session, with its picture and answer where these can be shown."""
        session = live.session
        if session.tenant not in self._looks:
            return
        is_picture = result.cause is not DropCause.BAD_MEDIA
        self._show(
            session.tenant,
            WallFrame(
                stream=session.id,
                name=session.name,
                application=None if session.pipeline_id else session.target,
                pipeline=session.target if session.pipeline_id else None,
                frame=result.frame,
                outcome=result.end,
                cause=result.cause,
                at_ns=self._clock.now_ns(),
                picture=_picture(body) if is_picture else b"",
                answer=_answer(answer or b""),
                has_left=lambda: live.state is SessionState.ENDED,
            ),
        )

    def client_frame(
        self,
        tenant: str,
        pipeline: str,
        client: str,
        number: int | None,
        body: bytes,
        answer: bytes,
        is_there: Callable[[str], bool],
    ) -> None:
        """Show an answered frame of a client of a pipeline. `is_there` returns whether the client has not left."""
        if tenant not in self._looks:
            return
        self._show(
            tenant,
            WallFrame(
                stream=client,
                name="",
                application=None,
                pipeline=pipeline,
                frame=number,
                outcome=FrameEnd.ANSWERED,
                cause=None,
                at_ns=self._clock.now_ns(),
                picture=_picture(body),
                answer=_answer(answer),
                has_left=lambda: not is_there(client),
            ),
        )

    def look(self, tenant: str) -> Iterator[bytes]:
        """Return the last frame of each stream as JSON, by target and name, and keep frames for `LOOK_S` more."""
        before = self._looks.get(tenant)
        if before is not None:
            before.cancel()
        self._looks[tenant] = asyncio.get_running_loop().call_later(LOOK_S, self.leave, tenant)
        frames = self._frames.setdefault(tenant, {})
        now_ns = self._clock.now_ns()
        for one in [one for one in frames.values() if one.has_left() or now_ns - one.at_ns > SILENT_NS]:
            self._forget(tenant, one.stream)
        self._keep_looked_at(tenant, frames)
        order = sorted(frames.values(), key=lambda one: (one.application or one.pipeline or "", one.name, one.stream))
        return (_shown(one, now_ns) for one in order)

    def picture(self, tenant: str, stream: str, number: int | None = None) -> bytes:
        """Return the picture of a stream's last frame, or of its frame `number`; empty without a picture."""
        for frames in (self._frames, self._looked_at):
            found = frames.get(tenant, {}).get(stream)
            if found is not None and number in (None, found.number):
                return found.picture
        return b""

    def leave(self, tenant: str) -> None:
        """Forget all frames of a tenant. Other viewers see the frames after their next look."""
        look = self._looks.pop(tenant, None)
        if look is not None:
            look.cancel()
        for stream in list(self._frames.get(tenant, ())):
            self._forget(tenant, stream)
        self._frames.pop(tenant, None)
        self._keep_looked_at(tenant, {})

    def _show(self, tenant: str, frame: WallFrame) -> None:
        """Replace the last frame of the stream. A frame that finds no room loses its picture and answer."""
        frames = self._frames[tenant]
        before = frames.get(frame.stream)
        if before is None and len(frames) >= STREAMS_MAX:
            return
        if before is not None:
            self._forget(tenant, frame.stream)
        if frame.bytes > self._room.limit or not self._room.take(tenant, frame.bytes):
            frame = replace(frame, picture=b"", answer=b"")
        frames[frame.stream] = frame

    def _keep_looked_at(self, tenant: str, frames: Mapping[str, WallFrame]) -> None:
        """Keep these in place of those that the tenant's look before has shown, as far as there is room."""
        room = self._looked_at_room
        if held := room.held(tenant):
            room.give(tenant, held)
        kept = {stream: one for stream, one in frames.items() if one.bytes and room.take(tenant, one.bytes)}
        self._looked_at[tenant] = kept
        if not kept:
            del self._looked_at[tenant]

    def _forget(self, tenant: str, stream: str) -> None:
        frame = self._frames[tenant].pop(stream)
        if frame.bytes:
            self._room.give(tenant, frame.bytes)


def _picture(body: bytes) -> bytes:
    return body if kind_of(body) is not None else b""


def _answer(answer: bytes) -> bytes:
    """Return the answer where it is JSON and short, else nothing."""
    return answer if len(answer) <= ANSWER_BYTES_MAX and kind_of(answer) is None else b""


def _shown(one: WallFrame, now_ns: int) -> bytes:
    """Return a frame as JSON; the answer is inserted as it is."""
    head = WallStreamShape(
        stream=one.stream,
        name=one.name,
        application=one.application,
        pipeline=one.pipeline,
        frame=one.frame,
        outcome=one.outcome,
        cause=one.cause,
        age_ms=round((now_ns - one.at_ns) / NS_PER_MS, 3),
        number=one.number,
        picture=bool(one.picture),
    ).model_dump_json(exclude={"answer"})
    return b'%b,"answer":%b}' % (head[:-1].encode(), one.answer or b"null")
