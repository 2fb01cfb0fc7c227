"""Watching the box and its devices: what each application has done and where its import stands, as one picture."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import httpx

from appliance.clock import NS_PER_S, Clock
from appliance.demo.board import Framed, Picture, Row, Streamed
from appliance.demo.figures import DeviceFigures, FrameFigures, Seen, SeenFrame, latencies, mean
from appliance.demo.fleet import Report
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
    runs: tuple[tuple[str, int], ...] = ()
    items_per_run: float | None = None


class Watch:
    """Keeps the figures of all applications; asks the box for the rest once a second."""

    def __init__(self, clock: Clock, server: RunningServer, tenancy: Tenancy, figures: Sequence[DeviceFigures]) -> None:
        self._clock = clock
        self._server = server
        self._tenancy = tenancy
        self.figures = figures
        """Of the applications, in the order of their devices."""
        self.streamed: list[Streamed | None] = [None] * len(figures)
        """Sessions of the devices that stream a clip, as they last told."""
        self.framed: dict[str, FrameFigures] = {}
        """By pipeline; a pipeline is defined, and followed, once its networks serve."""
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
        facts = report.facts
        framed = self._frame_devices.get(report.device)
        if report.kind == "failure":
            (framed or self.figures[report.device]).failures[facts["reason"]] += 1
        elif framed is not None:
            framed.add(SeenFrame(**facts))
        elif report.kind == "session":
            self.streamed[report.device] = Streamed(self.figures[report.device].name, **facts)
        else:
            self.figures[report.device].add(Seen(**facts))

    def follow(self, device: int, pipeline: str) -> None:
        """That device sends its frames."""
        self._frame_devices[device] = self.framed[pipeline]

    def serves(self, tenant: str, application: str) -> bool:
        """Whether it has a variant that answers, as the box last said."""
        known = self._box.applications.get((tenant, application))
        return known is not None and known.available

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
        jobs, items, runs = dict(self._box.jobs), 0, 0
        for tenant, client in self._tenancy.clients.items():
            applications.update({(tenant, one.name): one for one in client.applications()})
            if self._is_importing(tenant):
                newest_first = list(client.jobs())
                jobs.update({(tenant, job.model): job for job in reversed(newest_first)})
            its_items, its_runs = client.computed()
            items, runs = items + its_items, runs + its_runs
        admin = self._tenancy.admin
        processors = tuple((one.name, one.runs or 0) for one in admin.processors() if one.state == "serving")
        return BoxState(applications, jobs, admin.memory(), processors, items / runs if runs else None)

    def _is_importing(self, tenant: str) -> bool:
        known = [job for (owner, _), job in self._box.jobs.items() if owner == tenant]
        return not known or any(job.state not in ENDED for job in known)

    def unanswered(self) -> list[DeviceFigures | FrameFigures]:
        """Applications that have not answered yet, and pipelines."""
        return [one for one in self.everything() if not one.ok]

    def everything(self) -> list[DeviceFigures | FrameFigures]:
        """The figures of all applications, then of all pipelines."""
        return [*self.figures, *self.framed.values()]

    def is_settled(self) -> bool:
        """Whether every application answers with a variant whose accuracy is known, or never will, and every pipeline
        that can be defined has answered a frame.
        """
        answers = all(framed.ok for framed in self._frame_devices.values())
        return answers and all(self._is_settled(figures) for figures in self.figures)

    def _is_settled(self, figures: DeviceFigures) -> bool:
        if figures.accuracy is not None:
            return True
        job = self._box.jobs.get((figures.tenant, figures.name))
        has_ended = job is not None and job.state in ENDED
        return has_ended and (figures.ok > 0 or bool(self._import_trouble(figures)))

    def picture(self, url: str, key_file: str) -> Picture:
        """Everything as it stands."""
        box = self._box
        return Picture(
            elapsed_s=self.elapsed_s,
            rows=tuple(self._row(figures) for figures in self.figures),
            recognised=tuple(self._recognised()),
            resident_bytes=box.memory.used_bytes if box.memory else 0,
            budget_bytes=box.memory.budget_bytes if box.memory else 0,
            runs=box.runs,
            items_per_run=box.items_per_run,
            url=url,
            key_file=key_file,
            streamed=tuple(one for one in self.streamed if one is not None),
            framed=tuple(self._framed(figures) for figures in self.framed.values()),
        )

    def _row(self, figures: DeviceFigures) -> Row:
        name = (figures.tenant, figures.name)
        now_ns = self._clock.now_ns()
        memory, application, job = self._box.memory, self._box.applications.get(name), self._box.jobs.get(name)
        importing = job if job is not None and job.state not in ENDED else None
        return Row(
            application=figures.name,
            tenant=figures.tenant,
            variant=figures.variant,
            rate_per_s=figures.rate_per_s(now_ns),
            **latencies(figures.window(now_ns)),
            accuracy=figures.accuracy,
            warm_share=figures.warm / figures.ok if figures.ok else None,
            resident_bytes=sum(b.bytes for b in memory.builds if "/".join(name) in b.applications) if memory else None,
            variants_ready=len(application.variants) if application else 0,
            import_percent=importing.percent if importing else None,
            import_stage=importing.stage if importing else "",
            trouble="" if figures.ok else figures.trouble or self._import_trouble(figures),
        )

    def _framed(self, figures: FrameFigures) -> Framed:
        now_ns = self._clock.now_ns()
        window = figures.window(now_ns)
        return Framed(
            pipeline=figures.name,
            tenant=figures.tenant,
            rate_fps=figures.rate_per_s(now_ns),
            **latencies(window),
            in_time=figures.in_time / figures.sent if figures.sent else None,
            items_per_frame=mean([seen.items for seen in window]),
            cost_ms=mean([1000 * seen.cost_s for seen in window]),
            trouble=figures.trouble,
        )

    def _import_trouble(self, figures: DeviceFigures) -> str:
        job = self._box.jobs.get((figures.tenant, figures.name))
        if job is None or job.state not in (JobState.FAILED, JobState.CANCELLED):
            return ""
        return f"its import {job.state}: {job.error or job.message}"

    def _recognised(self) -> Iterator[tuple[str, str]]:
        for figures in sorted(self.everything(), key=lambda one: isinstance(one, DeviceFigures)):
            if figures.recognised:
                yield figures.name, "   ".join(list(figures.recognised)[-2:][::-1])
