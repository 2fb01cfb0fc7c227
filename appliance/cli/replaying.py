"""Sends a scenario's arrivals to a real box in real time over the Open Inference Protocol, and counts the answers as a simulation does.

What the box says of itself in `Server-Timing` gives warm or cold and the latency (queue + load + compute, what virtual time can know);
the time that the caller sees, network and HTTP included, is kept beside it.
"""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import httpx
import numpy as np

from appliance.clock import NS_PER_MS, NS_PER_S, Clock
from appliance.lab.outcome import Answer, Kind, Outcome, ProcessorUse
from appliance.lab.scenario import ApplicationShape, Scenario
from appliance.lab.workload import Arrival, nanoseconds
from appliance.tasks.datatypes import dtype_of
from appliance.terminal.failure import CommandFailed
from appliance.wire.box import MemoryShape
from appliance.wire.catalogue import ModelShape

DROPPED = (429, 504)
"""Statuses of what a simulation calls dropped: a limit was reached, or the deadline passed."""
LENGTH_OF_SIGNALS, LENGTH_OF_TOKENS, SIDE, WIDTH_OF_LINES = 512, 128, 224, 320
"""Sizes of free axes: the first that the box itself profiles with."""
CHANNELS = (1, 3, 4)
PEEK_NS = NS_PER_S // 4
CONNECTIONS_MAX = 256


@dataclass(frozen=True, slots=True)
class Call:
    """A prepared request of one application."""

    path: str
    body: bytes
    headers: Mapping[str, str]


@dataclass
class Replayed:
    """The figures, and what only a real box has."""

    outcome: Outcome
    elapsed_ns: int
    client_ns: list[int]
    """Latency of each answer as the caller saw it."""
    behind_ns: list[int]
    """How late each request was sent."""


@dataclass
class _Seen:
    answers: list[Answer] = field(default_factory=list)
    client_ns: list[int] = field(default_factory=list)
    behind_ns: list[int] = field(default_factory=list)
    compute_ns: int = 0
    memory_peak_bytes: int = 0


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
            self._outcome(before, after, elapsed_ns), elapsed_ns, self._seen.client_ns, self._seen.behind_ns
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
        try:
            response = await self._http.post(call.path, content=call.body, headers=call.headers)
        except httpx.TransportError as error:
            reason, kind, status = type(error).__name__, "failed", 0
        else:
            status = response.status_code
            reason = "" if response.is_success else response.text[:200]
            kind = "dropped" if status in DROPPED else "failed"
        client_ns = self._clock.now_ns() - sent_ns
        if status != 200:
            lost: Kind = "dropped" if kind == "dropped" else "failed"
            self._seen.answers.append(
                Answer(shape.name, lost, arrival.at_ns, client_ns, has_slo=has_slo, reason=reason)
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
        sides = await self._sides(name, tenant)
        rng = Random(f"{self._scenario.seed}/{shape.name}")
        body, json_length = infer_body(described.json()["inputs"], rng, sides)
        headers = {"Inference-Header-Content-Length": str(json_length), "Content-Type": "application/octet-stream"}
        return Call(f"/v2/models/{name}/infer", body, tenant | headers)

    async def _sides(self, application: str, tenant: Mapping[str, str]) -> tuple[int | None, int | None]:
        """Height and width that the application's task prefers; None where it has no preference."""
        use = await self._http.get(f"/v1/applications/{application}", headers=tenant)
        model = await self._http.get(f"/v1/models/{use.json().get('model')}", headers=tenant)
        if not model.is_success:
            return None, None
        known = ModelShape.model_validate_json(model.content)
        image = known.task.image
        first = next((v for v in known.variants if v.height is not None), None)
        if first is not None:
            return first.height, first.width
        return (image.height, image.width) if image else (None, None)

    async def _memory(self) -> MemoryShape:
        response = await self._http.get("/v1/memory")
        if not response.is_success:
            raise CommandFailed(f"the box does not tell its memory: {response.text[:200]}")
        memory = MemoryShape.model_validate_json(response.content)
        self._seen.memory_peak_bytes = max(self._seen.memory_peak_bytes, memory.used_bytes)
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
            memory_bytes=after.budget_bytes,
            memory_peak_bytes=self._seen.memory_peak_bytes,
            loads=after.loads - before.loads,
            replacements=after.replacements - before.replacements,
            evictions=after.evictions - before.evictions,
        )


# -- on the wire -------------------------------------------------------------------------------------------------------


def infer_body(
    inputs: Sequence[Mapping[str, Any]], rng: Random, sides: tuple[int | None, int | None] = (None, None)
) -> tuple[bytes, int]:
    """Body of an infer call with binary tensors for the inputs of a model's metadata, and the length of its JSON.

    `sides`: height and width of pictures where the network leaves them open.
    """
    tensors = {one["name"]: _tensor(one, np.random.default_rng(rng.getrandbits(64)), sides) for one in inputs}
    raw = {name: _bytes_of(array) for name, array in tensors.items()}
    described = [
        {
            "name": one["name"],
            "datatype": one["datatype"],
            "shape": list(tensors[one["name"]].shape),
            "parameters": {"binary_data_size": len(raw[one["name"]])},
        }
        for one in inputs
    ]
    text = json.dumps({"inputs": described, "parameters": {"binary_data_output": True}}).encode()
    return text + b"".join(raw.values()), len(text)


def read_timing(header: str) -> dict[str, float]:
    """`Server-Timing` as name → ms; 0 where a metric has no duration, as `warm` and `cold` have none."""
    timing: dict[str, float] = {}
    for metric in filter(None, (part.strip() for part in header.split(","))):
        name, _, duration = metric.partition(";dur=")
        timing[name] = float(duration or 0)
    return timing


def _tensor(described: Mapping[str, Any], rng: np.random.Generator, sides: tuple[int | None, int | None]) -> np.ndarray:
    """Values that any network takes: noise, token ids 1..99, masks of ones, types of zero; a free first axis is one row."""
    dtype = dtype_of(described["datatype"])
    shape = _sizes(described["shape"], sides, is_signal=dtype.kind == "f")
    name = described["name"].lower()
    if dtype.kind == "f":
        return rng.standard_normal(shape).astype(dtype)
    if dtype.kind == "O":
        return np.full(shape, "text", dtype)
    if "type" in name or "segment" in name:
        return np.zeros(shape, dtype)
    return np.ones(shape, dtype) if "mask" in name or dtype.kind == "b" else rng.integers(1, 100, shape).astype(dtype)


def _sizes(shape: Sequence[int], sides: tuple[int | None, int | None], *, is_signal: bool) -> list[int]:
    if len(shape) == 4:
        height_at = 1 if shape[3] in CHANNELS else 2
        width = sides[1] or (SIDE if shape[height_at] < 0 else WIDTH_OF_LINES)
        free = {height_at: sides[0] or SIDE, height_at + 1: width}
        return [size if size >= 0 else free.get(axis, 1) for axis, size in enumerate(shape)]
    length = LENGTH_OF_SIGNALS if is_signal else LENGTH_OF_TOKENS
    return [size if size >= 0 else 1 if axis == 0 else length for axis, size in enumerate(shape)]


def _bytes_of(array: np.ndarray) -> bytes:
    if array.dtype.kind != "O":
        return array.tobytes()
    texts = [str(value).encode() for value in array.ravel()]
    return b"".join(len(text).to_bytes(4, "little") + text for text in texts)


def _variant_of(response: httpx.Response) -> str:
    """The name of the variant that answered."""
    length = response.headers.get("inference-header-content-length")
    head = response.content if length is None else response.content[: int(length)]
    return str(json.loads(head)["parameters"]["variant"])
