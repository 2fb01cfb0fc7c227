"""Where instances go (Scrooge §3.4, §3.6), apart from what they are: full ones need a whole worker, partial ones the
best-fitting rest of one.

A worker that has the module loaded comes first (SC-22), then one that runs already, then a new one. Partial instances
are placed by falling share; when that runs out of workers, an exhaustive packing decides whether the type is really
short. Types of one group share its workers. What an instance draws of another type is placed last, in pieces where it
fits nowhere whole: its runs go over to whichever worker is free.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import NamedTuple

from appliance.policies.allocation.base import TOLERANCE, Existing, Part, Placed, WorkerType
from appliance.policies.allocation.configurations import Configuration, Pipeline, Plans, StagePlan

PACKINGS_MAX = 20_000
"""Steps of the exhaustive packing."""


@dataclass(frozen=True, slots=True)
class Missing:
    """No way to place the instances of this worker type, or group of them."""

    pool: str


class _Instance(NamedTuple):
    """What a module takes of a worker, and of which type."""

    module: str
    share: float
    worker: str

    @property
    def loaded(self) -> tuple[str, str]:
        return self.worker, self.module


@dataclass(slots=True)
class _Bin:
    """One worker while it is filled. `loaded`: modules there, by worker type."""

    index: int
    room: float
    loaded: frozenset[tuple[str, str]] = frozenset()
    is_new: bool = False
    parts: list[_Instance] = field(default_factory=list)

    def take(self, part: _Instance) -> None:
        self.parts.append(part)
        self.room -= part.share

    def fits(self, share: float) -> bool:
        return share <= self.room + TOLERANCE

    @property
    def is_empty(self) -> bool:
        return self.room >= 1.0 - TOLERANCE


def place(
    pipeline: Pipeline, plans: Plans, workers: Iterable[WorkerType], existing: Collection[Existing]
) -> tuple[Placed, ...] | Missing:
    """The instances of `plans` on workers, by worker type and index; or the first pool, by name, that is short."""
    placed: list[Placed] = []
    workers = tuple(workers)
    for pool in sorted({worker.pool for worker in workers}):
        own: list[_Instance] = []
        drawn: list[_Instance] = []
        for stage, plan in zip(pipeline.stages, plans, strict=True):
            for c, share in _instances(plan):
                if c.pool == pool:
                    own.append(_Instance(stage.name, share, c.worker))
                drawn += (_Instance(stage.name, share * one.share, one.worker) for one in c.draws if one.pool == pool)
        fulls = [one for one in own if one.share == 1.0]
        partials = [one for one in own if one.share != 1.0]
        bins = _Bins(available_of(pool, workers), _running(pool, workers, existing))
        if not (bins.fill(fulls, partials) and bins.pour(drawn)):
            return Missing(pool)
        placed += (placed_on for b in bins.used() for placed_on in _placed(b))
    return tuple(sorted(placed, key=lambda one: (one.worker, one.index)))


def _instances(plan: StagePlan) -> Iterator[tuple[Configuration, float]]:
    """Its instances, each with its share."""
    for c, count in plan.fulls:
        yield from repeat((c, 1.0), count)
    if plan.partial is not None:
        yield plan.partial[0], plan.share


def available_of(pool: str, workers: Iterable[WorkerType]) -> int | None:
    """Workers of a pool that there are; None: as many as wanted."""
    return min((w.available for w in workers if w.pool == pool and w.available is not None), default=None)


def capacity(pool: str, workers: Collection[WorkerType], existing: Collection[Existing]) -> float | None:
    """Workers of a pool that a pipeline can take at most, shares included; None when there is no limit."""
    available = available_of(pool, workers)
    if available is None:
        return None
    running = _running(pool, workers, existing)
    return max(0, available - len(running)) + sum(b.room for b in running)


def _running(pool: str, workers: Iterable[WorkerType], existing: Iterable[Existing]) -> list[_Bin]:
    """Those of a pool that run already, by index, with what others leave of them."""
    names = {worker.name for worker in workers if worker.pool == pool}
    found: dict[int, list[Existing]] = {}
    for one in existing:
        if one.worker in names:
            found.setdefault(one.index, []).append(one)
    return [
        _Bin(
            index,
            max(0.0, 1.0 - sum(part.share for one in ones for part in one.parts)),
            frozenset((one.worker, module) for one in ones for module in one.loaded),
        )
        for index, ones in sorted(found.items())
    ]


def _placed(b: _Bin) -> list[Placed]:
    """What is taken of a worker, by worker type."""
    return [
        Placed(worker, b.index, tuple(Part(p.module, p.share) for p in b.parts if p.worker == worker), b.is_new)
        for worker in sorted({part.worker for part in b.parts})
    ]


class _Bins:
    """The workers of one pool: those that run already and new ones as they are opened."""

    def __init__(self, available: int | None, running: Sequence[_Bin]) -> None:
        self._bins = list(running)
        self._indices = {b.index for b in running}
        self._next = 0
        self._new_left = None if available is None else max(0, available - len(running))

    def used(self) -> list[_Bin]:
        return sorted((b for b in self._bins if b.parts), key=lambda b: b.index)

    def fill(self, fulls: Sequence[_Instance], partials: Sequence[_Instance]) -> bool:
        if not self._fill_whole(fulls):
            return False
        partials = sorted(partials, key=lambda p: (-p.share, p.module, p.worker))
        before = [(b, b.room, list(b.parts)) for b in self._bins]
        new_left = self._new_left
        if self._best_fit(partials):
            return True
        for b, room, parts in before:
            b.room, b.parts = room, parts
        del self._bins[len(before) :]
        self._indices = {b.index for b in self._bins}
        self._next = 0
        self._new_left = new_left
        return self._pack(partials)

    def pour(self, drawn: Iterable[_Instance]) -> bool:
        """What may be in pieces: where it fits best, else on a new worker, else where most room is left."""
        for part in sorted(drawn, key=lambda p: (-p.share, p.module, p.worker)):
            fitting = [b for b in self._bins if b.fits(part.share)]
            loaded = [b for b in fitting if part.loaded in b.loaded]
            target = min(loaded or fitting, key=lambda b: (b.room, b.index)) if fitting else self._open()
            if target is not None:
                target.take(part)
            elif not self._pour_in_pieces(part):
                return False
        return True

    def _pour_in_pieces(self, part: _Instance) -> bool:
        left = part.share
        for b in sorted(self._bins, key=lambda b: (-b.room, b.index)):
            piece = min(left, b.room)
            if piece > TOLERANCE:
                b.take(part._replace(share=piece))
                left -= piece
        return left <= TOLERANCE

    def _fill_whole(self, fulls: Sequence[_Instance]) -> bool:
        idle = sorted((b for b in self._bins if b.is_empty), key=lambda b: (len(b.loaded), b.index))
        waiting: list[_Instance] = []
        for part in fulls:
            loaded = next((b for b in idle if part.loaded in b.loaded), None)
            if loaded is None:
                waiting.append(part)
            else:
                loaded.take(part)
                idle.remove(loaded)
        for part in waiting:
            target = idle.pop(0) if idle else self._open()
            if target is None:
                return False
            target.take(part)
        return True

    def _best_fit(self, partials: Sequence[_Instance]) -> bool:
        waiting: list[_Instance] = []
        for part in partials:
            loaded = [b for b in self._bins if part.loaded in b.loaded and b.fits(part.share)]
            if loaded:
                min(loaded, key=lambda b: (b.room, b.index)).take(part)
            else:
                waiting.append(part)
        for part in waiting:
            fitting = [b for b in self._bins if b.fits(part.share)]
            target = min(fitting, key=lambda b: (b.room, b.index)) if fitting else self._open()
            if target is None:
                return False
            target.take(part)
        return True

    def _pack(self, partials: Sequence[_Instance]) -> bool:
        """Depth first over partial instances by falling share; equal rooms are tried once.

        New workers are opened up to the limit.
        """
        while len([b for b in self._bins if b.is_new and not b.parts]) < len(partials) and self._open():
            pass
        steps = 0

        def below(position: int) -> bool:
            nonlocal steps
            steps += 1
            if position == len(partials):
                return True
            part = partials[position]
            tried: set[float] = set()
            for b in self._bins:
                if steps > PACKINGS_MAX:
                    return False
                if not b.fits(part.share) or b.room in tried:
                    continue
                room = b.room
                tried.add(room)
                b.take(part)
                if below(position + 1):
                    return True
                b.parts.pop()
                b.room = room
            return False

        return below(0)

    def _open(self) -> _Bin | None:
        if self._new_left is not None:
            if self._new_left == 0:
                return None
            self._new_left -= 1
        while self._next in self._indices:
            self._next += 1
        self._indices.add(self._next)
        self._bins.append(_Bin(self._next, 1.0, is_new=True))
        return self._bins[-1]
