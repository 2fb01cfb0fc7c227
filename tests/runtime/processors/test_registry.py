"""The registry of processor kinds, and that only one runtime is installed."""

from importlib.util import find_spec
from pathlib import Path

import pytest

from appliance.runtime.processors import PROCESSORS, check_apart, check_cores, check_processors, check_runtime


def test_registered_processor_describes_the_kind_of_registration() -> None:
    for kind, make in PROCESSORS.items():
        if kind == "openvino" and find_spec(kind) is None:
            continue
        processor = make(name="p", workers=1, threads_per_run=1, loads_parallel_max=1)
        assert processor.describe().kind == kind
        processor.close()


def test_single_onnx_runtime_is_accepted() -> None:
    """As the scripts install it."""
    check_runtime()


def test_second_onnx_runtime_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second distribution of ONNX Runtime, which overwrites files of the first, is named."""
    folder = tmp_path / "onnxruntime_gpu-1.31.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: onnxruntime-gpu\nVersion: 1.31.0\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(RuntimeError, match="onnxruntime and onnxruntime-gpu are both installed"):
        check_runtime()


@pytest.mark.parametrize(
    ("named", "told"),
    [
        ([("openvino", "o")], "processors[0].kind: 'cpu' must be the first one"),
        ([("cpu", "c"), ("openvino", "o"), ("openvino", "p")], "processors[2].kind: 'openvino' is there twice"),
        ([("cpu", "c"), ("cpu", "c")], "processors[1].name: 'c' is there twice"),
        (
            [("cpu", "c"), ("abacus", "a")],
            "processors[1].kind: 'abacus' is not one of: cpu, openvino, cuda, tensorrt, dla, xnnpack, emulated",
        ),
        ([("cpu", "c"), ("emulated", "e")], "processors[1].kind: 'emulated' is the only processor of a box"),
        (
            [("cpu", "c"), ("cuda", "g")],
            "processors[1].kind: 'cuda' is not installed; take it out, or install the extra",
        ),
        ([("cpu", "c"), ("openvino", "c")], "processors[1].name: 'c' is there twice"),
    ],
)
def test_invalid_processors_in_the_settings_are_refused(named: list[tuple[str, str]], told: str) -> None:
    """The error names the key."""
    with pytest.raises(RuntimeError) as caught:
        check_processors(named)
    assert str(caught.value).startswith(told)


@pytest.mark.parametrize(
    ("wanted", "told"),
    [
        ([("cpu", (0, 7, 1))], "processors[0].cores: 7 is none of the cores that this box may use: 0, 1"),
        ([("cpu", (1, 0, 1))], "processors[0].cores: a core is there twice"),
        ([("cpu", ()), ("openvino", (1,))], "processors[1].cores: 'openvino' places its threads itself; take it out"),
    ],
)
def test_invalid_cores_in_the_settings_are_refused(wanted: list[tuple[str, tuple[int, ...]]], told: str) -> None:
    """The error names the key."""
    with pytest.raises(RuntimeError) as caught:
        check_cores(wanted, {1, 0})
    assert str(caught.value) == told


@pytest.mark.parametrize(
    ("wanted", "told"),
    [
        ([("cpu", (0,), 1), ("cpu", (), 1)], "processors[1].cores: of several, say which"),
        ([("cpu", (), 1), ("openvino", (), 1), ("cpu", (1,), 1)], "processors[0].cores: of several, say which"),
        ([("cpu", (0, 1), 1), ("cpu", (1, 2), 1)], "processors[1].cores: 1 is one of processors[0]'s, too"),
        ([("cpu", (0, 1), 2), ("cpu", (2, 3), 1)], "processors[1].threads_per_run: must be that of processors[0], 2"),
    ],
)
def test_processors_of_a_kind_that_are_not_apart_are_refused(
    wanted: list[tuple[str, tuple[int, ...], int]], told: str
) -> None:
    """Else more would run at once than there are cores, or builds were prepared for another processor."""
    with pytest.raises(RuntimeError) as caught:
        check_apart(wanted)
    assert str(caught.value) == told


def test_processors_of_a_kind_on_separate_cores_are_accepted() -> None:
    check_apart([("cpu", (0,), 1), ("cpu", (1,), 1), ("openvino", (), 2)])


def test_cores_of_the_box_in_the_settings_are_accepted() -> None:
    check_cores([("cpu", (0, 1)), ("openvino", ())], {0, 1})
