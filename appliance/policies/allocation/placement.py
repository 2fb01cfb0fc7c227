"""Where instances go (Scrooge §3.4, §3.6), apart from what they are: full ones need a whole worker, partial ones the
best-fitting rest of one.

A worker that has the module loaded comes first (SC-22), then one that runs already, then a new one. Partial instances
are placed by falling share; when that runs out of workers, an exhaustive packing decides whether the type is really
short.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from appliance.policies.allocation.base import TOLERANCE, Existing, Part, Placed, WorkerType
from appliance.policies.allocation.configurations import Pipeline, Plans

PACKINGS_MAX = 20_000
"""Steps of the exhaustive packing."""


@dataclass(frozen=True, slots=True)
class Missing:
    """No way to place the instances of this worker type."""

    worker: str


@dataclass(slots=True)
class _Bin:
    """One worker while it is filled."""

    index: int
    room: float
    loaded: frozenset[str] = frozenset()
    is_new: bool = False
    parts: list[Part] = field(default_factory=list)

    def take(self, part: Part) -> None:
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
    """The instances of `plans` on workers, by worker type and index; or the first type, by name, that is short."""
    placed: list[Placed] = []
    for worker in sorted(workers, key=lambda w: w.name):
        fulls = [
            Part(stage.name, 1.0)
            for stage, plan in zip(pipeline.stages, plans, strict=True)
            for configuration, count in plan.fulls
            if configuration.worker == worker.name
            for _ in range(count)
        ]
        partials = [
            Part(stage.name, plan.share)
            for stage, plan in zip(pipeline.stages, plans, strict=True)
            if plan.partial is not None and plan.partial[0].worker == worker.name
        ]
        bins = _Bins(worker, [e for e in existing if e.worker == worker.name])
        if not bins.fill(fulls, partials):
            return Missing(worker.name)
        placed += (Placed(worker.name, b.index, tuple(b.parts), b.is_new) for b in bins.used())
    return tuple(placed)


def capacity(worker: WorkerType, existing: Collection[Existing]) -> float | None:
    """Workers of a type that a pipeline can take at most, shares included; None when there is no limit."""
    if worker.available is None:
        return None
    running = [e for e in existing if e.worker == worker.name]
    return max(0, worker.available - len(running)) + sum(room_of(e) for e in running)


def room_of(existing: Existing) -> float:
    return max(0.0, 1.0 - sum(part.share for part in existing.parts))


class _Bins:
    """The workers of one type: those that run already and new ones as they are opened."""

    def __init__(self, worker: WorkerType, existing: Sequence[Existing]) -> None:
        self._bins = [_Bin(e.index, room_of(e), frozenset(e.loaded)) for e in sorted(existing, key=lambda e: e.index)]
        self._indices = {e.index for e in existing}
        self._next = 0
        self._new_left = None if worker.available is None else max(0, worker.available - len(existing))

    def used(self) -> list[_Bin]:
        return sorted((b for b in self._bins if b.parts), key=lambda b: b.index)

    def fill(self, fulls: Sequence[Part], partials: Sequence[Part]) -> bool:
        if not self._fill_whole(fulls):
            return False
        partials = sorted(partials, key=lambda p: (-p.share, p.module))
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

    def _fill_whole(self, fulls: Sequence[Part]) -> bool:
        idle = sorted((b for b in self._bins if b.is_empty), key=lambda b: (len(b.loaded), b.index))
        waiting: list[Part] = []
        for part in fulls:
            loaded = next((b for b in idle if part.module in b.loaded), None)
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

    def _best_fit(self, partials: Sequence[Part]) -> bool:
        waiting: list[Part] = []
        for part in partials:
            loaded = [b for b in self._bins if part.module in b.loaded and b.fits(part.share)]
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

    def _pack(self, partials: Sequence[Part]) -> bool:
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
