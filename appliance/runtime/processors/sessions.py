"""The blocking half of each kind of processor: what serving and the measuring child share."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from appliance.domain.hardware import PreparedForm
from appliance.domain.request import Tensors


class InferenceSessions(Protocol):
    """Makes, uses and drops builds; whoever calls waits."""

    def load(self, form: PreparedForm) -> Any:
        """Raises: LoadFailed."""
        ...

    def run(self, loaded: Any, inputs: Tensors, outputs: Sequence[str] | None) -> dict[str, Any]:
        """One inference; the arrays are the caller's. Raises: RunRefused with the runtime's own words."""
        ...

    def unload(self, loaded: Any) -> None:
        """Drop it; the C heap keeps what it frees until it is trimmed."""
        ...

    def fell_back_to(self, loaded: Any) -> str:
        """What computes it in place of the processor that was asked for; empty where that does."""
        ...

    def supports(self, network: Path) -> bool:
        """Whether it computes all of a small ONNX file itself."""
        ...

    def prepare(self, source: Path, target_dir: Path) -> str | None:
        """Write the prepared form into an empty folder; the name of the file to load, None when there can be none.

        Raises: LoadFailed when there can be none, and the runtime says why.
        """
        ...


class Stoppable(InferenceSessions, Protocol):
    """Whose runs end, where they can, when `terminate` of what `stop` gave is set."""

    def stop(self) -> Any: ...

    def run(self, loaded: Any, inputs: Tensors, outputs: Sequence[str] | None, stop: Any = None) -> dict[str, Any]: ...


class InMemory(Protocol):
    """What `load` gives in a guard."""

    @property
    def output_names(self) -> tuple[str, ...]:
        """In the order in which a run gives all of them."""
        ...

    @property
    def mapped_bytes(self) -> int:
        """Of its weights, that it can give back and bring again; 0: it cannot."""
        ...


class GuardSessions(Stoppable, Protocol):
    """What computes in a guard."""

    def load(self, form: PreparedForm) -> InMemory: ...


@runtime_checkable
class Sleeps(Protocol):
    """A kind whose builds may have mapped weights."""

    def sleep(self, loaded: Any) -> None:
        """Give their pages back. Raises: RunFailed where they cannot be told any more."""
        ...

    def wake(self, loaded: Any) -> None:
        """Bring them again. Raises: LoadFailed."""
        ...


@runtime_checkable
class Reduces(Protocol):
    """A kind that may compute in a smaller number format than the network's (`ProcessorDescription.reduced`)."""

    def prepare_in(self, number_format: str, source: Path, target_dir: Path) -> str | None:
        """As `prepare`, of a form that computes in that format."""
        ...


def sessions_of(kind: str, workers: int, threads_per_run: int) -> InferenceSessions:
    """A kind's, imported only when it is wanted. Raises: LookupError."""
    from appliance.runtime.processors import KINDS

    if kind not in KINDS:
        raise LookupError(f"there is no kind of processor {kind!r}")
    return KINDS[kind].sessions(workers, threads_per_run)
