"""Stages that a test asks of this process."""

from pathlib import Path
from typing import Any

import onnx
import pytest

from appliance.domain.catalogue import TaskSpec
from appliance.domain.errors import BadModel
from appliance.modelstore.orders import Inspection, InspectOrder
from appliance.modelstore.stages.inspect import inspect
from tests.modelstore import networks


def quiet(share: float, message: str) -> None:
    """Progress of which nothing is told."""


def inspected(
    made: onnx.ModelProto | str | Path, folder: Path, task: TaskSpec | None = None, **more: Any
) -> Inspection:
    """What the inspection finds in a model, or in the file of one."""
    folder.mkdir(exist_ok=True)
    path = networks.write(made, folder) if isinstance(made, onnx.ModelProto) else str(made)
    return inspect(InspectOrder(path, str(folder / "out"), task or TaskSpec(), **more), quiet)


def refusal(made: onnx.ModelProto | str | Path, folder: Path) -> str:
    """Why the inspection refuses it."""
    with pytest.raises(BadModel) as refused:
        inspected(made, folder)
    return str(refused.value)
