"""A probe runs a tiny network where it is asked to, and says why it could not."""

import asyncio
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from appliance.domain.errors import LoadFailed
from appliance.domain.hardware import PreparedForm, ProcessorDescription
from appliance.domain.request import Tensors
from appliance.runtime.processors.cpu.session import OnnxSessions
from appliance.runtime.processors.probe import NETWORK, ChildProbe, check
from tests.contracts.conftest import KINDS

pytestmark = pytest.mark.usefixtures("processes")


def asked(kind: str) -> ProcessorDescription:
    return ProcessorDescription(kind, kind, 2, 1, "host", f"{kind}-1")


def test_probe_network_is_a_valid_model() -> None:
    onnx.checker.check_model(onnx.load_from_string(NETWORK), full_check=True)


@pytest.mark.parametrize("kind", KINDS)
def test_probe_of_an_installed_kind_passes(kind: str, tmp_path: Path) -> None:
    """In a child; nothing of it stays on disk."""
    assert asyncio.run(ChildProbe(tmp_path)(asked(kind))) == ""
    assert list(tmp_path.iterdir()) == []


def test_probe_of_an_unknown_kind_fails(tmp_path: Path) -> None:
    assert "abacus" in asyncio.run(ChildProbe(tmp_path)(asked("abacus")))


@pytest.mark.skipif(sys.platform != "linux", reason="threads are pinned on Linux only")
def test_probe_on_cores_that_do_not_exist_fails(tmp_path: Path) -> None:
    """A probe runs on the cores of its processor, or not at all."""
    here = max(os.sched_getaffinity(0))
    assert asyncio.run(ChildProbe(tmp_path)(replace(asked("cpu"), cores=(here,)))) == ""
    assert "OSError" in asyncio.run(ChildProbe(tmp_path)(replace(asked("cpu"), cores=(here + 1000,))))


def test_probe_that_takes_too_long_fails(tmp_path: Path) -> None:
    assert asyncio.run(ChildProbe(tmp_path, wall_s=0.01)(asked("cpu"))) == "its probe took longer than 0.01 s"


class Elsewhere(OnnxSessions):
    """A runtime that computes on another device than it was asked for."""

    def fell_back_to(self, loaded: Any) -> str:
        return "CPUExecutionProvider"


class Wrong(OnnxSessions):
    """A device that computes nonsense."""

    def run(
        self, loaded: Any, inputs: Tensors, outputs: Sequence[str] | None, options: Any = None
    ) -> dict[str, np.ndarray]:
        return {"y": np.ones((1, 1, 2, 2), np.float32)}


class Driverless(OnnxSessions):
    """A runtime without its device."""

    def load(self, form: PreparedForm) -> Any:
        raise LoadFailed(build_id=form.build_id, reason="no device")


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (OnnxSessions, ""),
        (Elsewhere, "it fell back to CPUExecutionProvider"),
        (Wrong, "it computed [1.0, 1.0, 1.0, 1.0] in place of [0.0, 2.0, 4.0, 6.0]"),
        (Driverless, "no device"),
    ],
)
def test_probe_gives_the_reason_of_a_failure(made: type[OnnxSessions], reason: str, tmp_path: Path) -> None:
    assert check(made(1), tmp_path) == reason
