"""The state folder of a box as a scenario has it: networks that compute next to nothing and say how long their runs
take, for a processor of kind `emulated`, with the sizes, accuracies and times of the scenario.
"""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import onnx
from onnx import TensorProto, helper

from appliance.clock import SystemClock
from appliance.demo.zoo import graphs
from appliance.domain.catalogue import Application, Late, Precision, Prefer, RunBound, TensorSpec, Variant
from appliance.domain.hardware import EMULATED, PreparedForm, ProcessorDescription
from appliance.domain.jobs import ImportRequest
from appliance.domain.names import application_id, build_id, model_id
from appliance.domain.states import JobState
from appliance.lab.composition import _variant as variant_of
from appliance.lab.scenario import Scenario, VariantShape, latency_of, parse_scenario
from appliance.modelstore.importing.prepared import Builds
from appliance.modelstore.store.state_folder import StateFolder
from appliance.modelstore.store.store import ChangeFeed, Store
from appliance.runtime.processors.emulated.session import TIMES, EmulatedProcessor

INPUT, OUTPUT = "x", "y"
BODY = b'{"inputs": {"x": [[1.0]]}}'
"""A frame that such a network takes; behind it may stand as many spaces as a picture would have bytes."""
_HARMLESS = (RunBound({INPUT: (256, 1)}, 1e4, 1000),)


def one_busy_worker(run_ms: float, **promised: float) -> Scenario:
    """Return a box with one worker and an application `busy` with what is `promised`; its runs take `run_ms`."""
    variant = {"name": "one", "size_mb": 5, "accuracy": 90, "load_ms": 1, "latency_ms": {"gpu": {"1": run_ms}}}
    return parse_scenario(
        {
            "box": {"memory_mb": 500, "processors": [{"name": "gpu"}]},
            "models": [{"name": "busy", "variants": [variant]}],
            "applications": [{"name": "busy", "model": "busy", **promised}],
        }
    )


def settings_of(scenario: Scenario) -> dict[str, str]:
    """The environment of the box."""
    processor = scenario.processor
    wanted = [{"kind": EMULATED, "name": processor.name, "workers": processor.concurrency}]
    return {
        "APPLIANCE_PROCESSORS": json.dumps(wanted),
        "APPLIANCE_GUARD__ISOLATION": "none",
        "APPLIANCE_MEMORY__BUDGET_BYTES": str(scenario.memory_bytes),
        "APPLIANCE_QUEUES__INLINE_MS_MAX": "0",
        "APPLIANCE_SESSIONS__PER_TENANT_MAX": "4096",
        "APPLIANCE_SESSIONS__ALL_MAX": "4096",
        "APPLIANCE_LOG__FORMAT": "json",
    }


async def furnish(scenario: Scenario, folder: Path, *, shared: bool = False) -> None:
    """Make it. Several processors and tenants are not for this.

    `shared`: every tenant may make applications of the models.
    """
    assert len(scenario.box.processors) == 1
    assert not scenario.has_graphs
    assert all(one.tenant == "default" for one in scenario.applications)
    state = await asyncio.to_thread(StateFolder.open, folder / "state", reserve_bytes=0)
    shape = scenario.processor
    processor = EmulatedProcessor(shape.name, shape.concurrency, 1, 1)
    description = processor.describe()
    processor.close()
    builds = Builds(folder / "state" / "prepared", state.blobs, [description])
    store = Store(state, SystemClock(), ChangeFeed(), on_removed=builds.forget)
    await asyncio.to_thread(store.recover)
    try:
        for model in scenario.models:
            request = ImportRequest("default", model.name, "unused", shared=shared, application="")
            await store.imports.accept(model.name, request)
            for variant in model.variants:
                file = _network(folder / f"{model.name}-{variant.name}.onnx", variant, scenario)
                staged = await asyncio.to_thread(store.blobs.stage, [file])
                made = _variant(scenario, model.name, variant, staged.sha256, description)
                await store.models.put_variant(made, staged)
                builds.put(made)
                id = build_id(staged.sha256, EMULATED)
                await builds.reject(PreparedForm(id, str(file), 1, optimised=False, kind=EMULATED), "none is wanted")
            for moved in (JobState.RUNNING, JobState.DONE):
                await store.jobs.update(model.name, state=moved)
        for one in scenario.applications:
            await store.applications.create(
                Application(
                    application_id(one.tenant, one.name),
                    one.tenant,
                    one.name,
                    model_id("default", one.model),
                    latency_slo_ms=one.latency_slo_ms,
                    accuracy_min=one.accuracy_min,
                    weight=one.weight,
                    late=Late(one.late),
                    prefer=Prefer(one.prefer),
                )
            )
    finally:
        store.close()


def times_of(shape: VariantShape, scenario: Scenario) -> Mapping[str, float]:
    """Milliseconds by batch size, of one run at a time."""
    table = latency_of(shape, scenario.processor)
    assert table is not None, "checked when it was read"
    alone = min(concurrency for _, concurrency in table)
    return {str(batch): ms for (batch, concurrency), ms in table.items() if concurrency == alone}


def _network(path: Path, shape: VariantShape, scenario: Scenario) -> Path:
    """`y` = `x`; its name is in it, so that no two have the same content."""
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 1]) for name in (INPUT, OUTPUT)]
    graph = helper.make_graph([helper.make_node("Identity", [INPUT], [OUTPUT])], path.stem, values[:1], values[1:])
    model = graphs.model_of(graph)
    helper.set_model_props(model, {TIMES: json.dumps(times_of(shape, scenario))})
    onnx.save(model, path)
    return path


def _variant(
    scenario: Scenario, model: str, shape: VariantShape, sha256: str, description: ProcessorDescription
) -> Variant:
    of = next(one for one in scenario.models if one.name == model)
    made = variant_of(model_id("default", model), of, shape, [scenario.processor])
    assert made.profile is not None
    profile = replace(made.profile, processor=description.name, kind=EMULATED, hazards=(), runs=_HARMLESS)
    return replace(
        made,
        content_sha256=sha256,
        precision=Precision.OWN,
        inputs=(TensorSpec(INPUT, "FP32", (-1, 1)),),
        outputs=(TensorSpec(OUTPUT, "FP32", (-1, 1)),),
        profile=profile,
        batch_max=profile.shared_rows_max,
        shape_max={INPUT: (256, 1)},
    )
