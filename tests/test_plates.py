"""Pages with plates are found and read by the networks that are made on the spot."""

import json
from pathlib import Path

import cv2
import numpy as np
import onnxruntime
import pytest

from appliance.demo.zoo import toys
from appliance.demo.zoo.media import cut_line
from appliance.domain.catalogue import TaskKind, TaskSpec
from appliance.tasks.metrics import f1_of_regions
from appliance.tasks.text_detection import db_quads, reading_order
from tests import plates


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> plates.Pages:
    return plates.plates(tmp_path_factory.mktemp("plates"), count=40)


def test_page_networks_find_plates_and_read_their_numerals(pages: plates.Pages, tmp_path: Path) -> None:
    """All plates of all pages, where they are, from left to right; and nine of ten numerals at least."""
    spec = TaskSpec(TaskKind.TEXT_DETECTION, params=json.loads(pages.metadata.read_text())["params"])
    finder = onnxruntime.InferenceSession(pages.model)
    reader = onnxruntime.InferenceSession(toys.digits(tmp_path).model)
    right = numerals = 0
    for sample in json.loads((pages.evaluation / "truth.json").read_text())["samples"]:
        picture = cv2.imread(str(pages.evaluation / sample["file"]), cv2.IMREAD_GRAYSCALE)
        assert picture is not None
        (found,) = finder.run(None, {"image": picture[None, None].astype(np.float32) / 255})
        quads = [quad for _, quad in reading_order(db_quads(found[0, 0], spec))]
        regions = [{"quad": quad.tolist()} for quad in quads]
        assert f1_of_regions(regions, sample["regions"]).value == 1.0
        read = ""
        for quad in quads:
            corners = [(x, y) for x, y in quad.round().astype(int).tolist()]
            plate = cut_line(np.asarray(picture, np.uint8), corners)
            small = cv2.resize(plate, (8, 8), interpolation=cv2.INTER_AREA)
            (labels,) = reader.run(None, {"image": small[None, None].astype(np.float32) / 255})
            read += str(labels.argmax())
        assert len(read) == len(sample["numerals"])
        right += sum(one == other for one, other in zip(read, sample["numerals"], strict=True))
        numerals += len(read)
    assert numerals > 60
    assert right >= 0.9 * numerals


def test_pages_of_one_seed_are_reproducible(pages: plates.Pages, tmp_path: Path) -> None:
    again = plates.plates(tmp_path, count=40)
    names = sorted(path.name for path in pages.evaluation.iterdir())
    assert names == sorted(path.name for path in again.evaluation.iterdir())
    for name in names:
        assert (pages.evaluation / name).read_bytes() == (again.evaluation / name).read_bytes()
    assert pages.model.read_bytes() == again.model.read_bytes()
