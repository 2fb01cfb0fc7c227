"""Registry of processor kinds. Only the composition root imports this."""

from collections.abc import Callable, Mapping
from typing import Any

from appliance.runtime.processors.onnx import OnnxProcessor

PROCESSORS: Mapping[str, Callable[..., Any]] = {"cpu": OnnxProcessor}
