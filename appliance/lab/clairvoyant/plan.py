"""What a clairvoyant does reach: a plan made with every arrival known, carried out in virtual time on the emulated
processor. An estimate from below.

The plan is the best of `chains` in which loads begin as late as they may and as many requests as possible are warm; who
cannot be is not served. Carrying it out, the processor has no mercy: loads wait for one another, runs for the worker,
and a load for the memory that others have not given back yet. Then a request finds its variant not there and is cold,
as in the box. So the figures are reached, not promised; the best that any policy can do lies between them and `bound`.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass

import numpy as np

from appliance.clock import NS_PER_MS
from appliance.domain.hardware import PreparedForm, ProcessorDescription
from appliance.lab.clairvoyant.chains import Ask, Chains, Choice, Place, Schedule
from appliance.lab.loop import START_NS, VirtualClock, run_virtual
from appliance.lab.processors import BuildCost, EmulatedProcessor, Handle

SLACK_NS = 5 * NS_PER_MS
"""Planned for each load beyond its time: some runs wait for the worker before what they use can be unloaded."""
_PER_LOAD = 0.001
"""Accuracy that a load must bring at least: of equally good plans the one with fewer loads is the sturdier."""
_Key = tuple[int, int]
"""Model and rank of a variant."""
_INPUT = {"x": np.zeros(1, np.float32)}


@dataclass(frozen=True, slots=True)
class Reached:
    """Over all requests: `cold` is the share that was not warm, `utility` the accuracy of the answered per request."""

    cold: float
    utility: float


@dataclass(frozen=True, slots=True)
class Stay:
    """A variant in memory: its load begins at `load_ns` at the earliest, and it goes when the last of `asks` is
    answered.
    """

    model: int
    rank: int
    load_ns: int
    asks: tuple[int, ...]


def reached(schedule: Schedule, *, loads_parallel_max: int, workers: int) -> Reached:
    """Plan, and carry it out. Raises: ValueError without requests."""
    if not schedule.asks:
        raise ValueError("no arrivals, so nothing is reached")
    stays = plan(schedule)

    async def story() -> Reached:
        return await _Performance(schedule, stays, loads_parallel_max, workers).run()

    return run_virtual(story)


def plan(schedule: Schedule) -> list[Stay]:
    """The best stays, in the order of their loads."""
    chains = Chains(schedule, SLACK_NS)
    warm_max = chains.most(dict.fromkeys(chains.warm.values(), 1.0)).value
    gains = {column: _choice(schedule, place).accuracy for place, column in chains.warm.items()}
    chosen = chains.most(gains | dict.fromkeys(chains.brought.values(), -_PER_LOAD), warm_max - 0.5).values
    if not chosen:  # nothing was found in time
        return []
    kept = {place for place, column in chains.kept.items() if chosen[column] > 0.5}
    stays = [_stay(schedule, place, kept) for place, column in chains.brought.items() if chosen[column] > 0.5]
    return sorted(stays, key=lambda stay: (stay.load_ns, stay.model, stay.rank))


def _stay(schedule: Schedule, first: Place, kept: Set[Place]) -> Stay:
    """From the load for a request until the first one of the same model that it is not kept for."""
    model = schedule.asks[first.ask].model
    asks = [first.ask]
    for later in range(first.ask + 1, len(schedule.asks)):
        if schedule.asks[later].model == model:
            if Place(later, first.rank) not in kept:
                break
            asks.append(later)
    load_ns = schedule.asks[first.ask].at_ns - _choice(schedule, first).load_ns - SLACK_NS
    return Stay(model, first.rank, load_ns, tuple(asks))


def _choice(schedule: Schedule, place: Place) -> Choice:
    return schedule.choices[schedule.asks[place.ask].model][place.rank]


class _Performance:
    """Carries stays out; to be made inside the virtual loop."""

    def __init__(self, schedule: Schedule, stays: Sequence[Stay], loads_parallel_max: int, workers: int) -> None:
        self._schedule = schedule
        self._stays = stays
        self._clock = VirtualClock()
        self._processor = EmulatedProcessor(
            self._clock,
            ProcessorDescription("device", "device", workers, 1, "host", "emulated"),
            {_name(m, r): _cost(c) for m, choices in enumerate(schedule.choices) for r, c in enumerate(choices)},
            schedule.memory_bytes,
            loads_parallel_max,
        )
        self._workers = asyncio.Semaphore(workers)
        self._turn = asyncio.Lock()
        self._changed = asyncio.Event()
        self._taken: dict[_Key, int] = {}
        """Bytes of what is there, is being loaded or is leaving."""
        self._there: dict[_Key, Handle] = {}
        self._users: Counter[_Key] = Counter()
        self._coming = Counter(ask for stay in stays for ask in stay.asks)
        """Request → stays that are meant for it and are not there yet."""
        self._answered: set[int] = set()
        self._warm = 0
        self._accuracy = 0.0

    async def run(self) -> Reached:
        async with asyncio.TaskGroup() as group:
            for number in range(len(self._schedule.asks)):
                group.create_task(self._ask(number))
            for stay in self._stays:
                group.create_task(self._stay(stay))
        total = len(self._schedule.asks)
        return Reached(1 - self._warm / total, self._accuracy / total)

    async def _stay(self, stay: Stay) -> None:
        choice, key = self._schedule.choices[stay.model][stay.rank], (stay.model, stay.rank)
        peak, memory = _peak(choice), self._schedule.memory_bytes
        await self._clock.sleep_until_ns(START_NS + stay.load_ns)
        async with self._turn:  # the first to come is the first to load
            await self._until(lambda: key not in self._taken and sum(self._taken.values()) + peak <= memory)
            self._taken[key] = peak
        handle = await self._processor.load(PreparedForm(_name(*key), "", 0, optimised=True))
        self._taken[key] = choice.bytes
        self._there[key] = handle
        self._coming.subtract(stay.asks)
        self._changed.set()
        await self._until(lambda: self._answered.issuperset(stay.asks) and not self._users[key])
        del self._there[key]
        await self._processor.unload(handle)
        del self._taken[key]
        self._changed.set()

    async def _ask(self, number: int) -> None:
        """A request: served by the best variant that is there, else by what is planned for it as soon as that is
        there, else not at all.
        """
        ask = self._schedule.asks[number]
        await self._clock.sleep_until_ns(START_NS + ask.at_ns)
        key = self._best(ask)
        self._warm += key is not None
        if key is None:
            await self._until(lambda: not self._coming[number] or self._best(ask) is not None)
            key = self._best(ask)
        if key is not None:
            await self._serve(ask, key)
        self._answered.add(number)
        self._changed.set()

    def _best(self, ask: Ask) -> _Key | None:
        there = [key for key in self._there if key[0] == ask.model]
        return max(there, key=lambda key: self._schedule.choices[key[0]][key[1]].accuracy, default=None)

    async def _serve(self, ask: Ask, key: _Key) -> None:
        self._users[key] += 1
        async with self._workers:
            await self._processor.run(self._there[key], _INPUT, None)
        self._users[key] -= 1
        if self._clock.now_ns() <= START_NS + ask.at_ns + ask.patience_ns:
            self._accuracy += self._schedule.choices[key[0]][key[1]].accuracy

    async def _until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            self._changed.clear()
            await self._changed.wait()


def _peak(choice: Choice) -> int:
    return max(choice.peak_bytes, choice.bytes)


def _cost(choice: Choice) -> BuildCost:
    return BuildCost((), choice.bytes, _peak(choice), choice.load_ns, choice.unload_ns, {(1, 1): choice.run_ns})


def _name(model: int, rank: int) -> str:
    return f"{model}/{rank}"
