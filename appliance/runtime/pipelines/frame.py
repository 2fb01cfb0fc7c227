"""The run of one frame: its items through the stages, from its input to its one answer.

A stage begins with an item as soon as all that it waits for has ended about it. What can run at the same time does, up
to a bound; each item at a network is a request of its own to the engine, with the frame's deadline less what the stages
behind are expected to take. The frame is over when nothing of it runs any more and nothing is left to begin with; at
its deadline what has not begun never will. Event-loop thread only.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from appliance.clock import NS_PER_MS, NS_PER_S, Clock
from appliance.domain.errors import ApplianceError, BadMedia, BadTensor, Busy, DeadlineExceeded, Overloaded, QueueFull
from appliance.domain.pipeline import ITEMS_MAX, Ask, Crop, Join, NoAnswer, OnError, Pick, Region, Stage
from appliance.domain.pipeline_graph import ROOT
from appliance.domain.request import FrameStanding, Request
from appliance.runtime.pipelines.beginnings import Beginnings
from appliance.runtime.pipelines.figures import StageMeter
from appliance.runtime.pipelines.items import Item, Outcome
from appliance.runtime.pipelines.live import LivePipeline
from appliance.runtime.pipelines.order import Place
from appliance.runtime.pipelines.outcomes import Outcomes
from appliance.runtime.pipelines.ports import ItemCall, StageAnswer, StageRunner
from appliance.runtime.serving.spending import Spending
from appliance.tasks.answers import joined, picked
from appliance.tasks.base import Media
from appliance.tasks.large_json import write_json, written
from appliance.tasks.regions import placed, regions_in, wanted

IN_FLIGHT_MAX = 32
"""Items of one frame that are under way at networks; each has its tensor in memory."""
TOGETHER_MAX = 8
"""Items that are prepared in one turn of the media threads: each turn costs a hop, and the first is run after it."""
ANSWERS_BYTES_MAX = 32 * 2**20
"""Of one frame, which is answered with all of them at once; one that finds no room is an error."""
SMALL_BYTES = 4096
"""An answer that takes no more is not counted: no frame is to fail for it where bodies have all the room."""
_GRACE_NS = 10 * NS_PER_MS
"""So long after the deadline whatever is still under way has told the frame itself that it is too late."""
_TOO_LATE = (DeadlineExceeded, Overloaded, QueueFull)
"""Errors by which an item is dropped; others are failures."""
_CALLERS_OWN = (BadMedia, BadTensor)
"""Errors that are the caller's, where a network looks at what was sent."""


@dataclass(frozen=True, slots=True)
class FrameCall:
    """What the caller asked for beside the media."""

    tenant: str
    request_id: str
    arrival_ns: int
    timeout_ms: float | None = None
    """From the arrival; None: the pipeline's SLO."""
    client: str = ""
    """That has joined; empty: nobody who has."""
    number: int | None = None
    """As the client counts its frames."""
    is_admitted: bool = False
    """It was let in before its body was read."""
    is_planned: bool = True
    """Within the rate that its client joined with; the plan counts on no others."""
    watch: Callable[[Request], None] | None = None
    """Is shown the first request that goes to the engine."""


class FrameRun:
    """One frame, once."""

    def __init__(self, live: LivePipeline, call: FrameCall, runner: StageRunner, clock: Clock) -> None:
        self.live = live
        self.call = call
        self._runner = runner
        self._clock = clock
        slo_ms = live.pipeline.latency_slo_ms
        self.deadline_ns = call.arrival_ns + int((call.timeout_ms or slo_ms) * NS_PER_MS)
        self._late_ns = call.arrival_ns + int(slo_ms * NS_PER_MS)
        self._is_counted_late = False
        """Some stage has made it late."""
        self.spending = Spending(live.spending)
        """Processor time of its items so far."""
        self._is_served = call.is_planned and live.is_served(call.client)
        """The plan counts on it."""
        self._standing = FrameStanding()
        self.root = Item(ROOT)
        self.has_dropped = False
        """Some item could no longer be in time."""
        self.has_errors = False
        """Some item failed."""
        self.has_failed = False
        """A stage failed that must not."""
        self.is_turned_away = False
        """The plan does not count on it, and nothing of it was run."""
        self._began: dict[str, int] = {}
        """Stage → items that it could begin with."""
        self.began_ns: dict[str, int] = {}
        """Stage → when its first item could begin ..."""
        self.ended_ns: dict[str, int] = {}
        """... and when its last one had ended."""
        self._outcomes = Outcomes(live, self.root)
        self._beginnings = Beginnings(live, self._outcomes, self._begin, self._settle)
        self._ready: dict[str, deque[Item]] = {}
        """Stage → items that it can begin with."""
        self._watch = call.watch
        """None once it was shown the first request."""
        self._is_trial = False
        """It would be late by what stages are expected to take, and is to show what they do take."""
        self._asked: dict[str, int] = {}
        """Stage → items that went to its network."""
        self._kept_bytes = 0
        """Of answers."""
        self._regions: dict[str, int] = {}
        """Crop → regions that it has taken, of all items that it cuts from: crops of crops would make them without
        end."""
        self._in_flight, self._slots = 0, 0
        """Taken for items in flight; the first needs none."""
        self._under_way = 1
        """Of anything; at first its input is read."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._place: Place | None = None

    async def run(self, media: Media) -> None:
        """Until it is over; what came of it is in its items, from `root` on.

        Raises: BadMedia, BadTensor where the input cannot be read; what reading it raises.
        """
        timers: list[asyncio.TimerHandle] = []
        loop = asyncio.get_running_loop()
        if self.live.stateful:
            self._place = self.live.order.enter(self.call.client, self.call.number, self._pump)
        try:
            call = ItemCall(
                self.call.tenant,
                self.call.request_id,
                self.call.arrival_ns,
                self.deadline_ns,
                meter=StageMeter(self.live.reading, self.spending),
            )
            if not self._is_served and self._runner.is_busy():
                self._turn_away()
                return
            self.root.takers = set(self.live.takers[ROOT])
            self.root.subject = await self._runner.read(media, self.live.asks_of_root, call, is_cut=self.live.is_cut)
            del media  # its items hold what they need of it
            for after_ns, late in ((0, self._drop_ready), (_GRACE_NS, self._give_up)):
                timers.append(loop.call_at((self.deadline_ns + after_ns) / NS_PER_S, late))
            self.live.frames.begun += 1
            for name in self.live.first:
                self._beginnings.look(name, self.root)
            self._under_way -= 1
            self._pump()
            await self._over
        finally:
            for timer in timers:
                timer.cancel()
            await self._end_all()

    def _turn_away(self) -> None:
        """Not all frames fit, and the plan does not count on this one: what it would take is another one's, which could
        be answered whole.
        """
        self.is_turned_away = True
        for name in self.live.first:
            self.root.begun.add(name)
            self._settle(self.live.stages[name], self.root, Outcome(none=NoAnswer.DROPPED))

    async def _end_all(self) -> None:
        if not self._over.done():
            self._over.cancel()
        if self._place is not None:
            self._place.leave()
        tasks = [task for task in self._tasks if not task.done()]
        for task in tasks:
            task.cancel()
        try:
            if tasks:
                await asyncio.gather(*tasks, return_exceptions=True)
        finally:  # also where it is cancelled again meanwhile
            for _ in range(self._slots):
                self._runner.give_slot(self.call.tenant)
            self._slots = 0
            for item in self._outcomes.all():
                self._release(item)
            if self._kept_bytes:
                self._runner.give_back(self.call.tenant, self._kept_bytes)
                self._kept_bytes = 0

    # -- what runs -----------------------------------------------------------------------------------------------------

    def _begin(self, stage: Stage, items: list[Item]) -> None:
        """All that a stage waits for is there: it can begin with these."""
        if self._place is not None and stage.name in self.live.stateful and self._place.is_late(stage.name):
            for item in items:
                self._settle(stage, item, Outcome(none=NoAnswer.DROPPED))
            return
        now_ns = self._clock.now_ns()
        for item in items:
            item.since_ns[stage.name] = now_ns
        self.began_ns.setdefault(stage.name, now_ns)
        before = self._began.get(stage.name, 0)
        self._began[stage.name] = before + len(items)
        self.live.figures[stage.name].began(len(items), before)
        if isinstance(stage, Pick):
            self._spawn(self._pick(stage, items))
        elif isinstance(stage, Join):
            for item in items:
                self._spawn(self._join(stage, item))
        else:
            self._ready.setdefault(stage.name, deque()).extend(items)

    def _pump(self) -> None:
        """Begin with what is ready, as far as there is room; over when there is nothing more."""
        if self._over.done():
            return
        for name, ready in self._ready.items():
            stage = self.live.stages[name]
            if isinstance(stage, Ask):
                self._pump_asks(stage, ready)
                continue
            assert isinstance(stage, Crop)
            while ready:
                self._spawn(self._cut(stage, ready.popleft()))
        if not self._under_way and not any(self._ready.values()):
            self._over.set_result(None)

    def _pump_asks(self, stage: Ask, ready: deque[Item]) -> None:
        if ready and self._place is not None and stage.name in self.live.stateful:
            if not self._place.is_turn(stage.name):
                return
            self._place.begin(stage.name)
        while ready:
            items: list[Item] = []
            while ready and len(items) < TOGETHER_MAX and self._take():
                items.append(ready.popleft())
            if not items:
                return
            self._spawn(self._ask_together(stage, items))

    def _take(self) -> bool:
        """Whether one more item may be in flight."""
        if self._in_flight:
            if self._in_flight >= IN_FLIGHT_MAX or not self._runner.take_slot(self.call.tenant):
                return False
            self._slots += 1
        self._in_flight += 1
        return True

    def _give(self) -> None:
        self._in_flight -= 1
        if self._slots:
            self._slots -= 1
            self._runner.give_slot(self.call.tenant)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self._under_way += 1
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._task_ended)

    def _task_ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        self._under_way -= 1
        if not task.cancelled() and (error := task.exception()) is not None:
            self._break(error)
        self._pump()

    def _break(self, error: BaseException) -> None:
        """It ends without an answer."""
        if not self._over.done():
            self._over.set_exception(error)

    def _call(self, stage: Stage, *, prepared: ItemCall | None = None) -> ItemCall:
        """`prepared`: by which an item was that is now asked about; it goes to the variant that it was prepared for,
        whatever is planned since.
        """
        is_planned: bool | None = None
        watch, behind_ns = None, 0
        if prepared is not None:
            watch, self._watch = self._watch, None
            self._asked[stage.name] = asked = self._asked.get(stage.name, 0) + 1
            planned = self.live.planned(stage.name)
            is_planned = None if planned is None else self._is_served and asked <= max(1.0, planned)
        variant, sequence_id = None, None
        if isinstance(stage, Ask):
            variant = self.live.variant_of(stage) if prepared is None else prepared.variant
            after = self._began.get(stage.name, 0) - self._asked.get(stage.name, 0)
            behind_ns = after * self.live.share_ns(stage) if prepared is not None and after > 0 else 0
            if stage.is_stateful:
                sequence_id = f"{self.live.pipeline.id}/{stage.name}/{self.call.client}"
        return ItemCall(
            self.call.tenant,
            self.call.request_id,
            self._clock.now_ns(),
            self.deadline_ns - (0 if self._is_trial else self.live.tail_ns(stage.name)),
            variant,
            is_planned,
            is_of_planned=self._is_served,
            meter=StageMeter(self.live.figures[stage.name], self.spending),
            sequence_id=sequence_id,
            frame=self._standing,
            behind_ns=behind_ns,
            watch=watch,
        )

    async def _ask_together(self, stage: Ask, items: list[Item]) -> None:
        """Items that are prepared in one turn; then each goes its own way."""
        call = self._call(stage)
        left: list[Item] = []
        for item in items:
            try:
                self._check(stage, call)
            except ApplianceError as error:
                self._ended(stage, item, self._outcome_of(error))
            else:
                left.append(item)
        if not left:
            return
        if self._is_trial:  # it has until the frame's deadline
            call = self._call(stage)
        try:
            prepared = await self._runner.prepare(stage, [self._input(stage, item) for item in left], call)
        except ApplianceError as error:
            for item in left:
                self._failed(stage, item, error)
            return
        calls = []
        for item in left:
            self._took(stage, item)
            calls.append(self._call(stage, prepared=call))
        for item, one, own in list(zip(left, prepared, calls, strict=True))[1:]:
            self._spawn(self._ask(stage, item, one, own))
        item, one, own = left[0], prepared[0], calls[0]
        del prepared
        await self._ask(stage, item, one, own)

    def _check(self, stage: Ask, call: ItemCall) -> None:
        """Raises: DeadlineExceeded and others, for an item that is not to be asked about."""
        if self._is_trial:
            return
        try:
            self._runner.check(stage, call)
        except DeadlineExceeded:
            if self._clock.now_ns() >= self.deadline_ns or not self.live.may_try(stage.name):
                raise
            self._is_trial = True

    async def _ask(self, stage: Ask, item: Item, prepared: Any, call: ItemCall) -> None:
        try:
            answer = await self._runner.ask(stage, prepared, call)
            self._keep(answer)
        except ApplianceError as error:
            self._failed(stage, item, error)
        else:
            if isinstance(call.meter, StageMeter):
                self.live.figures[stage.name].ran_on(answer, call.meter.spent_ns, call.meter.at_once)
            self._ended(stage, item, Outcome(answer))

    def _failed(self, stage: Ask, item: Item, error: ApplianceError) -> None:
        is_own = item is self.root and stage.name not in self.live.graph.sources
        if is_own and isinstance(error, _CALLERS_OWN):
            self._break(error)
            return
        self._ended(stage, item, self._outcome_of(error))

    def _ended(self, stage: Ask, item: Item, outcome: Outcome) -> None:
        """An item in flight."""
        self._give()
        self._settle(stage, item, outcome)
        self._pump()

    def _input(self, stage: Ask, item: Item) -> Any:
        """What a network looks at: an item, or what another one read of it."""
        source = self.live.graph.sources.get(stage.name)
        if source is None:
            return item.subject
        outcome = self._outcomes.outcome(source, item)
        assert outcome is not None and outcome.answer is not None, "it is known, and has an answer"
        return str(outcome.answer.body.get("text", ""))

    async def _cut(self, stage: Crop, item: Item) -> None:
        """The items of a crop."""
        source = self._outcomes.outcome(self.live.graph.sources[stage.name], item)
        assert source is not None and source.answer is not None, "it is known, and has an answer"
        body = source.answer.body
        call = self._call(stage)
        picture = int(body.get("width", 0)), int(body.get("height", 0))
        taken = self._regions.get(stage.name, 0)
        most = min(stage.at_most, ITEMS_MAX - taken)
        found = wanted(regions_in(body, stage.of), stage.where, picture, most)
        self._regions[stage.name] = taken + len(found)
        regions = [placed(region, item.region) for region in found]
        try:
            subjects = await self._runner.cut(stage, item.subject, regions, call) if regions else ()
        except ApplianceError as error:
            self._settle(stage, item, self._outcome_of(error))
            return
        self._made(stage, item, regions, subjects)
        self._settle(stage, item, Outcome())

    def _made(self, stage: Crop, parent: Item, regions: Sequence[Region], subjects: Sequence[Any]) -> None:
        """The items that a crop has cut; what could not be is none."""
        made = parent.children[stage.name] = []
        takers = self.live.takers[stage.name]
        for region, subject in zip(regions, subjects, strict=True):
            if subject is not None:
                item = Item(stage.name, parent, region, subject, set(takers))
                item.ends[stage.name] = Outcome()
                made.append(item)
                if not takers:
                    self._release(item)
        self._outcomes.add(stage.name, made)

    async def _pick(self, stage: Pick, items: list[Item]) -> None:
        given = []
        for item in items:
            assert item.region is not None, "a crop made it"
            given.append((item.region, self._outcomes.judgements(stage.after[0], item)))
        try:
            best = await self._runner.compute(stage, self._call(stage), lambda: picked(stage, given))
        except ApplianceError as error:
            outcome = self._outcome_of(error)
            for item in items:
                self._settle(stage, item, outcome)
            return
        outdone = Outcome(none=NoAnswer.CONDITION, is_outdone=True)
        for at, item in enumerate(items):
            self._settle(stage, item, Outcome() if at in best else outdone)

    async def _join(self, stage: Join, item: Item) -> None:
        answers = [
            answer
            for name in stage.after
            for child in item.children.get(self.live.graph.levels[name], ())
            if (answer := self._outcomes.answer(name, child)) is not None
        ]
        try:
            answer = await self._runner.compute(stage, self._call(stage), lambda: _joined(answers))
            self._keep(answer)
        except ApplianceError as error:
            self._settle(stage, item, self._outcome_of(error))
            return
        self._settle(stage, item, Outcome(answer))

    def _keep(self, answer: StageAnswer) -> None:
        """Until the frame is over. Raises: Busy, where there is no room for it."""
        count = len(answer.text)
        if self._kept_bytes + count > ANSWERS_BYTES_MAX:
            raise Busy()
        if count > SMALL_BYTES:
            self._runner.keep(self.call.tenant, count)
            self._kept_bytes += count

    # -- what came of it -----------------------------------------------------------------------------------------------

    @staticmethod
    def _outcome_of(error: ApplianceError) -> Outcome:
        return Outcome(none=NoAnswer.DROPPED if isinstance(error, _TOO_LATE) else NoAnswer.ERROR)

    def _settle(self, stage: Stage, item: Item, outcome: Outcome) -> None:
        """A stage has ended about an item, once; those that wait for it are looked at."""
        name = stage.name
        if name in item.ends or self._over.done():
            return
        item.ends[name] = outcome
        self._took(stage, item)
        now_ns = self._clock.now_ns()
        since_ns = item.since_ns.get(name, now_ns)
        if not outcome.is_inherited:
            figures = self.live.figures[name]
            figures.ended(outcome, now_ns - since_ns)
            if not self._is_counted_late and (outcome.none is NoAnswer.DROPPED or now_ns > self._late_ns):
                self._is_counted_late = True
                figures.late_frames += 1
        if name in item.since_ns:
            self.ended_ns[name] = now_ns
        if not outcome.is_inherited and outcome.none in (NoAnswer.DROPPED, NoAnswer.ERROR):
            self.has_dropped |= outcome.none is NoAnswer.DROPPED
            self.has_errors |= outcome.none is NoAnswer.ERROR
            self._standing.is_lost = True
            if stage.on_error is OnError.FAIL:
                self.has_failed = True
                self._over.set_result(None)
                return
        for after in self.live.listeners[name]:
            self._beginnings.look(after, item)
        if self._place is not None and name in self.live.stateful:
            level = self.live.level_of(name)
            if self._outcomes.is_complete(level) and all(name in one.ends for one in self._outcomes.items(level)):
                self._place.through(name)

    def _took(self, stage: Stage, item: Item) -> None:
        """A stage needs an item's subject no more."""
        if stage.name in item.takers:
            item.takers.discard(stage.name)
            if not item.takers:
                self._release(item)

    def _release(self, item: Item) -> None:
        subject, item.subject = item.subject, None
        if subject is not None:
            self._runner.release(subject)

    def _drop_ready(self) -> None:
        """The deadline has come: what has not begun never will."""
        for name, ready in list(self._ready.items()):
            while ready:
                self._settle(self.live.stages[name], ready.popleft(), Outcome(none=NoAnswer.DROPPED))
        self._pump()

    def _give_up(self) -> None:
        """Nothing should be under way any more; what is does not keep the frame from its answer. Nor does what could
        begin now: a join of those that have answers, or the best of all.
        """
        while left := [
            (name, item) for item in self._outcomes.all() for name in item.since_ns if name not in item.ends
        ]:
            for name, item in left:
                self._settle(self.live.stages[name], item, Outcome(none=NoAnswer.DROPPED))
            if self._over.done():  # a stage that must not fail
                return
        if not self._over.done():
            self._over.set_result(None)


def _joined(answers: Sequence[StageAnswer]) -> StageAnswer:
    """Several answers as one; what is written already is not written again."""
    body = joined([one.body for one in answers])
    texts = [written(one.text) if one.text else dict(one.body) for one in answers]
    return StageAnswer(body, "", "", 0, write_json({**body, "answers": texts}))
