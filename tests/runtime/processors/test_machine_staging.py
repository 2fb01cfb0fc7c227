"""Runs are staged on the machine as the box composes it: builds are known there by the handles that its processors,
its group of them, or its guards have given out.
"""

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from appliance.clock import SystemClock
from appliance.domain.hardware import PreparedForm
from appliance.machine import Machine
from appliance.runtime.processors.cpu.session import OnnxSessions
from appliance.settings import ProcessorSettings, Settings
from tests import toys

PATIENCE_S = 240.0
ALONE = [ProcessorSettings(workers=1)]
BESIDE = [*ALONE, ProcessorSettings(kind="openvino")]
INPUTS = {"image": np.ones((8, 3, 64, 64), np.float32)}


@pytest.mark.anyio
@pytest.mark.parametrize("processors", [ALONE, BESIDE], ids=["alone", "beside"])
async def test_staged_run_begins_when_the_run_before_has_ended(
    tmp_path: Path, processors: list[ProcessorSettings], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the first processor, without having been asked for."""
    is_staged, run = threading.Event(), OnnxSessions.run

    def run_later(*arguments: Any) -> dict[str, Any]:
        assert is_staged.wait(PATIENCE_S)
        return run(*arguments)

    monkeypatch.setattr(OnnxSessions, "run", run_later)
    machine = Machine(Settings(state_dir=tmp_path, processors=processors), SystemClock())
    path = toys.conv_net(tmp_path / "net.onnx", 5.0)
    loaded = await machine.processor.load(PreparedForm("net", str(path), path.stat().st_size, optimised=False))
    group = machine.groups[0]
    assert group.stage is not None
    first = group.runs.run(loaded, INPUTS, None)
    staged = group.stage(loaded, INPUTS, None, deadline_ns=None, begin_by_ns=None)
    assert staged is not None
    is_staged.set()
    before, after = await first, await staged.run
    assert staged.after is first
    assert not staged.revoke()
    np.testing.assert_array_equal(after["probabilities"], before["probabilities"])
    assert group.stage(None, INPUTS, None, deadline_ns=None, begin_by_ns=None) is None
    await machine.processor.unload(loaded)
    machine.processor.close()
