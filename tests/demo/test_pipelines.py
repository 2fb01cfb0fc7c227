"""The demo's pipelines are such as its zoos can serve, and the box takes."""

from pathlib import Path

import pytest

from appliance.demo.pipelines import PIPELINES, borrowed, pipelines_of
from appliance.demo.zoo import ZooModel
from appliance.demo.zoo.catalogue import ZOOS, ZooName
from appliance.domain.catalogue import TaskKind
from appliance.domain.pipeline import Ask, Crop, Stage, Where
from appliance.domain.pipeline_graph import Graph
from appliance.wire.pipelines import AskOrder, CropOrder


def _models(zoo: ZooName) -> list[ZooModel]:
    nowhere = Path("nowhere")
    return [
        ZooModel(one.name, one.tenant, one.task, nowhere, {}, {}, (), None, (nowhere,), one.rate_rps)
        for one in ZOOS[zoo]
    ]


@pytest.mark.parametrize(("zoo", "names"), [("demo", ["signs", "people", "street"]), ("small", ["signs"]), ("ci", [])])
def test_zoo_has_the_demo_pipelines_whose_networks_are_all_there(zoo: ZooName, names: list[str]) -> None:
    assert [one.name for one in pipelines_of(_models(zoo))] == names


def test_demo_pipeline_gets_inputs_of_its_first_network() -> None:
    """The stages fit together, and the inputs are those of a network that a frame begins with."""
    kinds = {one.name: TaskKind(one.task) for one in ZOOS["demo"]}
    for pipeline in PIPELINES:
        stages = tuple(_stage(one) for one in pipeline.order.stages)
        graph = Graph.of(stages, {f"t/{name}": kind for name, kind in kinds.items()})
        assert graph.root_takes == "picture"
        first = [one for one in stages if isinstance(one, Ask) and not one.after]
        assert [one.application_id for one in first] == [f"t/{pipeline.inputs_of}"]


def test_demo_pipeline_borrows_applications_of_another_tenant() -> None:
    """`street` asks an application of the glasses."""
    models = _models("demo")
    assert {one.name: borrowed(one, models) for one in PIPELINES} == {
        "signs": [],
        "people": [],
        "street": [("glasses", "objects")],
    }


def _stage(order: object) -> Stage:
    if isinstance(order, AskOrder):
        return Ask(name=order.name, after=tuple(order.after), application_id=f"t/{order.application}")
    assert isinstance(order, CropOrder)
    return Crop(name=order.name, after=tuple(order.after), of=order.of, where=Where(), at_most=order.at_most)
