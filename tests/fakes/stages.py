"""Port `StageRunner` in virtual time: networks that say what they are told to, take as long as they are told to, and
watch that everything they gave comes back.
"""

import asyncio
import weakref
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from appliance.clock import NS_PER_MS, Clock
from appliance.domain.errors import ApplianceError, Busy, DeadlineExceeded
from appliance.domain.pipeline import Ask, Region, Stage
from appliance.runtime.pipelines.ports import ItemCall, StageAnswer
from appliance.tasks.base import Media

T = TypeVar("T")
Path = tuple[str, ...]
"""Where a subject comes from: empty for the frame's input, then the label of each region on the way."""


class Subject:
    """What networks look at."""

    def __init__(self, path: Path) -> None:
        self.path = path


@dataclass(frozen=True)
class Seen:
    """A network was asked about something."""

    stage: str
    about: Path | str
    request_id: str
    begun_ms: float
    ended_ms: float


Say = Callable[[str, Path | str], Mapping[str, Any]]
"""(stage, path of the subject or the text) → what it answers."""


@dataclass
class FakeStages:
    """`run_ms`, `compute_ms`: of one run, and of reading, cutting, preparing and CPU stages. `errors`: raised in place
    of answers, by stage and subject. `slots`: items beside the first of each frame that may be under way.
    """

    clock: Clock
    say: Say
    run_ms: Mapping[str, float] = field(default_factory=dict)
    compute_ms: float = 0.0
    errors: Mapping[tuple[str, Path | str], ApplianceError] = field(default_factory=dict)
    texts: Mapping[str, bytes] = field(default_factory=dict)
    """Stage → what it answers about anything, written already, and not as data."""
    unread: ApplianceError | None = None
    slots: int = 1000
    seen: list[Seen] = field(default_factory=list)
    room: int = 1 << 62
    """Bytes that answers may take."""
    kept: int = 0
    taken: int = 0
    under_way: int = 0
    most: int = 0
    """Items that were under way at once."""
    turns: Counter[str] = field(default_factory=Counter)
    """Stage → turns of the media threads."""
    released: int = 0
    alive: "weakref.WeakSet[Subject]" = field(default_factory=weakref.WeakSet)
    made: int = 0
    calls: list[tuple[str, ItemCall]] = field(default_factory=list)

    async def read(self, media: Media, asks: Sequence[Ask], call: ItemCall, *, is_cut: bool) -> Subject:
        await self._work("", call)
        if self.unread is not None:
            raise self.unread
        return self._subject(())

    async def cut(
        self, stage: Stage, subject: Subject, regions: Sequence[Region], call: ItemCall
    ) -> Sequence[Subject | None]:
        path = subject.path
        del subject
        await self._work(stage.name, call)
        if (error := self.errors.get((stage.name, path))) is not None:
            raise error
        return [None if one.label == "lost" else self._subject((*path, one.label)) for one in regions]

    def release(self, subject: Subject) -> None:
        self.released += 1

    def workers(self) -> int:
        return 2

    def is_busy(self) -> bool:
        return bool(self.under_way)

    def check(self, stage: Ask, call: ItemCall) -> None:
        if self.clock.now_ns() + self.expected_ns(stage, call.tenant) > call.deadline_ns:
            raise DeadlineExceeded(waited_ms=0)

    async def prepare(self, stage: Ask, subjects: Sequence[Any], call: ItemCall) -> Sequence[Any]:
        found = [one.path if isinstance(one, Subject) else one for one in subjects]
        del subjects
        await self._work(stage.name, call)
        return found

    async def ask(self, stage: Ask, prepared: Path | str, call: ItemCall) -> StageAnswer:
        self.calls.append((stage.name, call))
        begun_ns = self.clock.now_ns()
        end_ns = begun_ns + int(self.run_ms.get(stage.name, 0.0) * NS_PER_MS)
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            await self._until(end_ns, call)
        finally:
            self.under_way -= 1
        self.seen.append(Seen(stage.name, prepared, call.request_id, begun_ns / 1e6, end_ns / 1e6))
        if (error := self.errors.get((stage.name, prepared))) is not None:
            raise error
        if call.meter is not None:
            call.meter.ran("cpu", end_ns - begun_ns)
        text = self.texts.get(stage.name, b"")
        return StageAnswer({} if text else self.say(stage.name, prepared), "v", "cpu", end_ns - begun_ns, text)

    async def compute(self, stage: Stage, call: ItemCall, work: Callable[[], T]) -> T:
        await self._work(stage.name, call)
        return work()

    def expected_ns(self, stage: Ask, tenant: str) -> int:
        return int(self.run_ms.get(stage.name, 0.0) * NS_PER_MS)

    def keep(self, tenant: str, count: int) -> None:
        if self.kept + count > self.room:
            raise Busy()
        self.kept += count

    def give_back(self, tenant: str, count: int) -> None:
        self.kept -= count

    def take_slot(self, tenant: str) -> bool:
        if self.taken >= self.slots:
            return False
        self.taken += 1
        return True

    def give_slot(self, tenant: str) -> None:
        self.taken -= 1

    def asked(self, stage: str) -> list[Path | str]:
        """What a network was asked about, in its order."""
        return [one.about for one in self.seen if one.stage == stage]

    def assert_quiet(self) -> None:
        """All that was made has gone."""
        assert (self.taken, self.under_way, self.kept) == (0, 0, 0)
        assert self.released == self.made
        assert not list(self.alive)

    # -- inside --------------------------------------------------------------------------------------------------------

    def _subject(self, path: Path) -> Subject:
        self.made += 1
        made = Subject(path)
        self.alive.add(made)
        return made

    async def _work(self, stage: str, call: ItemCall) -> None:
        self.turns[stage] += 1
        if self.compute_ms:
            await self._until(self.clock.now_ns() + int(self.compute_ms * NS_PER_MS), call)
        else:
            await asyncio.sleep(0)  # noqa: TID251 - no time passes

    async def _until(self, end_ns: int, call: ItemCall) -> None:
        await self.clock.sleep_until_ns(min(end_ns, max(call.deadline_ns, self.clock.now_ns())))
        if end_ns > call.deadline_ns:
            raise DeadlineExceeded(waited_ms=0)
