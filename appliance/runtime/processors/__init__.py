"""Registry of processor kinds. Only the composition root imports this."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from appliance.domain.hardware import EMULATED as EMULATED_KIND
from appliance.runtime.processors.cpu.kind import CPU
from appliance.runtime.processors.dla.kind import DLA
from appliance.runtime.processors.emulated.kind import EMULATED
from appliance.runtime.processors.kind import Kind
from appliance.runtime.processors.openvino.kind import OPENVINO
from appliance.runtime.processors.providers.cuda import CUDA
from appliance.runtime.processors.providers.tensorrt import TENSORRT
from appliance.runtime.processors.providers.xnnpack import XNNPACK
from appliance.runtime.processors.versions import version_of

FIRST = "cpu"
"""The kind that every box has: what is not measured on another, or must be in a guard, runs on it."""
KINDS: Mapping[str, Kind] = {
    FIRST: CPU,
    "openvino": OPENVINO,
    "cuda": CUDA,
    "tensorrt": TENSORRT,
    "dla": DLA,
    "xnnpack": XNNPACK,
    EMULATED_KIND: EMULATED,
}
PROCESSORS: Mapping[str, Callable[..., Any]] = {name: kind.processor for name, kind in KINDS.items()}


def check_processors(named: Sequence[tuple[str, str]]) -> None:
    """Kind and name of each, as the settings have them.

    Raises: RuntimeError naming the key that is wrong.
    """
    for index, (kind, name) in enumerate(named):
        key = f"processors[{index}]"
        if kind not in KINDS:
            raise RuntimeError(f"{key}.kind: {kind!r} is not one of: {', '.join(KINDS)}")
        if kind == EMULATED_KIND and len(named) > 1:
            raise RuntimeError(f"{key}.kind: {kind!r} is the only processor of a box that has it")
        if index == 0 and kind not in (FIRST, EMULATED_KIND):
            raise RuntimeError(f"{key}.kind: {FIRST!r} must be the first one")
        if kind in [other for other, _name in named[:index]] and not KINDS[kind].pins:
            raise RuntimeError(f"{key}.kind: {kind!r} is there twice")
        if name in [other for _kind, other in named[:index]]:
            raise RuntimeError(f"{key}.name: {name!r} is there twice")
        needed = KINDS[kind].distribution
        if needed and not version_of(needed):
            raise RuntimeError(f"{key}.kind: {kind!r} is not installed; take it out, or install the extra {kind!r}")


def check_cores(wanted: Sequence[tuple[str, Sequence[int]]], ours: Collection[int]) -> None:
    """Kind and cores of each, as the settings have them, and the cores that the box may use.

    Raises: RuntimeError naming the key that is wrong.
    """
    for index, (kind, cores) in enumerate(wanted):
        key = f"processors[{index}].cores"
        if cores and not KINDS[kind].pins:
            raise RuntimeError(f"{key}: {kind!r} places its threads itself; take it out")
        strange = sorted(set(cores) - set(ours))
        if strange:
            told = ", ".join(map(str, sorted(ours)))
            raise RuntimeError(f"{key}: {strange[0]} is none of the cores that this box may use: {told}")
        if len(set(cores)) < len(cores):
            raise RuntimeError(f"{key}: a core is there twice")


def check_memory(wanted: Sequence[tuple[str, int | None]]) -> None:
    """Kind and `memory_bytes` of each, as the settings have them.

    Raises: RuntimeError naming the key that is wrong.
    """
    for index, (kind, memory_bytes) in enumerate(wanted):
        if memory_bytes is not None and not KINDS[kind].has_memory:
            key = f"processors[{index}].memory_bytes"
            raise RuntimeError(f"{key}: {kind!r} computes in the machine's memory; see memory.budget_bytes")


def check_apart(wanted: Sequence[tuple[str, Sequence[int], int]]) -> None:
    """Kind, cores and threads of a run of each, as the settings have them: several of a kind have cores of their own,
    and runs alike, for builds are prepared and measured once for all of them.

    Raises: RuntimeError naming the key that is wrong.
    """
    for index, (kind, cores, threads) in enumerate(wanted):
        key = f"processors[{index}]"
        for before, (_kind, others, alike) in enumerate(wanted[:index]):
            if _kind != kind:
                continue
            if not cores or not others:
                raise RuntimeError(f"{key if not cores else f'processors[{before}]'}.cores: of several, say which")
            if shared := sorted(set(cores) & set(others)):
                raise RuntimeError(f"{key}.cores: {shared[0]} is one of processors[{before}]'s, too")
            if threads != alike:
                raise RuntimeError(f"{key}.threads_per_run: must be that of processors[{before}], {alike}")


def check_runtime() -> None:
    """Exactly one ONNX Runtime distribution may be installed: two overwrite each other's files in silence.

    Raises: RuntimeError naming them.
    """
    clashing = [name for name in _RUNTIMES if version_of(name)]
    if len(clashing) > 1:
        raise RuntimeError(f"{' and '.join(clashing)} are both installed and overwrite each other; keep one of them")


_RUNTIMES = ("onnxruntime", "onnxruntime-directml", "onnxruntime-gpu", "onnxruntime-openvino", "onnxruntime-silicon")
