"""The small networks of the tests are valid, and of the promised size."""

from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest

from tests import toys

pytestmark = pytest.mark.gate("takes seconds")


def session(path: Path) -> ort.InferenceSession:
    return ort.InferenceSession(path, providers=["CPUExecutionProvider"])


def test_tiny_add_adds(tmp_path: Path) -> None:
    """The smallest model answers A + B for any batch."""
    net = session(toys.tiny_add(tmp_path / "add.onnx"))
    a = np.arange(12, dtype=np.float32).reshape(3, 4)
    assert np.array_equal(net.run(None, {"A": a, "B": a + 1})[0], 2 * a + 1)


@pytest.mark.parametrize("megabytes", [0.5, 2, 20])
def test_conv_net_has_the_requested_size(tmp_path: Path, megabytes: float) -> None:
    """The file is within 2 % of the size, and batch, height and width are free."""
    path = toys.conv_net(tmp_path / "net.onnx", megabytes)
    assert path.stat().st_size == pytest.approx(megabytes * 1e6, rel=0.02)
    net = session(path)
    for shape in ((1, 3, 32, 32), (3, 3, 64, 96)):
        answer = net.run(None, {"image": np.zeros(shape, np.float32)})[0]
        assert answer.shape == (shape[0], 10)
        assert np.allclose(answer.sum(axis=1), 1, atol=1e-5)


def test_conv_net_is_reproducible(tmp_path: Path) -> None:
    """Equal arguments give equal bytes, so a store that goes by content keeps one copy."""
    assert toys.conv_net(tmp_path / "a", 0.5).read_bytes() == toys.conv_net(tmp_path / "b", 0.5).read_bytes()


@pytest.mark.parametrize("make", [toys.squeezenet, toys.shufflenet])
def test_expanded_nets_answer_any_batch(tmp_path: Path, make: object) -> None:
    """Architectures with random weights give finite shares that sum to 1 and depend on the input, alone and in a
    batch.
    """
    assert callable(make)
    net = session(make(tmp_path / "net.onnx"))
    images = np.random.default_rng(0).standard_normal((2, 3, 224, 224), np.float32)
    answer = net.run(None, {net.get_inputs()[0].name: images})[0].reshape(2, -1)
    alone = net.run(None, {net.get_inputs()[0].name: images[1:]})[0].reshape(-1)
    assert answer.shape == (2, 1000)
    assert np.allclose(answer.sum(axis=1), 1, atol=1e-4)
    assert np.allclose(answer[1], alone, atol=1e-4)
    assert not np.allclose(answer[0], answer[1], atol=1e-6)


@pytest.mark.nightly("makes a network of 100 MB")
def test_toy_resnet50_has_the_size_of_the_real_network(tmp_path: Path) -> None:
    """The benchmark's ResNet-50 has the parameters of the real one: 25.6 million, 98 MiB."""
    assert toys.resnet50(tmp_path / "net.onnx").stat().st_size == pytest.approx(102.5e6, rel=0.01)
