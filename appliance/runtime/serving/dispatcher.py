"""Port `Dispatcher` over the queue: what is left of a network in parts waits there as a job, and a worker that begins
with it has its slot taken until the parts that were decided on have run.

With several groups of processors the scheduler asks its policy which parts these are, and what remains goes back to the
head of the queue. With one group whoever is idle runs all parts, each on the kind that it serves on.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from appliance.clock import NS_PER_MS, Clock
from appliance.domain.errors import LoadFailed, OutOfMemory, ProcessorLost
from appliance.domain.names import part_build_id
from appliance.domain.parts import Cut
from appliance.domain.request import Request
from appliance.domain.states import RequestState
from appliance.policies.dispatch.base import FOREVER
from appliance.policies.dispatch.partition import Partition
from appliance.policies.dispatch.search import search
from appliance.runtime.memory.build import LoadedBuild
from appliance.runtime.memory.loader import LoadedParts
from appliance.runtime.memory.manager import MemoryManager
from appliance.runtime.ports import RunGroup
from appliance.runtime.servable import Servable
from appliance.runtime.served_parts import TRANSFER_MS, ServedParts, partition_of
from appliance.runtime.serving.job import Job, RunAgain
from appliance.runtime.serving.parts import Commitment, LoadedPart, Progress, Rest, Rows, Shared
from appliance.runtime.serving.queue import Queue

_LEFT_MAX = 64
"""Builds, and what may be left of them, of which partitions are kept: those that were asked for last. One of 16 parts
takes about 150 KiB with what was searched over it."""
_SIZES_MAX = 2
"""Partitions of each of these: inputs of several sizes come, which take times of their own."""
_MOVED = 0.1
"""Share by which a time may be another one before a network is cut anew."""
Lost = Collection[tuple[str, str]]
"""Processors, by group and kind."""


class Dispatching:
    """What the dispatchers of all requests share. Event-loop thread only."""

    def __init__(self, clock: Clock, queue: Queue, memory: MemoryManager, groups: Sequence[RunGroup]) -> None:
        self.clock = clock
        self.queue = queue
        self.memory = memory
        self.groups = tuple(groups)
        self._partitions: OrderedDict[tuple[str, tuple[int, ...], tuple[int, ...]], list[Partition]] = OrderedDict()
        """By build, what is left, and the groups that it is for; the last used at the end, of both."""

    def partition(
        self, build_id: str, cut: Cut, takes_ns: Mapping[int, Mapping[int, int]], left: Sequence[int]
    ) -> Partition:
        """What is left of a network, by names of groups. One that was made before stands until a time has moved by more
        than `_MOVED`: all move a little with each run, and to cut a network takes longer than to decide on it.
        """
        takes_ms = {
            self.groups[at].name: {number: float(f"{own[number] / NS_PER_MS:.3g}") for number in left if number in own}
            for at, own in takes_ns.items()
        }
        key = build_id, tuple(left), tuple(takes_ns)
        known = self._partitions.setdefault(key, [])
        self._partitions.move_to_end(key)
        if len(self._partitions) > _LEFT_MAX:
            self._partitions.popitem(last=False)
        found = next((one for one in reversed(known) if _is_near(one, takes_ms)), None)
        if found is None:
            found = partition_of(cut, takes_ms, left)
            if len(known) >= _SIZES_MAX:
                del known[0]
        else:
            known.remove(found)
        known.append(found)
        return found


def _is_near(made: Partition, takes_ms: Mapping[str, Mapping[int, float]]) -> bool:
    """Whether it is of the same parts on the same groups, in about the same times."""
    if made.latency_ms.keys() != takes_ms.keys():
        return False
    for name, own in takes_ms.items():
        before = made.latency_ms[name]
        if len(before) != len(own):
            return False
        for number, now_ms in own.items():
            then_ms = before.get(str(number))
            if then_ms is None or abs(now_ms - then_ms) > _MOVED * then_ms:
                return False
    return True


@dataclass(slots=True, eq=False)
class _UnderWay:
    """A commitment that is not over yet."""

    commitment: Commitment
    group: int
    over: "asyncio.Future[int]"


@dataclass(slots=True, eq=False)
class PartsDispatcher:
    """Of one request. It releases the build that it is given: `close`, and then when nothing of it runs any more."""

    shared: Dispatching
    request: Request
    servable: Servable
    build: LoadedBuild
    """Pinned."""
    expected_ns: int | None
    """Of all parts; None: nobody knows."""
    run_bytes: int
    weights: tuple[float, float]
    _others: dict[int, LoadedBuild] = field(default_factory=dict)
    """Parts on the first kind of processor that were loaded because theirs was lost: pinned."""
    _under_way: _UnderWay | None = None
    _is_closed: bool = False

    async def commit(self, progress: Progress) -> Commitment | Rows:
        """Raises, beyond the port's: QueueFull, Overloaded, NoRoomToRun; RunAgain where it has to be placed anew."""
        left = [number for number in range(len(self._parts.cut.parts)) if number not in progress.done]
        await self._bring(left, progress.lost)
        places = {at: self._there(at, left, progress.lost) for at in range(len(self.shared.groups))}
        job = self._job(left, places, progress)
        try:
            self.shared.queue.put(job)
            commitment: Commitment | Rows = await job.answer
            return commitment
        except asyncio.CancelledError:
            if self._under_way is not None:  # it was begun this very moment
                for rows in self._under_way.commitment.others:
                    if not rows.answer.done():  # nobody else knows of them: they go on by themselves
                        rows.answer.set_result(Shared(None))
                self.ended(self._under_way.commitment, {}, 0)
            raise
        finally:
            self.shared.queue.leave(job)
            if job.state is not RequestState.RUNNING:
                job.forget_call()
            del job  # an error holds this frame, and the answer holds the error

    def ended(self, commitment: Commitment, ran: Mapping[int, int], items: int) -> None:
        one = self._under_way
        assert one is not None and one.commitment is commitment, "it was committed to"
        own_items = self.servable.items_of(self.request.inputs)
        now_ns = self.shared.clock.now_ns()
        for number, took_ns in ran.items():
            if number not in self._others:
                times = self.servable.part_times(one.group, number, self.request.inputs, own_items)
                if times is not None:
                    times.ran(items, 1, took_ns, now_ns)
        self._under_way = None
        if not one.over.done():
            one.over.set_result(len(ran))
        if self._is_closed:
            self._release()

    def close(self) -> None:
        """The request has its answer, or wants none any more."""
        self._is_closed = True
        if self._under_way is None:
            self._release()

    # -- inside --------------------------------------------------------------------------------------------------------

    @property
    def _parts(self) -> ServedParts:
        assert self.servable.parts is not None
        return self.servable.parts

    @property
    def _first(self) -> str:
        """The kind of processor that runs every part."""
        return self._parts.cut.kinds[0]

    def _release(self) -> None:
        self.shared.memory.unpin(self.build)
        for build in self._others.values():
            self.shared.memory.unpin(build)
            self.shared.memory.dismiss(build.build_id)
        self._others.clear()

    async def _bring(self, left: Sequence[int], lost: Lost) -> None:
        """Parts that no processor is left to run are loaded on the first kind.

        Raises: ProcessorLost where that is lost, too; RunAgain where they cannot be loaded.
        """
        for number in left if lost else ():
            if any(self._kind(at, number, lost) for at in range(len(self.shared.groups))):
                continue
            if not any(self._runs_first(group, lost) for group in self.shared.groups):
                raise ProcessorLost(processor=self._first)
            if number in self._others:
                continue
            cost = self._parts.cut.profile(number, self._first)
            if cost is None:
                raise ProcessorLost(processor=self._first)
            build_id = part_build_id(self.servable.variant.content_sha256, number, self._first)
            beside_bytes = (self._parts.first_copies - 1) * cost.resident_bytes  # one is loaded after the other
            resident_bytes, peak_bytes = cost.resident_bytes + beside_bytes, cost.peak_bytes + beside_bytes
            pinned = self.shared.memory.pin(build_id, resident_bytes, peak_bytes, self.request.drop_ns)
            try:
                self._others[number] = await pinned
            except (OutOfMemory, LoadFailed):
                raise RunAgain from None

    def _kind(self, group: int, number: int, lost: Lost) -> str | None:
        """The kind of processor of a group that a part runs on, of those that came into memory with the others."""
        kind = self._parts.kinds[group][number]
        return None if (self.shared.groups[group].name, kind) in lost else kind

    def _runs_first(self, group: RunGroup, lost: Lost) -> bool:
        """Whether a group runs what is loaded on the first kind."""
        return self._first in group.kinds and (group.name, self._first) not in lost

    def _there(self, group: int, left: Sequence[int], lost: Lost) -> dict[int, LoadedPart]:
        """The parts that a group runs."""
        assert isinstance(self.build.handle, LoadedParts) or self.build.handle is None
        if self.build.handle is None:  # whichever worker it comes to has it placed anew
            return {}
        found: dict[int, LoadedPart] = {}
        for number in left:
            kind = self._kind(group, number, lost)
            if kind is not None:
                found[number] = LoadedPart(kind, self.build.handle.handles[number, kind])
            elif number in self._others and self._runs_first(self.shared.groups[group], lost):
                found[number] = LoadedPart(self._first, self._others[number].handle)
        return found

    def _job(self, left: Sequence[int], places: Mapping[int, Mapping[int, LoadedPart]], progress: Progress) -> Job:
        answer: asyncio.Future[Commitment | Rows] = asyncio.get_running_loop().create_future()
        items = self.servable.items_of(self.request.inputs)
        takes_ns = {at: {number: self._takes_ns(at, number) for number in there} for at, there in places.items()}
        rest = Rest(
            partial(self._begin, answer, places),
            partial(self._join, answer, items),
            takes_ns,
            tuple(left),
            kinds={at: {number: one.kind for number, one in there.items()} for at, there in places.items()},
            parts=len(self._parts.cut.parts),
            is_whole=not progress.done and not progress.lost,
            is_begun=bool(progress.done),
        )
        if self.servable.together_max > 1 and rest.is_whole:
            inputs = self.request.inputs
            rest.times = {
                at: {number: self.servable.part_times(at, number, inputs, items) for number in there}
                for at, there in places.items()
            }
        job = Job(
            self.request,
            self.servable,
            self.build,
            answer,
            expected_ns=sum(takes_ns[0].values()) if progress.done else self.expected_ns,
            run_bytes=self.run_bytes,
            weights=self.weights,
            rest=rest,
        )
        if len(places) > 1:
            rest.partition = self._partition(takes_ns, left, tuple(takes_ns))
            rest.on = partial(self._partition, takes_ns, left)
            rest.at = progress.at
            job.expected_by_group = self._soonest_ns(rest.partition, progress.at)
            job.expected_ns = min(job.expected_by_group.values(), default=job.expected_ns)
        return job

    def _partition(
        self, takes_ns: Mapping[int, Mapping[int, int]], left: Sequence[int], groups: Sequence[int]
    ) -> Partition:
        """What is left, for some groups of processors."""
        own = {at: takes_ns[at] for at in groups}
        return self.shared.partition(self.build.build_id, self._parts.cut, own, left)

    def _takes_ns(self, group: int, number: int) -> int:
        items = self.servable.items_of(self.request.inputs)
        times = self.servable.part_times(group, number, self.request.inputs, items)
        if times is not None:
            return times.expected_ns(items, 1, self.shared.clock.now_ns())
        cost = self._parts.cut.profile(number, self._first)
        return 0 if cost is None else int(cost.p50_ms(items) * NS_PER_MS)

    def _soonest_ns(self, partition: Partition, at: str | None) -> dict[int, int]:
        """Group of processors → what is left takes so long if it goes on there, were all idle."""
        names = tuple(sorted(one.name for one in self.shared.groups))
        groups = {one.name: index for index, one in enumerate(self.shared.groups)}
        return {
            groups[names[way.first.processor]]: int(way.took_ms * NS_PER_MS)
            for way in search(partition, names, TRANSFER_MS).left(0, at).ways
            if way.first is not None and way.took_ms < FOREVER
        }

    def _begin(
        self,
        answer: "asyncio.Future[Commitment | Rows]",
        places: Mapping[int, Mapping[int, LoadedPart]],
        group: int,
        numbers: tuple[int, ...],
        others: Sequence[Rest],
    ) -> "asyncio.Future[int]":
        """A worker of a group begins with what was decided on, and with the rows of others."""
        over: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        joined = [rows for other in others if (rows := other.join()) is not None]
        if answer.done():  # its caller has gone this very moment
            for rows in joined:
                rows.answer.set_result(Shared(None))
            over.set_result(0)
            return over
        one = self.shared.groups[group]
        commitment = Commitment(one.name, one.runs, {number: places[group][number] for number in numbers}, joined)
        self._under_way = _UnderWay(commitment, group, over)
        answer.set_result(commitment)
        return over

    def _join(self, answer: "asyncio.Future[Commitment | Rows]", items: int) -> Rows | None:
        """Another request runs its rows; None where its caller has gone this very moment."""
        if answer.done():
            return None
        rows = Rows(self.request.inputs, items, asyncio.get_running_loop().create_future(), self.request.drop_ns)
        answer.set_result(rows)
        return rows
