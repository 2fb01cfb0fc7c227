"""Port `Measure`: prepares and profiles builds in a child process, with the very sessions of serving.

The parent half is `ChildMeasure`; the child half is this module run as a program: one JSON order on standard input, one
JSON answer on standard output. `figures` says what is measured and how.
"""

import asyncio
import itertools
import json
import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from appliance.child import RESTS, Interrupted, die_with_parent, executed, run_child, scrubbed_environment
from appliance.confinement import converting
from appliance.confinement.available import CONFINEMENT, available
from appliance.confinement.landlock import OWN_PROCESS, confine, runtime
from appliance.confinement.limits import ChildLimits, enter
from appliance.domain.catalogue import Latency, Profile, RunBound
from appliance.domain.errors import LoadFailed, NotConfined, RunFailed
from appliance.domain.hardware import Growth, MeasureCase, PreparedForm, ProcessorDescription, Reference, TriedForm
from appliance.domain.runs_at_once import RunsAtOnce
from appliance.domain.wording import crashed
from appliance.resources.memory import MemoryLimits
from appliance.runtime import processors
from appliance.runtime.processors.cpu.heap import set_up
from appliance.runtime.processors.cpu.process_memory import CLEAR_REFS
from appliance.runtime.processors.cpu.session import OnnxSessions, is_worth_sleeping
from appliance.runtime.processors.cpu.threads import pin
from appliance.runtime.processors.measuring import figures
from appliance.runtime.processors.measuring.alone import ALONE, LeftAlone, Paused, left_alone
from appliance.runtime.processors.measuring.growing import Grower, Grown
from appliance.runtime.processors.measuring.same import check_same
from appliance.runtime.processors.sessions import InferenceSessions, Reduces, sessions_of

_SIZES = 3
"""Times that the size is measured; the first also sees what the runtime allocates once per process, so the median is
the build's own.
"""
_ADDRESSES_BYTES = 1 << 46
_PAUSED_S_MAX = 15.0
"""A processor is kept from others for one build for so long in all, whatever its child says; what takes longer is timed
beside others. Most take a second or so a batch size."""
WEIGHTS = "model.bin"
"""Where an imported graph has its weights that lie apart."""


class ChildMeasure:
    """Runs one child at a time: two measurements side by side would disturb each other."""

    def __init__(
        self,
        processors: Sequence[ProcessorDescription],
        limits: ChildLimits,
        scratch: Path,
        program: str = "appliance.runtime.processors.measuring.measure",
        paused: Paused = lambda _: nullcontext(),
        paused_s_max: float = _PAUSED_S_MAX,
    ) -> None:
        """`program`: module of the child; another one in tests. `paused`: entered while a build is timed, for
        `paused_s_max` in all.
        """
        self._program = program
        self._paused = paused
        self._paused_s_max = paused_s_max
        self._processors = {p.name: p for p in processors}
        self._limits = limits
        self._scratch = scratch
        self._turn = asyncio.Lock()

    async def prepare(
        self, source: str, target_dir: str, processor: str, *, is_reduced: bool = False
    ) -> PreparedForm | None:
        described = self._processors[processor]
        reduced = described.reduced if is_reduced else ""
        order = {
            "do": "prepare",
            "source": source,
            "target_dir": target_dir,
            "computes_in": reduced,
            **_on(described),
        }
        answer = await self._child(order, source)  # too large for this machine, or it crashed: that is the reason
        if answer["reason"]:
            raise LoadFailed(build_id=source, reason=answer["reason"])
        if not answer["prepared"]:
            return None
        path, size_bytes = str(Path(target_dir) / answer["prepared"]), answer["size_bytes"]
        return PreparedForm(target_dir, path, size_bytes, optimised=True, kind=described.kind, computes_in=reduced)

    async def profile(
        self,
        form: PreparedForm,
        processor: str,
        cases: Sequence[MeasureCase],
        growth: Growth = Growth(),  # noqa: B008
        reference: Reference | None = None,
    ) -> Profile:
        described = self._processors[processor]
        answer = await self._timed({"do": "profile", "growth": asdict(growth)}, form, processor, cases, reference)
        latencies = tuple(Latency(**row) for row in answer.pop("latencies"))
        runs = tuple(_run_bound(row) for row in answer.pop("runs"))
        hazards = tuple(answer.pop("hazards"))
        return Profile(
            processor=processor,
            latencies=latencies,
            hazards=hazards,
            runs=runs,
            kind=described.kind,
            computes_in=form.computes_in,
            **answer,
        )

    async def times(
        self, form: PreparedForm, processor: str, cases: Sequence[MeasureCase], reference: Reference | None
    ) -> tuple[Latency, ...]:
        answer = await self._timed({"do": "time"}, form, processor, cases, reference)
        return tuple(Latency(**row) for row in answer["latencies"])

    async def _timed(
        self,
        order: Mapping[str, Any],
        form: PreparedForm,
        processor: str,
        cases: Sequence[MeasureCase],
        reference: Reference | None,
    ) -> dict[str, Any]:
        """The answer to an order about a build with its cases."""
        with tempfile.TemporaryDirectory(dir=self._scratch, prefix="measure-") as folder:
            files = [save_inputs(Path(folder) / f"{i}.npz", case.inputs) for i, case in enumerate(cases)]
            order = {
                **order,
                "build_id": form.build_id,
                "path": form.path,
                "optimised": form.optimised,
                "computes_in": form.computes_in,
                **_on(self._processors[processor]),
                "reference": None if reference is None else asdict(reference),
                "cases": [
                    {"batch": case.batch, "file": file, "repeated": dict(case.repeated)}
                    for case, file in zip(cases, files, strict=True)
                ],
                "scratch": folder,
                "granted": str(Path(folder) / ALONE),
            }
            return await self._alone(order, form.build_id, processor, Path(folder) / ALONE)

    async def _alone(self, order: Mapping[str, Any], build_id: str, processor: str, granted: Path) -> dict[str, Any]:
        """The answer of a child that times runs: beside nothing else on its processor, or where it rests for others,
        begun anew whenever they have interrupted it.
        """
        while True:
            rests = RESTS.get()
            if rests is not None:
                await rests.over()  # before it is its turn, which others may take meanwhile
            paused = self._paused if rests is None else _as_it_is
            alone = LeftAlone(paused, processor, granted, self._paused_s_max)
            try:
                return await self._child(order, build_id, on_asked=alone.on_asked, is_timed=True)
            except Interrupted:
                continue
            finally:
                await alone.end()

    async def prepare_all(self, pairs: Sequence[tuple[str, str]], processor: str) -> list[PreparedForm | None]:
        described = self._processors[processor]
        order = {"do": "prepare all", "pairs": [list(pair) for pair in pairs], **_on(described)}
        try:
            answer = await self._child(order, pairs[0][0])
        except LoadFailed:  # one of them ends the process: the others have forms all the same
            return [await self._prepared(source, target, processor) for source, target in pairs]
        return [
            PreparedForm(
                target, str(Path(target) / made["prepared"]), made["size_bytes"], optimised=True, kind=described.kind
            )
            if made["prepared"]
            else None
            for (_source, target), made in zip(pairs, answer["made"], strict=True)
        ]

    async def _prepared(self, source: str, target_dir: str, processor: str) -> PreparedForm | None:
        try:
            return await self.prepare(source, target_dir, processor)
        except LoadFailed:
            return None

    async def supported(self, networks: Sequence[str], processor: str) -> tuple[bool, ...]:
        if not networks:
            return ()
        order = {"do": "supported", "networks": list(networks), **_on(self._processors[processor])}
        try:
            answer = await self._child(order, networks[0])
        except LoadFailed:  # asking ends the process: nobody knows which of them did
            return (False,) * len(networks)
        return tuple(bool(one) for one in answer["supported"])

    async def tried(
        self, forms: Sequence[tuple[PreparedForm, MeasureCase, Reference | None]], processor: str
    ) -> tuple[TriedForm, ...]:
        described = self._processors[processor]
        with tempfile.TemporaryDirectory(dir=self._scratch, prefix="measure-") as folder:
            trials = [
                {
                    "form": asdict(form),
                    "reference": None if reference is None else asdict(reference),
                    "file": save_inputs(Path(folder) / f"{number}.npz", case.inputs),
                }
                for number, (form, case, reference) in enumerate(forms)
            ]
            order = {"do": "try", "trials": trials, "scratch": folder, **_on(described)}
            answer = await self._child(order, forms[0][0].build_id)
        return tuple(TriedForm(**one) for one in answer["trials"])

    async def _child(
        self,
        order: Mapping[str, Any],
        build_id: str,
        *,
        on_asked: Callable[[str], None] = lambda word: None,
        is_timed: bool = False,
    ) -> dict[str, Any]:
        """Its answer, which is its last line; before that it may ask to be alone on its processor."""
        lines: list[bytes] = []

        def on_line(line: bytes) -> None:
            lines.append(line)
            on_asked(line.decode(errors="replace").strip())

        async with self._turn:
            try:
                ended = await run_child(
                    partial(executed, self._program, environment=scrubbed_environment()),
                    json.dumps({**order, "limits": asdict(self._limits), "parent": os.getpid()}).encode(),
                    wall_s=self._limits.wall_s,
                    on_line=on_line,
                    is_timed=is_timed,
                )
            except TimeoutError:
                raise LoadFailed(
                    build_id=build_id, reason=f"measuring took longer than {self._limits.wall_s:g} s"
                ) from None
        if ended.status != 0:
            words = crashed(-ended.status) if ended.status < 0 else f"exit status {ended.status}"
            reason = ended.stderr.strip().splitlines()[-1:] or [words]
            raise LoadFailed(build_id=build_id, reason=f"measuring failed: {reason[0][:300]}")
        answer: dict[str, Any] = json.loads(lines[-1])
        if "not_confined" in answer:
            raise NotConfined(missing=answer["not_confined"])
        if "load_failed" in answer:
            raise LoadFailed(build_id=build_id, reason=answer["load_failed"])
        if "run_failed" in answer:
            raise RunFailed(variant_id=build_id, reason=answer["run_failed"])
        return answer


def _as_it_is(_processor: str) -> AbstractAsyncContextManager[None]:
    """Nothing else runs there anyway, or the child ends."""
    return nullcontext()


def _on(processor: ProcessorDescription) -> dict[str, Any]:
    return {
        "kind": processor.kind,
        "workers": processor.workers,
        "threads": processor.threads_per_run,
        "cores": processor.cores,
    }


def _run_bound(row: Mapping[str, Any]) -> RunBound:
    shapes = {name: tuple(shape) for name, shape in row["shapes"].items()}
    return RunBound(shapes, row["run_ms"], row["peak_bytes"])


def save_inputs(path: Path, inputs: Mapping[str, np.ndarray]) -> str:
    """Arrays by number beside the list of their names, which may be anything; text as fixed-width text, so that
    nothing is pickled.
    """
    arrays = [np.asarray(value) for value in inputs.values()]
    plain = [array.astype(np.str_) if array.dtype.kind == "O" else array for array in arrays]
    np.savez(path, np.array(list(inputs), np.str_), *plain)
    return str(path)


# -- the child ---------------------------------------------------------------------------------------------------------


def main() -> None:
    """One order in, one answer out."""
    order = json.loads(sys.stdin.read())
    die_with_parent()
    pin(order["cores"])
    limits = limits_of(order)
    enter(limits, order["parent"])
    is_confined = confine(*files_of(order))
    is_confined = converting.enter() and is_confined
    if limits.must_be_confined and not is_confined:
        print(json.dumps({"not_confined": ", ".join(available().missing) or CONFINEMENT}), flush=True)
        return
    set_up()
    sessions = sessions_of(order["kind"], order["workers"], order["threads"])
    if order["do"] == "prepare":
        answer = _prepare(sessions, order["source"], order["target_dir"], order["computes_in"])
    elif order["do"] == "prepare all":
        answer = {"made": [_prepare(sessions, source, target) for source, target in order["pairs"]]}
    elif order["do"] == "supported":
        answer = {"supported": [sessions.supports(Path(network)) for network in order["networks"]]}
    elif order["do"] == "try":
        answer = {"trials": [asdict(_trial(sessions, trial)) for trial in order["trials"]]}
    else:
        try:
            answer = profile_of(sessions, order) if order["do"] == "profile" else _times(sessions, order)
        except LoadFailed as error:
            answer = {"load_failed": error.reason}
        except RunFailed as error:
            answer = {"run_failed": error.reason}
    print(json.dumps(answer), flush=True)


def limits_of(order: Mapping[str, Any]) -> ChildLimits:
    """Drivers of devices reserve address space by the hundred gigabytes: there it says nothing of what is taken."""
    limits = ChildLimits(**order["limits"])
    return replace(limits, memory_bytes=_ADDRESSES_BYTES) if processors.KINDS[order["kind"]].nodes else limits


def _prepare(sessions: InferenceSessions, source: str, target_dir: str, computes_in: str = "") -> dict[str, Any]:
    target = Path(target_dir)
    try:
        if computes_in:
            assert isinstance(sessions, Reduces), "its description says so"
            prepared = sessions.prepare_in(computes_in, Path(source), target)
        else:
            prepared = sessions.prepare(Path(source), target)
    except LoadFailed as error:
        return {"prepared": None, "reason": error.reason}
    return {"prepared": prepared, "reason": "", "size_bytes": sum(file.stat().st_size for file in target.iterdir())}


def files_of(order: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """What the child reads, and what it writes."""
    kind = processors.KINDS[order["kind"]]
    readable, writable = [*runtime(), *OWN_PROCESS, *MemoryLimits().files, *kind.reads], [CLEAR_REFS, *kind.nodes]
    if order["do"] == "prepare":
        return [*readable, *_with_weights(order["source"])], [*writable, order["target_dir"]]
    if order["do"] == "prepare all":
        sources = [file for source, _target in order["pairs"] for file in _with_weights(source)]
        return [*readable, *sources], [*writable, *(target for _source, target in order["pairs"])]
    if order["do"] == "supported":
        return [*readable, *order["networks"]], writable
    forms = [trial["form"] for trial in order["trials"]] if order["do"] == "try" else [order]
    references = [one["reference"] for one in (order["trials"] if order["do"] == "try" else [order])]
    for reference in references:
        if reference is not None:
            forms += [one for one in (reference["form"], reference["original"]) if one is not None]
    for form in forms:  # beside a prepared form lie its weights
        readable += [str(Path(form["path"]).parent)] if form["optimised"] else _with_weights(form["path"])
    return readable, [*writable, order["scratch"]]


def _with_weights(source: str) -> list[str]:
    """A file as it was imported or cut, and what it may have its weights in. What else lies beside it is others'."""
    return [source, str(Path(source).with_name(WEIGHTS))]


def _trial(sessions: InferenceSessions, order: Mapping[str, Any]) -> TriedForm:
    form, inputs = PreparedForm(**order["form"]), _load_inputs(order["file"])
    try:
        resident, peak, asleep, _wake_ns = figures.size(sessions, form, inputs)
        if order["reference"] is not None:
            check_same(sessions, sessions.load(form), order["reference"], [inputs])
    except (LoadFailed, RunFailed) as error:
        return TriedForm(reason=error.reason)
    can_sleep = is_worth_sleeping(resident, resident - asleep)
    return TriedForm(resident, max(peak, resident), asleep if can_sleep else None)


def _times(sessions: InferenceSessions, order: Mapping[str, Any]) -> dict[str, Any]:
    form, cases, on_device = _form(order), _cases(order), processors.KINDS[order["kind"]].device != "cpu"
    loaded = sessions.load(form)
    if order["reference"] is not None:
        check_same(sessions, loaded, order["reference"], [inputs for _batch, inputs in cases])
    with left_alone(order.get("granted")):
        few = figures.FEW
        rows = [figures.latency(sessions, loaded, batch, inputs, on_device, few) for batch, inputs in cases]
    return {"latencies": rows}


def _form(order: Mapping[str, Any]) -> PreparedForm:
    path, optimised, kind = order["path"], order["optimised"], order["kind"]
    return PreparedForm(order["build_id"], path, 0, optimised, kind=kind, computes_in=order["computes_in"])


def _cases(order: Mapping[str, Any]) -> list[tuple[int, dict[str, np.ndarray]]]:
    """(Batch, inputs)."""
    return [
        (case["batch"], _repeated(_load_inputs(case["file"]), case["batch"], case["repeated"]))
        for case in order["cases"]
    ]


def _repeated(inputs: dict[str, np.ndarray], batch: int, axes: Mapping[str, int]) -> dict[str, np.ndarray]:
    """Inputs with the rows of a smaller batch over and over, along `axes`."""
    return {
        name: np.concatenate([array] * (batch // array.shape[axes[name]]), axes[name]) if name in axes else array
        for name, array in inputs.items()
    }


def profile_of(sessions: InferenceSessions, order: Mapping[str, Any]) -> dict[str, Any]:
    form, cases = _form(order), _cases(order)
    load_cold_ms = figures.timed_load(sessions, form, cold=True)
    load_ms = min(figures.timed_load(sessions, form, cold=False) for _ in range(2))
    sizes = [figures.size(sessions, form, cases[0][1]) for _ in range(_SIZES)]
    resident, peak, asleep, wake_ns = (sorted(of)[_SIZES // 2] for of in zip(*sizes, strict=True))
    can_sleep = is_worth_sleeping(resident, resident - asleep)
    loaded = sessions.load(form)
    on_device = processors.KINDS[order["kind"]].device != "cpu"
    with left_alone(order.get("granted")):
        latencies = figures.latencies(sessions, loaded, cases, on_device)
    cases = cases[: len(latencies)]
    if order["reference"] is None:
        assert isinstance(sessions, OnnxSessions), "what a build may do to the box is found out on the first kind"
        grown = Grower(sessions, form, loaded, cases[0][1], order["growth"], order["scratch"]).grow()
    else:
        grown = Grown()
        check_same(sessions, loaded, order["reference"], [inputs for _batch, inputs in cases])
    inputs_of = [inputs for _batch, inputs in cases]
    at_once: list[dict[str, Any]] = []
    workers = order["workers"]
    runs = RunsAtOnce(workers, workers if on_device else len(os.sched_getaffinity(0)))
    if counts := runs.to_time([row["p50_ms"] for row in latencies]):
        with left_alone(order.get("granted")):
            for count in counts:
                several = (
                    figures.latency_at_once(sessions, loaded, alone, inputs, count, on_device)
                    for alone, inputs in zip(latencies, inputs_of, strict=True)
                )
                at_once += [row for row in itertools.takewhile(bool, several) if row]
    return {
        "runs": [asdict(bound) for bound in grown.runs],
        "hazards": grown.hazards,
        "resident_bytes": resident,
        "peak_bytes": max(peak, resident),
        "load_ms": load_ms,
        "load_cold_ms": load_cold_ms,
        "latencies": [*latencies, *at_once],
        "asleep_bytes": asleep if can_sleep else None,
        "wake_ns": wake_ns if can_sleep else None,
        "shared_rows_max": figures.shared_rows_max(sessions, loaded, cases, latencies),
    }


def _load_inputs(file: str) -> dict[str, np.ndarray]:
    with np.load(file, allow_pickle=False) as archive:
        names, *arrays = [archive[f"arr_{i}"] for i in range(len(archive.files))]
    return {
        str(name): array.astype(np.object_) if array.dtype.kind == "U" else array
        for name, array in zip(names, arrays, strict=True)
    }


if __name__ == "__main__":
    main()
