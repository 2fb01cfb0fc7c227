"""What a clairvoyant decides, as a mixed-integer programme: for every request, which variants are there, kept since the
request before or brought anew.

Each model's requests are a chain in time. For request r and variant v with load time θ, bytes b, run time ρ and unload
time υ:

- `kept`: v was there at the request before and stays, so b are taken all the time between the two.
- `brought`: a load of v ends between the two requests, so b are taken at the latest from θ before r on. Earlier loads
  take more, so as late as possible it is.
- `left`: v was there for r and is not kept for the next one. r was served by it (else it could have gone before), so b
  are taken for ρ + υ more.
- `warm`: r is served by v, which is kept or brought; one variant serves a request.

At every instant the bytes taken fit into the memory. A *bound* asks no more than that; a plan *to be carried out* also
has room for the peak of each load, and some slack around it (`slack_ns`).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from appliance.clock import NS_PER_MS
from appliance.lab.scenario import Scenario, latency_of, megabytes
from appliance.lab.workload import draw
from appliance.policies.milp import Program, Solved

_SOLVE_S = 10.0
"""The programmes of the sweep take half a second.

Where one takes longer, the bound that is proven by then holds, and the plan is the best one found.
"""


@dataclass(frozen=True, slots=True)
class Choice:
    """A variant that a model's requests may be served with."""

    bytes: int
    accuracy: float
    load_ns: int
    peak_bytes: int = 0
    run_ns: int = 0
    """At least; of one request alone."""
    unload_ns: int = 0
    name: str = ""


@dataclass(frozen=True, slots=True)
class Ask:
    """A request: nanoseconds after the start, of which model (index), and how long it waits for its answer."""

    at_ns: int
    model: int
    patience_ns: int


@dataclass(frozen=True)
class Schedule:
    """All that a clairvoyant knows: memory, `choices` by model, and `asks` ascending in time."""

    memory_bytes: int
    choices: Sequence[Sequence[Choice]]
    asks: Sequence[Ask]

    @classmethod
    def of(cls, scenario: Scenario) -> "Schedule":
        """A scenario's, its faults, queues and tenants' limits left out: those only make it harder.

        Applications of one model are one.

        Raises: ValueError for what the clairvoyant does not know: a least accuracy (a variant below it is there, but
        serves nobody), a fault that speeds up.
        """
        if any(shape.accuracy_min for shape in scenario.applications):
            raise ValueError("a least accuracy is unknown to the clairvoyant")
        if any(fault.factor is not None and fault.factor < 1 for fault in scenario.faults):
            raise ValueError("a slow-down that speeds up is unknown to the clairvoyant")
        models = {model.name: i for i, model in enumerate(scenario.models)}
        choices = []
        for model in scenario.models:
            rows = []
            for v in model.variants:
                latencies = latency_of(v, scenario.processor)
                assert latencies is not None, "checked when it was read"
                size, peak = megabytes(v.size_mb), megabytes(v.peak_mb or v.size_mb)
                load_ns, unload_ns = round(v.load_ms * NS_PER_MS), round(v.unloads_in_ms * NS_PER_MS)
                run_ns = round(min(latencies.values()) * NS_PER_MS)
                rows.append(Choice(size, v.accuracy, load_ns, peak, run_ns, unload_ns, v.name))
            choices.append(rows)
        by_name = {shape.name: shape for shape in scenario.applications}
        asks = [
            Ask(
                arrival.at_ns,
                models[by_name[arrival.application].model],
                round((by_name[arrival.application].latency_slo_ms or scenario.box.timeout_ms) * NS_PER_MS),
            )
            for arrival in draw(scenario.arrivals, scenario.seed, scenario.duration_s, scenario.base_dir)
        ]
        return cls(scenario.memory_bytes, choices, asks)


@dataclass(frozen=True, slots=True)
class Place:
    """A request and one of its model's variants, by index and rank."""

    ask: int
    rank: int


@dataclass(frozen=True, slots=True)
class _Span:
    """A share of the memory is taken in [start, end) as far as the column says."""

    start_ns: int
    end_ns: int
    share: float
    column: int


@dataclass
class Chains:
    """The programme of a schedule. Columns are by `Place`; those that cannot be are missing."""

    schedule: Schedule
    slack_ns: int | None = None
    """None: a bound."""
    program: Program = field(default_factory=Program)
    kept: dict[Place, int] = field(default_factory=dict)
    brought: dict[Place, int] = field(default_factory=dict)
    warm: dict[Place, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._memory: list[_Span] = []
        for model in range(len(self.schedule.choices)):
            self._chain([i for i, ask in enumerate(self.schedule.asks) if ask.model == model])
        self._fit()

    def most(self, gains: Mapping[int, float], warm_min: float = 0.0) -> Solved:
        """The best plan for `gains` by column with at least so many warm requests."""
        rows = len(self.program.rows)
        if warm_min > 0:
            self.program.at_least(warm_min, dict.fromkeys(self.warm.values(), 1.0))
        try:
            return self.program.most(gains, _SOLVE_S)
        finally:
            del self.program.rows[rows:]

    # -- one model's requests ------------------------------------------------------------------------------------------

    def _chain(self, asks: Sequence[int]) -> None:
        for before, ask in pairwise([None, *asks]):
            assert ask is not None
            for rank, choice in self._choices(ask):
                self._arrive(before, Place(ask, rank), choice)
            self._serve(ask)
        for ask, after in pairwise([*asks, None]):
            assert ask is not None
            for rank, choice in self._choices(ask):
                self._leave(Place(ask, rank), after, choice)

    def _choices(self, ask: int) -> Iterable[tuple[int, Choice]]:
        """Return the choices of a request that fit into the memory by themselves, each with its rank."""
        choices = self.schedule.choices[self.schedule.asks[ask].model]
        return [(rank, choice) for rank, choice in enumerate(choices) if choice.bytes <= self.schedule.memory_bytes]

    def _arrive(self, before: int | None, place: Place, choice: Choice) -> None:
        """The ways in which a variant may be there when its request comes."""
        at_ns = self.schedule.asks[place.ask].at_ns
        if before is not None:
            sources = self._there(Place(before, place.rank))
            if sources:
                column = self.kept[place] = self.program.column(1.0, whole=True)
                self.program.at_most(0.0, {column: 1.0, **dict.fromkeys(sources, -1.0)})
                self._memory.append(self._span(self.schedule.asks[before].at_ns, at_ns, choice.bytes, column))
        start_ns = at_ns - choice.load_ns - (self.slack_ns or 0)
        if start_ns >= 0:
            column = self.brought[place] = self.program.column(1.0, whole=True)
            self._memory.append(self._span(start_ns, at_ns, self._loading(choice), column))

    def _serve(self, ask: int) -> None:
        """One variant serves; where one is there, the request is warm."""
        places = [place for rank, _ in self._choices(ask) if self._there(place := Place(ask, rank))]
        for place in places:
            there = self._there(place)
            self.program.at_most(1.0, dict.fromkeys(there, 1.0))
            self.warm[place] = self.program.column(1.0, whole=True)
            self.program.at_most(0.0, {self.warm[place]: 1.0, **dict.fromkeys(there, -1.0)})
        warm = {self.warm[place]: 1.0 for place in places}
        for place in places:
            self.program.at_most(0.0, {**dict.fromkeys(self._there(place), 1.0), **{column: -1.0 for column in warm}})
        self.program.at_most(1.0, warm)

    def _leave(self, place: Place, after: int | None, choice: Choice) -> None:
        there = self._there(place)
        if not there:
            return
        left = self.program.column(1.0)
        stays = [] if after is None or (stay := self.kept.get(Place(after, place.rank))) is None else [stay]
        self.program.at_least(0.0, {left: 1.0, **dict.fromkeys(there, -1.0), **dict.fromkeys(stays, 1.0)})
        from_ns = self.schedule.asks[place.ask].at_ns
        end_ns = from_ns + choice.run_ns + choice.unload_ns + (self.slack_ns or 0)
        self._memory.append(self._span(from_ns, end_ns, choice.bytes, left))

    def _there(self, place: Place) -> list[int]:
        return [columns[place] for columns in (self.kept, self.brought) if place in columns]

    def _loading(self, choice: Choice) -> int:
        return choice.bytes if self.slack_ns is None else max(choice.peak_bytes, choice.bytes)

    def _span(self, start_ns: int, end_ns: int, size: int, column: int) -> _Span:
        return _Span(start_ns, end_ns, size / self.schedule.memory_bytes, column)

    # -- what is shared ------------------------------------------------------------------------------------------------

    def _fit(self) -> None:
        """At no instant is more taken than there is.

        It is enough to look where something begins and the next thing to happen is an end.
        """
        spans = self._memory
        events = sorted(
            [(s.start_ns, 1, i) for i, s in enumerate(spans) if s.start_ns < s.end_ns]
            + [(s.end_ns, 0, i) for i, s in enumerate(spans) if s.start_ns < s.end_ns]
        )
        active: set[int] = set()
        for (_, begins, index), (_, goes_on, _) in pairwise([*events, (0, 0, 0)]):
            if not begins:
                active.discard(index)
                continue
            active.add(index)
            if goes_on:
                continue
            taken: dict[int, float] = {}
            for i in sorted(active):
                taken[spans[i].column] = taken.get(spans[i].column, 0.0) + spans[i].share
            if sum(taken.values()) > 1:
                self.program.at_most(1.0, taken)
