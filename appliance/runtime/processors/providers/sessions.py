"""The blocking half of a kind that is an execution provider of ONNX Runtime.

A provider that cannot compute something leaves it to the CPU without a word, and so does one without its driver; so it
is looked at where each network was placed, and a probe at where it ran.
"""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

from appliance.domain.errors import LoadFailed, RunRefused, RunStopped
from appliance.domain.hardware import PreparedForm
from appliance.domain.request import Tensors
from appliance.domain.wording import plain
from appliance.runtime.processors.providers.placement import CPU, RECORD, misplaced, placed, ran_on

Options = Mapping[str, str]
Providers = Sequence[tuple[str, Options]]
OPTIMISED = "model.onnx"
_WEIGHTS = "model.bin"
_ERROR_ONLY = 3
_NUMBERS = {"float": np.float32, "float16": np.float16, "double": np.float64, "int64": np.int64, "int32": np.int32}


@dataclass(slots=True)
class Loaded:
    """A live session and the names it answers to."""

    session: Any
    build_id: str
    path: str
    providers: Providers
    output_names: tuple[str, ...]
    beyond: dict[str, Any] = field(default_factory=dict)
    """What a kind keeps for inputs that the session was not made for."""


class ProviderSessions:
    """Makes, uses and drops sessions of one provider; kinds beside it say with which options."""

    def __init__(self, provider: str, options: Options, threads_per_run: int = 1) -> None:
        self.provider = provider
        self._options = options
        self._threads = threads_per_run
        self._has_libraries = False

    def stop(self) -> Any:
        """What ends a run that is given it, before its next node; a network that is one node ends by itself only."""
        return ort.RunOptions()

    def providers(self, form: PreparedForm) -> Providers:
        """Those that may compute a form, the wanted one first. What they do not take stays on the CPU."""
        return [(self.provider, self._options)]

    def session_options(self, *, optimised: bool) -> Any:
        """No spinning, no arena on the CPU: as for the CPU's own sessions."""
        options = ort.SessionOptions()
        options.intra_op_num_threads = self._threads
        options.inter_op_num_threads = 1
        options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
        options.enable_cpu_mem_arena = False
        options.log_severity_level = _ERROR_ONLY
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.add_session_config_entry("session.set_denormal_as_zero", "1")
        options.add_session_config_entry(RECORD, "1")
        if optimised:
            options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        return options

    def load(self, form: PreparedForm) -> Loaded:
        """Raises: LoadFailed, also where the CPU would compute it."""
        try:
            providers = self.providers(form)
        except (OSError, ValueError, KeyError) as error:
            raise LoadFailed(build_id=form.build_id, reason=f"its form is not whole: {error}") from error
        session = self.make(form.path, form.build_id, providers, self.session_options(optimised=form.optimised))
        outputs = tuple(output.name for output in session.get_outputs())
        return Loaded(session, form.build_id, form.path, providers, outputs)

    def make(self, path: str, build_id: str, providers: Providers, options: Any) -> Any:
        """A session all of whose work is done by these providers. Raises: LoadFailed."""
        if self.provider not in ort.get_available_providers():
            raise LoadFailed(build_id=build_id, reason=f"this ONNX Runtime has no {self.provider}")
        if not self._has_libraries:
            self.find_libraries()
            self._has_libraries = True
        try:
            session = ort.InferenceSession(path, options, providers=list(providers))
        except Exception as error:
            raise LoadFailed(build_id=build_id, reason=plain(error)) from error
        first = str(session.get_providers()[0])
        if first != providers[0][0]:
            raise LoadFailed(build_id=build_id, reason=f"it fell back to {first}")
        if why := misplaced(placed(session), [name for name, _ in providers]):
            raise LoadFailed(build_id=build_id, reason=why)
        return session

    def find_libraries(self) -> None:
        """Have those that the provider is linked with in the process, where they are not where the system looks."""

    def supports(self, network: Path) -> bool:
        """Whether the provider itself computes all of it."""
        options = self.session_options(optimised=False)
        options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
        try:
            self.make(str(network), "supported", [(self.provider, self._options)], options)
        except LoadFailed:
            return False
        return True

    def run(self, loaded: Loaded, inputs: Tensors, outputs: Sequence[str] | None, stop: Any = None) -> dict[str, Any]:
        """One inference; the arrays are the caller's. Raises: RunRefused with the runtime's own words; RunStopped."""
        names = loaded.output_names if outputs is None else outputs
        try:
            return dict(zip(names, self.session_for(loaded, inputs).run(names, dict(inputs), stop), strict=True))
        except LoadFailed as error:
            raise RunRefused(variant_id=loaded.build_id, reason=error.reason) from error
        except Exception as error:
            if stop is not None and stop.terminate:
                raise RunStopped(variant_id=loaded.build_id, reason="it took longer than it may") from None
            raise RunRefused(variant_id=loaded.build_id, reason=plain(error)) from error

    def session_for(self, loaded: Loaded, inputs: Tensors) -> Any:
        """The one that takes inputs of these shapes."""
        return loaded.session

    def unload(self, loaded: Loaded) -> None:
        """Drop the session; memory of the device goes with it."""
        loaded.beyond.clear()
        del loaded.session

    def fell_back_to(self, loaded: Loaded) -> str:
        """Who computes in place of the provider: by what a session names first, and by who ran in a run of its own."""
        first = str(loaded.session.get_providers()[0])
        if first != self.provider:
            return first
        used = self._ran_on(loaded)
        return "" if self.provider in used else ", ".join(sorted(used)) or CPU

    def _ran_on(self, loaded: Loaded) -> set[str]:
        options = self.session_options(optimised=True)
        options.enable_profiling = True
        with tempfile.TemporaryDirectory(prefix="ran-on-") as folder:
            options.profile_file_prefix = str(Path(folder) / "profile")
            session = ort.InferenceSession(loaded.path, options, providers=list(loaded.providers))
            session.run(None, {one.name: _ones(one) for one in session.get_inputs()})
            return set(ran_on(Path(session.end_profiling())))

    def prepare(self, source: Path, target_dir: Path) -> str:
        """Write the graph as it was optimised for the provider, and its weights beside it.

        Raises: LoadFailed when the provider does not take it, or the CPU would compute it.
        """
        options = self.session_options(optimised=False)
        options.optimized_model_filepath = str(target_dir / OPTIMISED)
        options.add_session_config_entry("session.optimized_model_external_initializers_file_name", _WEIGHTS)
        options.add_session_config_entry("session.optimized_model_external_initializers_min_size_in_bytes", "1024")
        form = PreparedForm("prepared", str(source), 0, optimised=False)
        try:
            self.make(str(source), "prepared", self.providers(form), options)
            self.load(PreparedForm("prepared", str(target_dir / OPTIMISED), 0, optimised=True))
        except Exception as error:  # an operator that the provider does not know ...: another kind serves
            raise given_up(source, target_dir, error) from error
        return OPTIMISED


def given_up(source: Path, target_dir: Path, error: Exception) -> LoadFailed:
    """Why there can be no form of a file, of which nothing is left in its folder."""
    for file in target_dir.iterdir():
        file.unlink()
    reason = error.reason if isinstance(error, LoadFailed) else str(error)[:500]
    return LoadFailed(build_id=source.name, reason=reason)


def preload_cuda() -> None:
    """CUDA and cuDNN as they were installed beside ONNX Runtime: its wheel does not know where they are."""
    preload = getattr(ort, "preload_dlls", None)
    if preload is not None:
        preload()


def _ones(one: Any) -> Any:
    """An input of ones, its free sides 1; text where it is text."""
    shape = [side if isinstance(side, int) and side > 0 else 1 for side in one.shape]
    kind = str(one.type).removeprefix("tensor(").removesuffix(")")
    return np.ones(shape, _NUMBERS.get(kind, np.dtype(kind) if kind != "string" else np.object_))
