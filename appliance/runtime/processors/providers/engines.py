"""TensorRT by ONNX Runtime: engines are compiled at import, into the prepared form, and only read afterwards.

A prepared form is the graph as TensorRT wants it, the engines, the timing cache of their compilation, and what they
were compiled for. No timing cache is shared: the processes that write it hold uploads of different tenants. An engine
takes up to `ROWS_MAX` rows; longer batches, and forms that are not prepared, are computed
by the CUDA provider, which compiles nothing: a request never waits for a compiler.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from appliance.domain.hardware import PreparedForm
from appliance.domain.request import Tensors
from appliance.runtime.processors.providers import cuda_session as cuda
from appliance.runtime.processors.providers.sessions import (
    OPTIMISED,
    Loaded,
    Providers,
    ProviderSessions,
    given_up,
    preload_cuda,
)
from appliance.runtime.processors.providers.symmetric import make_symmetric

PROVIDER = "TensorrtExecutionProvider"
ROWS_MAX = 16
"""Of one run of an engine."""
_ROWS_USUAL = 4
"""That its kernels are chosen for."""
_COMPILED_FOR = "compiled.json"
_WEIGHTS = "model.bin"
_OPTIONS: Mapping[str, str] = {
    "device_id": "0",
    "trt_context_memory_sharing_enable": "1",
}


class TensorRtSessions(ProviderSessions):
    """Blocking half of `tensorrt`."""

    def __init__(self) -> None:
        super().__init__(PROVIDER, _OPTIONS)

    def providers(self, form: PreparedForm) -> Providers:
        on_cuda = (cuda.PROVIDER, cuda.OPTIONS)
        if not form.optimised:
            return [on_cuda]
        folder = Path(form.path).parent
        compiled = json.loads((folder / _COMPILED_FOR).read_text())
        cache = {"trt_engine_cache_enable": "1", "trt_engine_cache_path": str(folder)}
        return [(PROVIDER, {**_OPTIONS, **cache, **compiled["options"]}), on_cuda]

    def find_libraries(self) -> None:
        """TensorRT's package has its libraries in the process once it is imported; a system's are found without."""
        preload_cuda()
        with suppress(Exception):
            import tensorrt  # noqa: F401

    def session_options(self, *, optimised: bool) -> Any:
        """Engines are found again by the graph, so it is optimised the same way each time."""
        return super().session_options(optimised=False)

    def session_for(self, loaded: Loaded, inputs: Tensors) -> Any:
        """Beyond what its engine was compiled for, one of the CUDA provider's, made when it is first wanted."""
        if loaded.providers[0][0] != PROVIDER or all(len(array) <= ROWS_MAX for array in inputs.values() if array.ndim):
            return loaded.session
        if not is_of_free_batch(loaded.providers[0][1]):
            return loaded.session
        if "cuda" not in loaded.beyond:
            options = self.session_options(optimised=False)
            providers = [(cuda.PROVIDER, cuda.OPTIONS)]
            loaded.beyond["cuda"] = self.make(loaded.path, loaded.build_id, providers, options)
        return loaded.beyond["cuda"]

    def prepare(self, source: Path, target_dir: Path) -> str:
        """Compile into an empty folder: seconds to minutes. Raises: LoadFailed where TensorRT cannot, or sizes are
        free.
        """
        try:
            options = _adapt(source, target_dir / OPTIMISED)
            if options is None:
                raise ValueError("its inputs are of free size")
            (target_dir / _COMPILED_FOR).write_text(json.dumps({"options": options}))
            form = PreparedForm("prepared", str(target_dir / OPTIMISED), 0, optimised=True)
            first, *others = self.providers(form)
            timing = {"trt_timing_cache_enable": "1", "trt_timing_cache_path": str(target_dir)}
            compiling = [(first[0], {**first[1], **timing}), *others]
            self.make(form.path, "prepared", compiling, self.session_options(optimised=True))
            if not any(target_dir.glob("*.engine")):
                raise ValueError("no engine was compiled")
        except Exception as error:  # an operator that it does not know ...: another kind serves
            raise given_up(source, target_dir, error) from error
        return OPTIMISED


def is_of_free_batch(options: Mapping[str, str]) -> bool:
    """Whether an engine was compiled for several lengths."""
    return bool(options.get("trt_profile_max_shapes"))


def _adapt(source: Path, target: Path) -> dict[str, str] | None:
    """Write the graph as TensorRT wants it; the options to compile it with, None where sizes are free."""
    import onnx

    model = onnx.load(str(source))
    make_symmetric(model)
    onnx.save_model(
        onnx.shape_inference.infer_shapes(model) if model.ByteSize() < 2**30 else model,
        str(target),
        save_as_external_data=True,
        location=_WEIGHTS,
        size_threshold=1024,
    )
    constants = {one.name for one in model.graph.initializer}
    shapes: dict[str, Sequence[int]] = {}
    for one in model.graph.input:
        sides = [side.dim_value for side in one.type.tensor_type.shape.dim]
        if one.name in constants or all(sides):
            continue
        if not all(sides[1:]):
            return None
        shapes[one.name] = sides[1:]
    types = {one.data_type for one in model.graph.initializer}
    options = {
        "trt_fp16_enable": str(int(onnx.TensorProto.FLOAT16 in types)),
        "trt_int8_enable": str(int(any(node.op_type == "QuantizeLinear" for node in model.graph.node))),
    }
    for key, rows in (("min", 1), ("opt", _ROWS_USUAL), ("max", ROWS_MAX)):
        if shapes:
            options[f"trt_profile_{key}_shapes"] = ",".join(
                f"{name}:{'x'.join(map(str, (rows, *sides)))}" for name, sides in shapes.items()
            )
    return options
