"""A machine with a GPU and two DLA cores, as far as this process can tell."""

import sys

import pytest

from appliance.runtime.processors.dla import session as dla
from appliance.runtime.processors.providers import sessions as providers
from tests.fakes.onnxruntime import FakeOnnxRuntime
from tests.fakes.tensorrt import FakeCuda, FakeTensorRt


def install(monkeypatch: pytest.MonkeyPatch) -> tuple[FakeOnnxRuntime, FakeTensorRt, FakeCuda]:
    """Put fakes in the place of the libraries."""
    runtime, tensorrt, cuda = FakeOnnxRuntime(), FakeTensorRt(), FakeCuda()
    monkeypatch.setattr(providers, "ort", runtime)
    monkeypatch.setitem(sys.modules, "tensorrt", tensorrt)
    monkeypatch.setattr(dla, "cuda", lambda: cuda)
    return runtime, tensorrt, cuda
