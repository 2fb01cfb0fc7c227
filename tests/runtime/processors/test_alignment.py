"""Prepared forms are readable by the kernels: every weight starts at a multiple of 64 bytes, and the answers stay the same."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

from appliance.domain.hardware import PreparedForm
from appliance.runtime.processors.alignment import ALIGNMENT_BYTES, align
from appliance.runtime.processors.onnx import OnnxSessions, prepared_form
from appliance.zoo import toys

RUN = """
import sys, numpy as np
from pathlib import Path
from appliance.domain.hardware import PreparedForm
from appliance.runtime.processors.onnx import OnnxSessions
sessions = OnnxSessions(1)
image = np.load(sys.argv[2])
outputs = [sessions.run(sessions.load(PreparedForm("x", path, 0, path != sys.argv[3])), {"image": image}, None)
           for path in (sys.argv[1], sys.argv[3])]
assert np.allclose(outputs[0]["probabilities"], outputs[1]["probabilities"], atol=1e-5)
"""


def offsets_of(model: Path) -> list[int]:
    found = []
    for tensor in onnx.load(str(model), load_external_data=False).graph.initializer:
        for entry in tensor.external_data:
            if entry.key == "offset":
                found.append(int(entry.value))
            if entry.key.startswith("prepacked"):
                found += [int(part.split(";")[0]) for part in entry.value.split("|")[1:]]
    return found


@pytest.mark.parametrize("megabytes", [0.5, 1.0, 3.0])
def test_forms_of_odd_sizes_run(tmp_path: Path, megabytes: float) -> None:
    """Networks whose last layer ends off the grid used to end the process; now they answer as the plain file does."""
    source, target = toys.conv_net(tmp_path / "net.onnx", megabytes), tmp_path / "prepared"
    target.mkdir()
    assert OnnxSessions(1).prepare(source, target)
    form = prepared_form("x", target)
    assert isinstance(form, PreparedForm)
    assert any(offsets_of(Path(form.path)))
    assert all(offset % ALIGNMENT_BYTES == 0 for offset in offsets_of(Path(form.path)))
    image = tmp_path / "image.npy"
    np.save(image, np.random.default_rng(0).random((2, 3, 64, 64), np.float32))
    arguments = [sys.executable, "-c", RUN, form.path, str(image), str(source)]
    done = subprocess.run(arguments, cwd=Path(__file__).parents[3], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.returncode}: {done.stderr}"


def test_weights_that_lie_outside_are_refused(tmp_path: Path) -> None:
    """A graph that points beyond its weights is not made worse: it is refused."""
    source, target = toys.conv_net(tmp_path / "net.onnx", 0.5), tmp_path / "prepared"
    target.mkdir()
    OnnxSessions(1).prepare(source, target)
    (target / "model.bin").write_bytes(b"short")
    with pytest.raises(ValueError, match="outside"):
        align(target / "model.onnx", target / "model.bin")


def test_a_form_without_weights_of_its_own_stays(tmp_path: Path) -> None:
    """Small graphs keep their weights inside; there is nothing to move."""
    source, target = toys.tiny_add(tmp_path / "add.onnx"), tmp_path / "prepared"
    target.mkdir()
    assert OnnxSessions(1).prepare(source, target)
    assert prepared_form("x", target) is not None
