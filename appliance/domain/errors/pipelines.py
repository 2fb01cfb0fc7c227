"""What goes wrong with pipelines: how they are defined, and who wants to be served by them."""

from dataclasses import dataclass

from appliance.domain.errors.conflicts import Conflict
from appliance.domain.errors.inputs import BadInput
from appliance.domain.errors.missing import NotFound


class UnknownPipeline(NotFound, what="pipeline"): ...


class UnknownClient(NotFound, what="client of the pipeline"):
    """Never joined the pipeline, left it, or was silent for long."""

    def message(self) -> str:
        return f"{super().message()}: it never joined, has left, or was silent for long; join again"


@dataclass(kw_only=True, eq=False)
class BadPipeline(BadInput, title="The pipeline cannot be run"):
    """A definition that cannot be run."""

    key: str
    """What of it is wrong, as `stages[1].after`."""


@dataclass(kw_only=True, eq=False)
class PipelineCycle(BadPipeline, title="Stages wait for one another"):
    """Stages wait for one another."""

    stages: tuple[str, ...]
    """Each is waited for by the next one, and the last by the first."""

    def message(self) -> str:
        return f"{self.key}: the stages wait for one another: {' -> '.join((*self.stages, *self.stages[:1]))}"


@dataclass(kw_only=True, eq=False)
class UnknownStage(BadPipeline, title="A stage waits for one that is not there"):
    """A stage waits for one that the pipeline does not have."""

    stage: str

    def message(self) -> str:
        return f"{self.key}: the pipeline has no stage {self.stage!r}"


@dataclass(kw_only=True, eq=False)
class StageMismatch(BadPipeline, title="A stage cannot take what comes before it"):
    """A stage cannot take what those before it give."""

    stage: str
    """Empty: the pipeline as a whole."""

    def message(self) -> str:
        named = f" of {self.stage!r}" if self.stage else ""
        return f"{self.key}{named}: {self.reason}"


@dataclass(kw_only=True, eq=False)
class TooManyStages(BadPipeline, title="Too many stages, or items"):
    """More stages than a pipeline may have, or more items than a frame."""

    count: int
    most: int
    what: str
    """`stages` or `items`."""

    def message(self) -> str:
        return f"{self.key}: {self.count} {self.what} are more than the {self.most} that a pipeline may have"


@dataclass(kw_only=True, eq=False)
class SloTooSmall(BadPipeline, title="The SLO is below what the fastest variants need"):
    """The fastest variants, one stage after another, take longer than the SLO."""

    key: str = "latency_slo_ms"
    latency_slo_ms: float
    needs_ms: float
    """Of the longest path."""
    path: tuple[str, ...]
    """Its stages that ask a network, each with its milliseconds, as `find 24`."""

    def message(self) -> str:
        return f"{self.key}: {' + '.join(self.path)} ms > {self.latency_slo_ms:g}"


@dataclass(kw_only=True, eq=False)
class ApplicationInUse(Conflict, title="Pipelines use the application"):
    """Pipelines need the application as it is; `name` is the application."""

    pipelines: tuple[str, ...]
    """The caller's own."""
    others: int = 0
    """Pipelines of other tenants, which its owner is not told the names of."""

    def message(self) -> str:
        users = [", ".join(self.pipelines)] if self.pipelines else []
        users += [f"{self.others} of other tenants"] if self.others else []
        return f"application {self.name!r} is used by the pipelines {' and '.join(users)}; change or delete those first"


@dataclass(kw_only=True, eq=False)
class PipelineNotPossible(Conflict, title="The pipeline's SLO cannot be held"):
    """The box cannot hold the SLO of a pipeline for one more client. `name` is the pipeline."""

    fps: float
    """That the client asked for."""
    fps_possible: float = 0.0
    """The most frames a second that would be accepted beside those that are served, to 2 %; 0: none is known of, for
    nothing would be accepted, or that was not found in time, or it was being looked for on behalf of another client.
    """
    missing: tuple[str, ...] = ()
    """What there is not enough of, as `processor cpu`."""
    reason: str = ""

    def message(self) -> str:
        why = f": {self.reason}" if self.reason else ""
        lacks = f" (what is missing: {', '.join(self.missing)})" if self.missing else ""
        return f"pipeline {self.name!r} cannot hold its SLO for {self.fps:g} frames a second more{why}{lacks}"
