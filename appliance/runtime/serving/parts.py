"""A run of a network in parts: a sequence of runs on processors, between which tensors are passed on (Band §4.3).

Who decides what runs next and where is behind the port `Dispatcher`; it is asked after each commitment, and is told how
far the network has come. What is computed stays when a processor is lost: the rest runs elsewhere.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from appliance.clock import NS_PER_MS, Clock
from appliance.domain.errors import DeadlineExceeded, ProcessorLost, RunFailed, RunStopped
from appliance.domain.parts import Cut
from appliance.domain.request import RanPart, Request, Tensors
from appliance.policies.dispatch.partition import Partition
from appliance.runtime.profiles.times import RunTimes
from appliance.tasks.padding import Stacked


@dataclass(slots=True)
class Progress:
    """How far a network has come."""

    done: set[int] = field(default_factory=set)
    """Numbers of the parts that have run."""
    at: str | None = None
    """The group of processors that computed last; None: none has."""
    lost: set[tuple[str, str]] = field(default_factory=set)
    """Processors that were lost under it, by group and kind; it is not given to them again."""


class RunsParts(Protocol):
    """What a part needs of a group of processors: a part of the port `Runs`."""

    def run(
        self, handle: Any, inputs: Tensors, outputs: Sequence[str] | None, *, deadline_ns: int | None = None
    ) -> Awaitable[dict[str, Any]]: ...


@dataclass(frozen=True, slots=True)
class LoadedPart:
    """A part in memory: the kind of processor that it is prepared for, and what that calls it."""

    kind: str
    handle: Any


@dataclass(slots=True, eq=False)
class Rows:
    """A request whose rows another one runs with its own, through the whole network: between its parts nobody knows
    which rows are whose.
    """

    inputs: Tensors
    items: int
    answer: "asyncio.Future[Shared]"
    drop_ns: int | None = None
    """When nobody wants them any more; None: never."""


@dataclass(frozen=True, slots=True)
class Shared:
    """What came of rows in another request's run: nothing where there are no `outputs`."""

    outputs: dict[str, Any] | None
    ran: Sequence[RanPart] = ()
    run_items: int = 0
    """Of that run, where it is counted with this request: the one whose turn it was has gone."""


@dataclass(frozen=True, slots=True, eq=False)
class Commitment:
    """Parts that run next, one after the other in one group of processors. They are in memory and stay there, and
    nobody else has their worker, until the dispatcher is told that it is over.
    """

    group: str
    runs: RunsParts
    parts: Mapping[int, LoadedPart]
    """By number, in an order in which they can run."""
    others: Sequence[Rows] = ()
    """Who has rows in it; only where it is the whole network."""


class Dispatcher(Protocol):
    """Decides what runs next."""

    async def commit(self, progress: Progress) -> "Commitment | Rows":
        """Wait for a worker, then say which parts run there: at least one that is not done, none before what it needs;
        or that another request runs all of it, with its own rows. Whoever cancels waits no longer and holds nothing.

        Raises: Unavailable where no processor is left; DeadlineExceeded.
        """
        ...

    def ended(self, commitment: Commitment, ran: Mapping[int, int], items: int) -> None:
        """It is over, however it ended: `ran` are nanoseconds of the parts that have run, with so many rows: also with
        those of others that an earlier commitment brought.
        """
        ...


@dataclass(slots=True)
class Rest:
    """What is left of a network in parts while it waits for a worker."""

    begin: Callable[[int, tuple[int, ...], Sequence["Rest"]], Awaitable[int]]
    """Begins with some parts, in a group of processors by index, with the rows of others: gives the number of runs,
    once it is over.
    """
    join: Callable[[], Rows | None]
    """Its rows, for another request to run; None: its caller has gone this very moment."""
    takes_ns: Mapping[int, Mapping[int, int]]
    """Group of processors → what each part that runs there takes."""
    next: tuple[int, ...]
    """Numbers of the parts that run next: all of them, unless a policy decides otherwise."""
    times: Mapping[int, Mapping[int, RunTimes | None]] = field(default_factory=dict)
    """As `takes_ns`, of runs of any number of rows."""
    kinds: Mapping[int, Mapping[int, str]] = field(default_factory=dict)
    """As `takes_ns`: the kind of processor that each part runs on there."""
    parts: int = 0
    """Of the network."""
    is_whole: bool = False
    """All of it is left, and no processor was lost under it."""
    is_begun: bool = False
    """Some of it has run: it goes before all that has not begun."""
    partition: Partition | None = None
    """For that policy; None where there is one group ..."""
    on: Callable[[Sequence[int]], Partition] | None = None
    """... and the same on some groups only that run all of it."""
    at: str | None = None
    """As in `Progress`."""

    def may_join(self, other: "Rest") -> bool:
        """Whether its rows may run with those of another one that is about to."""
        return self.is_whole and other.is_whole and len(other.next) == other.parts

    def hoped_ns(self, group: int) -> Callable[[int, int, int], int] | None:
        """As `RunTimes.hoped_ns`, of what runs next in a group; None: nobody knows."""
        times = [self.times[group].get(number) for number in self.next]
        known = [one for one in times if one is not None]
        if len(known) < len(times):
            return None
        return lambda items, running, now_ns: sum(one.hoped_ns(items, 1, now_ns) for one in known)

    def holds_ns(self, group: int) -> int:
        """For how long what runs next holds a worker there."""
        return sum(self.takes_ns[group][number] for number in self.next)

    def kinds_ns(self, group: int) -> Mapping[str, int]:
        """The same, by kind of processor."""
        found: dict[str, int] = {}
        for number in self.next:
            kind = self.kinds[group][number]
            found[kind] = found.get(kind, 0) + self.takes_ns[group][number]
        return found


class PartsRun:
    """One request over the parts of its variant; event loop only."""

    def __init__(self, clock: Clock, cut: Cut, request: Request, outputs: Sequence[str], items: int = 1) -> None:
        """`outputs`: of the whole network, as asked for. `items`: rows that it brings."""
        self._clock = clock
        self._cut = cut
        self._request = request
        self._outputs = tuple(outputs)
        self._items = items
        self._tensors: dict[str, Any] = {}
        self._readers: Counter[str] = Counter()
        """Parts that have yet to read each tensor."""
        self._others: Sequence[Rows] = ()
        """Requests whose rows are in it."""
        self.run_items = items
        """Rows that it runs: its own and others'; 0: another one runs its own."""
        self.is_left = False
        """Its caller has gone, and it goes on for others."""
        self._under_way: asyncio.Future[dict[str, Any]] | None = None
        self.progress = Progress()
        self.ran: list[RanPart] = []
        """What ran where, in its order."""
        self._begin(())

    @property
    def took_ns(self) -> int:
        """Of all parts that have run."""
        return sum(one.took_ns for one in self.ran)

    @property
    def is_shared(self) -> bool:
        """Whether others wait for their rows in it."""
        return any(not one.answer.done() for one in self._others)

    @property
    def _drop_ns(self) -> int | None:
        """When nobody wants any of its rows any more; None: never."""
        drops = [self._request.drop_ns, *(one.drop_ns for one in self._others if not one.answer.done())]
        return None if None in drops else max(drop for drop in drops if drop is not None)

    async def run(self, dispatcher: Dispatcher) -> dict[str, Any]:
        """The outputs, exactly as the whole network would compute them. Whoever cancels waits for nothing: the run that
        is under way is the last one, and what it holds is given back after it. With rows of others in it (`is_shared`)
        it goes on until the last of them is late, so whoever leaves it then does not cancel it.

        Raises: DeadlineExceeded, once, for the request as a whole; RunFailed; Unavailable.
        """
        try:
            return await self._run(dispatcher)
        except BaseException:
            self._give_up_others()
            raise

    async def _run(self, dispatcher: Dispatcher) -> dict[str, Any]:
        while True:
            if len(self.progress.done) == len(self._cut.parts):
                outputs = dict(self._named(self._outputs))
                if not self._others:
                    return outputs
                if all(getattr(array, "shape", ())[:1] == (self.run_items,) for array in outputs.values()):
                    return self._divided(outputs)
                self._begin_alone()
            self._check_deadline()
            commitment = await dispatcher.commit(self.progress)
            if isinstance(commitment, Rows):
                self.run_items = 0
                shared = await commitment.answer
                if shared.outputs is not None:
                    self.ran, self.run_items = list(shared.ran), shared.run_items
                    return shared.outputs
                self._request.runs_alone = True  # it was let in, and must not start over again and again
                self._begin(())
                continue
            if commitment.others:
                self._begin(commitment.others)
            ran: dict[int, int] = {}
            over = partial(dispatcher.ended, commitment, ran, self.run_items)
            try:
                await self._run_there(commitment, ran)
            except asyncio.CancelledError:
                self._after_last(over)
                raise
            except BaseException as error:
                over()
                if not self._others or not isinstance(error, RunFailed | ValueError) or isinstance(error, RunStopped):
                    raise
                self._begin_alone()
            else:
                over()

    def _begin(self, others: Sequence[Rows]) -> None:
        """From the beginning, with the rows of others."""
        self._others = others
        self.run_items = self._items + sum(one.items for one in others)
        self._tensors = {} if others else dict(self._request.inputs)
        self._readers = Counter(name for part in self._cut.parts for name in part.inputs)
        self.progress = Progress(lost=self.progress.lost)
        self.ran = []

    def _begin_alone(self) -> None:
        """The rows of one of them may have spoilt the run for all."""
        self._request.runs_alone = True
        self._give_up_others()
        self._begin(())

    def _give_up_others(self) -> None:
        """They have to run by themselves."""
        for one in self._others:
            if not one.answer.done():
                one.answer.set_result(Shared(None))
        self._others = ()

    def _divided(self, outputs: dict[str, Any]) -> dict[str, Any]:
        """Each request's rows of the outputs, in arrays of its own: its own are returned."""
        end, uncounted = self._items, self.run_items if self.is_left else 0
        for one in self._others:
            start, end = end, end + one.items
            if not one.answer.done():  # else its caller has gone
                rows = {name: array[start:end].copy() for name, array in outputs.items()}
                one.answer.set_result(Shared(rows, self.ran, uncounted))
                uncounted = 0
        self._others = ()
        return {name: array[: self._items].copy() for name, array in outputs.items()}

    async def _run_there(self, commitment: Commitment, ran: dict[int, int]) -> None:
        """Until all of it has run, or its processor is lost."""
        for number, loaded in commitment.parts.items():
            self._check_deadline()
            part = self._cut.parts[number]
            inputs = self._named(part.inputs)
            begun_ns = self._clock.now_ns()
            deadline_ns = self._drop_ns
            try:
                made = await self._made(
                    commitment.runs.run(loaded.handle, inputs, part.outputs, deadline_ns=deadline_ns)
                )
            except RunStopped:
                self._check_deadline()
                raise
            except ProcessorLost:
                self.progress.lost.add((commitment.group, loaded.kind))
                return
            ran[number] = took_ns = self._clock.now_ns() - begun_ns
            self.ran.append(RanPart(number, commitment.group, loaded.kind, took_ns))
            self._tensors |= made
            self.progress.done.add(number)
            self.progress.at = commitment.group
            self._drop_read(part.inputs)

    def _named(self, names: Sequence[str]) -> Tensors:
        """Tensors that are there, of all whose rows are in it."""
        if not self._others:
            return {name: self._tensors[name] for name in names}
        return Stacked([self._request.inputs, *(one.inputs for one in self._others)], names, self._tensors)

    async def _made(self, run: Awaitable[dict[str, Any]]) -> dict[str, Any]:
        """What comes of a run, which goes on where the caller goes away."""
        self._under_way = asyncio.ensure_future(run)
        del run
        try:
            return await asyncio.shield(self._under_way)
        except asyncio.CancelledError:
            raise
        except BaseException:
            self._under_way = None  # the run holds the error, and that this frame: a circle that would keep the tensors
            raise

    def _after_last(self, over: Callable[[], None]) -> None:
        """The caller has gone; once nothing of it runs, it is over."""
        last = self._under_way
        if last is None or last.done():
            over()
            return

        def ended(run: "asyncio.Future[dict[str, Any]]") -> None:
            if not run.cancelled():
                run.exception()  # nobody else asks for it
            over()

        last.add_done_callback(ended)

    def _drop_read(self, names: Sequence[str]) -> None:
        """What nobody reads any more takes no memory."""
        for name in names:
            self._readers[name] -= 1
            if not self._readers[name] and name not in self._outputs:
                self._tensors.pop(name, None)

    def _check_deadline(self) -> None:
        """Raises: DeadlineExceeded."""
        drop_ns = self._drop_ns
        if drop_ns is not None and self._clock.now_ns() >= drop_ns:
            raise self.too_late()

    def too_late(self) -> DeadlineExceeded:
        """What its caller is told at the deadline."""
        request, now_ns = self._request, self._clock.now_ns()
        ran_ms = (now_ns - request.started_ns) / NS_PER_MS if request.started_ns else None
        waited_ms, decoded_ms = (now_ns - request.arrival_ns) / NS_PER_MS, request.decoded_ns / NS_PER_MS
        return DeadlineExceeded(waited_ms=waited_ms, decoded_ms=decoded_ms, ran_ms=ran_ms)
