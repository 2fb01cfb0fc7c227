"""A run of a network in parts: a sequence of runs on processors, between which tensors are passed on (Band §4.3).

Who decides what runs next and where is behind the port `Dispatcher`; it is asked after each run, and is told how far
the network has come. What is computed stays when a processor is lost: the rest runs elsewhere.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from appliance.clock import NS_PER_MS, Clock
from appliance.domain.errors import DeadlineExceeded, ProcessorLost, RunStopped
from appliance.domain.hardware import ProcessorDescription
from appliance.domain.parts import Cut
from appliance.domain.request import Request, Tensors
from appliance.policies.dispatch.partition import Operator, Partition, Subgraph, partition


@dataclass(slots=True)
class Progress:
    """How far a network has come."""

    done: set[int] = field(default_factory=set)
    """Numbers of the parts that have run."""
    at: str | None = None
    """The processor that computed last; None: nobody has."""
    lost: set[str] = field(default_factory=set)
    """Processors that were lost under it; it is not given to them again."""


class RunsParts(Protocol):
    """What a part needs of a processor: a part of the port `Processor`."""

    def describe(self) -> ProcessorDescription: ...

    def run(
        self, handle: Any, inputs: Tensors, outputs: Sequence[str] | None, *, deadline_ns: int | None = None
    ) -> Awaitable[dict[str, Any]]: ...


@dataclass(frozen=True, slots=True)
class Commitment:
    """Parts that run next, one after the other on one processor. Their builds are in memory and stay there, and nobody
    else has the processor's slot, until the dispatcher is told that it is over.
    """

    processor: RunsParts
    handles: Mapping[int, Any]
    """Number of a part → its build as the processor loaded it, in an order in which they can run."""


class Dispatcher(Protocol):
    """Decides what runs next."""

    async def commit(self, request: Request, progress: Progress) -> Commitment:
        """Wait for a processor, then say which parts run there: at least one that is not done, none before what it
        needs. Whoever cancels waits no longer and holds nothing.

        Raises: Unavailable where no processor is left; DeadlineExceeded.
        """
        ...

    def ended(self, commitment: Commitment, ran: Mapping[int, int]) -> None:
        """It is over, however it ended: `ran` are nanoseconds of the parts that have run."""
        ...


class PartsRun:
    """One request over the parts of its variant; event loop only."""

    def __init__(self, clock: Clock, cut: Cut, request: Request, outputs: Sequence[str]) -> None:
        """`outputs`: of the whole network, as asked for."""
        self._clock = clock
        self._cut = cut
        self._request = request
        self._outputs = tuple(outputs)
        self._tensors: dict[str, Any] = dict(request.inputs)
        self._readers = Counter(name for part in cut.parts for name in part.inputs)
        """Parts that have yet to read each tensor."""
        self._under_way: asyncio.Future[dict[str, Any]] | None = None
        self.progress = Progress()

    async def run(self, dispatcher: Dispatcher) -> dict[str, Any]:
        """The outputs, exactly as the whole network would compute them. Whoever cancels waits for nothing: the run that
        is under way is the last one, and what it holds is given back after it.

        Raises: DeadlineExceeded, once, for the request as a whole; RunFailed; Unavailable.
        """
        while len(self.progress.done) < len(self._cut.parts):
            self._check_deadline()
            commitment = await dispatcher.commit(self._request, self.progress)
            ran: dict[int, int] = {}
            over = partial(dispatcher.ended, commitment, ran)
            try:
                await self._run_there(commitment, ran)
            except asyncio.CancelledError:
                self._after_last(over)
                raise
            except ProcessorLost:
                self.progress.lost.add(commitment.processor.describe().name)
                over()
            except BaseException:
                over()
                raise
            else:
                over()
        return {name: self._tensors[name] for name in self._outputs}

    async def _run_there(self, commitment: Commitment, ran: dict[int, int]) -> None:
        processor = commitment.processor
        for number, handle in commitment.handles.items():
            self._check_deadline()
            part = self._cut.parts[number]
            inputs = {name: self._tensors[name] for name in part.inputs}
            begun_ns = self._clock.now_ns()
            run = processor.run(handle, inputs, part.outputs, deadline_ns=self._request.drop_ns)
            self._under_way = asyncio.ensure_future(run)
            try:
                made = await asyncio.shield(self._under_way)
            except RunStopped:
                self._check_deadline()
                raise
            ran[number] = self._clock.now_ns() - begun_ns
            self._tensors |= made
            self.progress.done.add(number)
            self.progress.at = processor.describe().name
            self._drop_read(part.inputs)

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
        request, now_ns = self._request, self._clock.now_ns()
        if request.drop_ns is None or now_ns < request.drop_ns:
            return
        ran_ms = (now_ns - request.started_ns) / NS_PER_MS if request.started_ns else None
        waited_ms, decoded_ms = (now_ns - request.arrival_ns) / NS_PER_MS, request.decoded_ns / NS_PER_MS
        raise DeadlineExceeded(waited_ms=waited_ms, decoded_ms=decoded_ms, ran_ms=ran_ms)


def partition_of(name: str, cut: Cut, kinds: Mapping[str, str], latency_ms: Callable[[int, str], float]) -> Partition:
    """A cut network as the dispatch policies know it. `kinds`: of each processor, by name; `latency_ms`: of a part on a
    processor of a kind that runs it.
    """
    operators = [
        Operator(
            str(number),
            frozenset(processor for processor, kind in kinds.items() if kind in part.kinds),
            tuple(str(other) for other in cut.needs(number)),
        )
        for number, part in enumerate(cut.parts)
    ]
    latencies = {
        processor: {op.name: latency_ms(int(op.name), kind) for op in operators if processor in op.processors}
        for processor, kind in kinds.items()
    }
    return partition(name, operators, latencies)


def parts_of(subgraph: Subgraph) -> tuple[int, ...]:
    """Numbers of the parts in a subgraph of such a partition, in an order in which they can run."""
    return tuple(int(op) for op in subgraph.ops)
