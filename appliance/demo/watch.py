"""Watching the box and its devices: what each application has done and where its import stands, as one picture for
the screen.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

from appliance.clock import NS_PER_S, Clock
from appliance.demo.board import Computed, Framed, Picture, Recognised, Row, Streamed
from appliance.demo.figures import DeviceFigures, Seen, percentile
from appliance.demo.fleet import Report
from appliance.demo.frames import FrameFigures, SeenFrame, mean
from appliance.demo.server import RunningServer
from appliance.demo.tenancy import Tenancy
from appliance.domain.errors import ApplianceError
from appliance.domain.states import JobState
from appliance.wire.box import MemoryShape
from appliance.wire.catalogue import ApplicationShape
from appliance.wire.jobs import JobShape

ASK_EVERY_NS = NS_PER_S
ENDED = (JobState.DONE, JobState.FAILED, JobState.CANCELLED)

Name = tuple[str, str]
"""(tenant, application)"""


@dataclass(slots=True)
class BoxState:
    """What the box last said about itself."""

    applications: dict[Name, ApplicationShape]
    jobs: dict[Name, JobShape]
    """The newest import of each model; models are named like their applications here."""
    memory: MemoryShape | None = None
    computed: Computed = field(default_factory=Computed)


class Watch:
    """Keeps the figures of all applications; asks the box for the rest once a second."""

    def __init__(self, clock: Clock, server: RunningServer, tenancy: Tenancy, figures: Sequence[DeviceFigures]) -> None:
        self._clock = clock
        self._server = server
        self._tenancy = tenancy
        self.figures = figures
        self.streamed: list[Streamed | None] = [None] * len(figures)
        """Sessions of the devices that stream a clip, as they last told."""
        self.framed: dict[str, FrameFigures] = {}
        """By pipeline."""
        self._frame_devices: dict[int, FrameFigures] = {}
        self._begin_ns = clock.now_ns()
        self._asked_ns = 0
        self._box = BoxState({}, {})

    @property
    def elapsed_s(self) -> float:
        """Since the watch began."""
        return (self._clock.now_ns() - self._begin_ns) / NS_PER_S

    def take(self, report: Report) -> None:
        """Count what a device reported; devices are numbered like the figures."""
        facts = dict(report.facts)
        framed = self._frame_devices.get(report.device)
        if framed is not None:
            self._take_frame(framed, report.kind, facts)
            return
        figures = self.figures[report.device]
        if report.kind == "session":
            self.streamed[report.device] = Streamed(figures.name, **facts)
        elif report.kind == "answer":
            figures.add(Seen(**facts))
        else:
            figures.add_failure(facts["reason"])

    def expect(self, figures: FrameFigures) -> None:
        """Show a pipeline, which is defined once its networks serve."""
        self.framed[figures.name] = figures

    def follow(self, device: int, pipeline: str) -> None:
        """That device sends its frames."""
        self._frame_devices[device] = self.framed[pipeline]

    def serves(self, tenant: str, application: str) -> bool:
        """Whether it has a variant that answers, as the box last said."""
        known = self._box.applications.get((tenant, application))
        return known is not None and known.available

    @staticmethod
    def _take_frame(figures: FrameFigures, kind: str, facts: dict[str, Any]) -> None:
        if kind == "frame":
            figures.add(SeenFrame(**facts))
        else:
            figures.add_failure(facts["reason"])

    def ask(self) -> bool:
        """Refresh what the box says, at most once a second; a busy box is asked again later. True: it has answered."""
        now_ns = self._clock.now_ns()
        if now_ns - self._asked_ns < ASK_EVERY_NS:
            return False
        self._server.check()
        try:
            self._box = self._asked()
            return True
        except (httpx.TransportError, ApplianceError):
            return False  # it has better things to do just now; the next second will tell
        finally:
            self._asked_ns = self._clock.now_ns()

    def _asked(self) -> BoxState:
        applications: dict[Name, ApplicationShape] = {}
        jobs = dict(self._box.jobs)
        for tenant in self._tenancy.tenants:
            client = self._tenancy.client(tenant)
            applications.update({(tenant, one.name): one for one in client.applications()})
            if self._is_importing(tenant):
                jobs.update(_newest(tenant, client.jobs()))
        return BoxState(applications, jobs, self._tenancy.admin.memory(), self._computed())

    def _computed(self) -> Computed:
        totals = [self._tenancy.client(tenant).computed() for tenant in self._tenancy.tenants]
        items, runs = (sum(figures) for figures in zip(*totals, strict=True))
        processors = self._tenancy.admin.processors()
        return Computed(
            tuple((one.name, one.runs or 0) for one in processors if one.state == "serving"),
            items / runs if runs else None,
        )

    def _is_importing(self, tenant: str) -> bool:
        known = [job for (owner, _), job in self._box.jobs.items() if owner == tenant]
        return not known or any(job.state not in ENDED for job in known)

    def unanswered(self) -> list[DeviceFigures | FrameFigures]:
        """Applications that have not answered yet, and pipelines."""
        silent: list[DeviceFigures | FrameFigures] = [figures for figures in self.figures if figures.ok == 0]
        return silent + [framed for framed in self.framed.values() if not framed.answered]

    def is_settled(self) -> bool:
        """Whether every application answers with a variant whose accuracy is known, or never will, and every pipeline
        that can be defined has answered a frame.
        """
        answers = all(framed.answered for framed in self._frame_devices.values())
        return answers and all(self._is_settled(figures) for figures in self.figures)

    def _is_settled(self, figures: DeviceFigures) -> bool:
        if figures.accuracy is not None:
            return True
        job = self._box.jobs.get((figures.tenant, figures.name))
        has_ended = job is not None and job.state in ENDED
        return has_ended and (figures.ok > 0 or bool(self._import_trouble(figures)))

    def picture(self, url: str, key_file: str) -> Picture:
        """Everything as it stands."""
        memory = self._box.memory
        return Picture(
            elapsed_s=self.elapsed_s,
            rows=tuple(self._row(figures) for figures in self.figures),
            recognised=tuple(self._recognised()),
            streamed=tuple(one for one in self.streamed if one is not None),
            framed=tuple(self._framed(figures) for figures in self.framed.values()),
            resident_bytes=memory.used_bytes if memory else 0,
            budget_bytes=memory.budget_bytes if memory else 0,
            computed=self._box.computed,
            url=url,
            key_file=key_file,
        )

    def _row(self, figures: DeviceFigures) -> Row:
        name = (figures.tenant, figures.name)
        now_ns = self._clock.now_ns()
        latencies = [seen.latency_ms for seen in figures.window(now_ns)]
        application, job = self._box.applications.get(name), self._box.jobs.get(name)
        is_importing = job is not None and job.state not in ENDED
        return Row(
            application=figures.name,
            tenant=figures.tenant,
            variant=figures.variant,
            rate_per_s=figures.rate_per_s(now_ns),
            p50_ms=percentile(latencies, 0.5),
            p99_ms=percentile(latencies, 0.99),
            accuracy=figures.accuracy,
            warm_share=figures.warm_share,
            resident_bytes=self._resident_bytes(f"{figures.tenant}/{figures.name}"),
            variants_ready=len(application.variants) if application else 0,
            import_percent=job.percent if is_importing and job else None,
            import_stage=job.stage if is_importing and job else "",
            trouble=self._trouble(figures),
        )

    def _framed(self, figures: FrameFigures) -> Framed:
        window = figures.window(self._clock.now_ns())
        latencies = [seen.latency_ms for seen in window]
        cost_s = mean([seen.cost_s for seen in window])
        return Framed(
            pipeline=figures.name,
            tenant=figures.tenant,
            rate_fps=figures.rate_fps(self._clock.now_ns()),
            p50_ms=percentile(latencies, 0.5),
            p99_ms=percentile(latencies, 0.99),
            in_time=figures.in_time_share,
            items_per_frame=mean([seen.items for seen in window]),
            cost_ms=None if cost_s is None else 1000 * cost_s,
            trouble="" if figures.answered or not figures.failures else figures.failures.most_common(1)[0][0],
        )

    def _resident_bytes(self, application_id: str) -> int | None:
        if self._box.memory is None:
            return None
        return sum(b.bytes for b in self._box.memory.builds if application_id in b.applications)

    def _trouble(self, figures: DeviceFigures) -> str:
        if figures.failures and not figures.ok:
            return figures.failures.most_common(1)[0][0]
        return self._import_trouble(figures) if not figures.ok else ""

    def _import_trouble(self, figures: DeviceFigures) -> str:
        job = self._box.jobs.get((figures.tenant, figures.name))
        if job is None or job.state not in (JobState.FAILED, JobState.CANCELLED):
            return ""
        return f"its import {job.state}: {job.error or job.message}"

    def _recognised(self) -> Iterator[Recognised]:
        seen: list[FrameFigures | DeviceFigures] = [*self.framed.values(), *self.figures]
        for figures in seen:
            if figures.recognised:
                yield Recognised(figures.name, "   ".join(list(figures.recognised)[-2:][::-1]))


def _newest(tenant: str, jobs: Iterator[JobShape]) -> dict[Name, JobShape]:
    """The newest job by model; the list has the newest first."""
    found: dict[Name, JobShape] = {}
    for job in jobs:
        found.setdefault((tenant, job.model), job)
    return found
