"""Sends a scenario's arrivals to a real box in real time over the Open Inference Protocol, and counts the answers as a
simulation does.

What the box says of itself in `Server-Timing` gives warm or cold and the latency (queue + load + compute, what virtual
time can know); the time that the caller sees, network and HTTP included, is kept beside it.
"""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

import httpx

from appliance.cli.replay_inputs import Feed, Stream, Streams, feed_of
from appliance.clock import NS_PER_MS, NS_PER_S, Clock
from appliance.lab.outcome import Answer, Kind, Outcome, ProcessorUse
from appliance.lab.processors import MemoryParts
from appliance.lab.scenario import ApplicationShape, Scenario
from appliance.lab.workload import Arrival, nanoseconds
from appliance.terminal.failure import CommandFailed
from appliance.wire.box import MemoryShape
from appliance.wire.catalogue import ModelShape

DROPPED = (429, 504)
"""Statuses of what a simulation calls dropped: a limit was reached, or the deadline passed."""
PEEK_NS = NS_PER_S // 4
CONNECTIONS_MAX = 256


@dataclass(frozen=True, slots=True)
class Call:
    """What requests of one application are made of; `streams` where its model is stateful."""

    path: str
    headers: Mapping[str, str]
    feed: Feed
    streams: Streams | None

    def begin(self, now_ns: int) -> tuple[bytes, Mapping[str, str], Stream | None]:
        """Body and headers of the next request, and the sequence that it goes on with."""
        stream, parameters = (None, None) if self.streams is None else self.streams.take(now_ns)
        body, json_length = self.feed.body(parameters)
        length = {"Inference-Header-Content-Length": str(json_length), "Content-Type": "application/octet-stream"}
        return body, {**self.headers, **length}, stream

    def end(self, stream: Stream | None, now_ns: int, *, answered: bool) -> None:
        """The request's answer has come."""
        if self.streams is not None and stream is not None:
            self.streams.give(stream, now_ns, answered=answered)


@dataclass
class Failures:
    """Requests of one application that were not served for one reason."""

    application: str
    problem: str
    """Type of the problem (its last part), or the class of the error where no answer came."""
    status: int
    """0 where no answer came."""
    example: str
    count: int = 0


@dataclass
class Replayed:
    """The figures, and what only a real box has."""

    outcome: Outcome
    elapsed_ns: int
    client_ns: list[int]
    """Latency of each answer as the caller saw it."""
    behind_ns: list[int]
    """How late each request was sent."""
    failures: list[Failures]
    """The most frequent first."""


@dataclass
class _Seen:
    failures: dict[tuple[str, str, int], Failures] = field(default_factory=dict)
    answers: list[Answer] = field(default_factory=list)
    client_ns: list[int] = field(default_factory=list)
    behind_ns: list[int] = field(default_factory=list)
    compute_ns: int = 0
    memory_peak_bytes: int = 0
    fullest: MemoryParts | None = None


class Replay:
    """One run against one box."""

    def __init__(self, scenario: Scenario, clock: Clock, http: httpx.AsyncClient) -> None:
        """`http` has the box's address and the key."""
        self._scenario = scenario
        self._clock = clock
        self._http = http
        self._shapes = {shape.name: shape for shape in scenario.applications}
        self._accuracies = scenario.accuracies()
        self._seen = _Seen()

    async def run(self, arrivals: Sequence[Arrival]) -> Replayed:
        """To the last answer. Raises: CommandFailed when the box does not have an application of the scenario."""
        called = sorted({arrival.application for arrival in arrivals})
        calls = {name: await self._prepared(self._shapes[name]) for name in called}
        before = await self._memory()
        start_ns = self._clock.now_ns()
        watch = asyncio.create_task(self._watch_memory(), name="watch memory")
        await self._send_all(arrivals, calls, start_ns)
        elapsed_ns = self._clock.now_ns() - start_ns
        watch.cancel()
        await asyncio.gather(watch, return_exceptions=True)
        after = await self._memory()
        return Replayed(
            self._outcome(before, after, elapsed_ns),
            elapsed_ns,
            self._seen.client_ns,
            self._seen.behind_ns,
            sorted(self._seen.failures.values(), key=lambda one: (-one.count, one.application, one.problem)),
        )

    async def _send_all(self, arrivals: Sequence[Arrival], calls: Mapping[str, Call], start_ns: int) -> None:
        open_requests: set[asyncio.Task[None]] = set()
        for arrival in arrivals:
            await self._clock.sleep_until_ns(start_ns + arrival.at_ns)
            self._seen.behind_ns.append(self._clock.now_ns() - start_ns - arrival.at_ns)
            task = asyncio.create_task(self._ask(arrival, calls[arrival.application]), name="request")
            open_requests.add(task)
            task.add_done_callback(open_requests.discard)
        if self._scenario.duration_s is not None:
            await self._clock.sleep_until_ns(start_ns + nanoseconds(self._scenario.duration_s))
        if open_requests:
            await asyncio.wait(open_requests)

    async def _ask(self, arrival: Arrival, call: Call) -> None:
        shape = self._shapes[arrival.application]
        sent_ns = self._clock.now_ns()
        has_slo = shape.latency_slo_ms is not None
        body, headers, stream = call.begin(sent_ns)
        try:
            response = await self._http.post(call.path, content=body, headers=headers)
        except httpx.TransportError as error:
            problem, status, reason = type(error).__name__, 0, str(error)
        else:
            status = response.status_code
            problem, reason = ("", "") if response.is_success else told_by(response)
        now_ns = self._clock.now_ns()
        client_ns = now_ns - sent_ns
        call.end(stream, now_ns, answered=status == 200)
        if status != 200:
            lost: Kind = "dropped" if status in DROPPED else "failed"
            failures = Failures(shape.name, problem, status, reason)
            self._seen.failures.setdefault((shape.name, problem, status), failures).count += 1
            self._seen.answers.append(
                Answer(shape.name, lost, arrival.at_ns, client_ns, has_slo=has_slo, reason=reason, wait_ns=client_ns)
            )
            return
        timing = read_timing(response.headers.get("server-timing", ""))
        inside_ns = round(sum(timing.values()) * NS_PER_MS) if timing else client_ns
        variant = _variant_of(response)
        self._seen.client_ns.append(client_ns)
        self._seen.compute_ns += round(timing.get("compute", 0.0) * NS_PER_MS)
        self._seen.answers.append(
            Answer(
                shape.name,
                "cold" if "cold" in timing else "warm",
                arrival.at_ns,
                inside_ns,
                variant,
                self._accuracies.get((shape.name, variant), 0.0),
                shape.latency_slo_ms is not None and inside_ns > shape.latency_slo_ms * NS_PER_MS,
                has_slo,
                wait_ns=inside_ns - round(timing.get("compute", 0.0) * NS_PER_MS),
            )
        )

    # -- the box -------------------------------------------------------------------------------------------------------

    async def _prepared(self, shape: ApplicationShape) -> Call:
        """The request of an application, its inputs seeded by the scenario's seed and its name."""
        name = shape.name.removeprefix(f"{shape.tenant}/")
        tenant = {"X-Tenant": shape.tenant}
        described = await self._http.get(f"/v2/models/{name}", headers=tenant)
        if not described.is_success:
            raise CommandFailed(f"the box does not serve {shape.name!r}: {described.text[:200]}")
        model = await self._model(name, tenant)
        rng = Random(f"{self._scenario.seed}/{shape.name}")
        streams = Streams() if model is not None and model.task.state else None
        feed = feed_of(described.json()["inputs"], model, rng)
        return Call(f"/v2/models/{name}/infer", tenant, feed, streams)

    async def _model(self, application: str, tenant: Mapping[str, str]) -> ModelShape | None:
        """The model of an application; None where the key may not look."""
        use = await self._http.get(f"/v1/applications/{application}", headers=tenant)
        model = await self._http.get(f"/v1/models/{use.json().get('model')}", headers=tenant)
        return ModelShape.model_validate_json(model.content) if model.is_success else None

    async def _memory(self) -> MemoryShape:
        response = await self._http.get("/v1/memory")
        if not response.is_success:
            raise CommandFailed(f"the box does not tell its memory: {response.text[:200]}")
        memory = MemoryShape.model_validate_json(response.content)
        builds = memory.used_bytes - memory.overhead_bytes
        self._seen.memory_peak_bytes = max(self._seen.memory_peak_bytes, builds)
        free = memory.budget_bytes - memory.used_bytes - memory.runs_bytes
        if self._seen.fullest is None or free < self._seen.fullest.free:
            self._seen.fullest = MemoryParts(builds, memory.overhead_bytes, memory.runs_bytes, free)
        return memory

    async def _watch_memory(self) -> None:
        """Look four times a second: a peak between two looks is not seen."""
        while True:
            await self._clock.sleep_until_ns(self._clock.now_ns() + PEEK_NS)
            await self._memory()

    def _outcome(self, before: MemoryShape, after: MemoryShape, elapsed_ns: int) -> Outcome:
        processor = self._scenario.processor
        runs = sum(answer.variant is not None for answer in self._seen.answers)
        busy = self._seen.compute_ns / (elapsed_ns * processor.concurrency) if elapsed_ns else 0.0
        return Outcome(
            applications=tuple(self._shapes),
            answers=tuple(self._seen.answers),
            end_ns=elapsed_ns,
            processors={processor.name: ProcessorUse(busy, runs, runs)},
            memory_bytes=after.budget_bytes - after.overhead_bytes,
            memory_peak_bytes=self._seen.memory_peak_bytes,
            fullest=self._seen.fullest,
            loads=after.loads - before.loads,
            replacements=after.replacements - before.replacements,
            evictions=after.evictions - before.evictions,
            wakes=after.wakes - before.wakes,
        )


def read_timing(header: str) -> dict[str, float]:
    """`Server-Timing` as name → ms; 0 where a metric has no duration, as `warm` and `cold` have none."""
    timing: dict[str, float] = {}
    for metric in filter(None, (part.strip() for part in header.split(","))):
        name, _, duration = metric.partition(";dur=")
        timing[name] = float(duration or 0)
    return timing


def told_by(response: httpx.Response) -> tuple[str, str]:
    """Which problem an error is, and its sentence; the status where the answer is not the box's own."""
    problem = response.headers.get("problem-type", "").rpartition("/")[2] or f"HTTP {response.status_code}"
    try:
        return problem, str(json.loads(response.content)["error"])
    except (ValueError, KeyError, TypeError):
        return problem, response.text[:200]


def _variant_of(response: httpx.Response) -> str:
    """The name of the variant that answered."""
    length = response.headers.get("inference-header-content-length")
    head = response.content if length is None else response.content[: int(length)]
    return str(json.loads(head)["parameters"]["variant"])
