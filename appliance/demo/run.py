"""One run of the demo, in order: fetch, start, set up, send, show, sum up; and everything ended again in the reverse
order.
"""

import json
import signal
import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

import httpx
from rich.console import RenderableType
from rich.live import Live

from appliance.clock import NS_PER_S, SystemClock, pause_s
from appliance.demo import board
from appliance.demo.device import DeviceOrder
from appliance.demo.downloads import fetched_or_smaller
from appliance.demo.figures import Figures
from appliance.demo.fleet import Fleet
from appliance.demo.pipelines import DemoPipeline, borrowed, pipelines_of
from appliance.demo.server import Server
from appliance.demo.tenancy import Tenancy
from appliance.demo.zoo import ZooModel, ZooName
from appliance.domain.errors import ApplianceError, ModelUnavailable, Unavailable, UnknownApplication
from appliance.terminal import screen

TENANTS = ("glasses", "camera", "sensor")
FIRST_PORT = 8080
TICK_S = 0.25
ASK_EVERY_S = 1.0
LOG_EVERY_S = 5.0
LOG_LINES_MAX = 1000
LINK_EVERY_S = 300.0
"""Seconds after which a new link is shown: a link opens the pages once, and for ten minutes."""
TRAFFIC_S = 10.0
"""Seconds that `--once` goes on after every application and every pipeline has answered."""
PATIENCE_S = 120.0
PATIENCE_PER_MODEL_S = 60.0
"""How long `--once` waits at most: imports run one after another, and the machine may be slow."""
ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""A closed terminal and SIGTERM end the demo like Ctrl-C, so that no server stays behind."""


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """What the command line said."""

    zoo: ZooName
    state_dir: Path
    cache: Path
    port: int | None
    """None: 8080 if it is free, else any."""
    seconds: float | None
    """Length of the run; with `once`, of the traffic after every application has answered."""
    once: bool
    as_json: bool


def run(options: DemoOptions) -> int:
    """Run the demo; returns the exit status: 1 when an application of a bounded run never answered."""
    for number in ENDINGS:
        signal.signal(number, signal.default_int_handler)
    with ExitStack() as stack:
        screen.say(f"Zoo {options.zoo!r}, from {options.cache}:")
        models = fetched_or_smaller(options.zoo, options.cache).models
        screen.say(f"{screen.count(len(models), 'network')} at hand. Starting the box on {options.state_dir} …")
        demo = _Demo(options, models, stack)
        demo.set_up()
        demo.show()
        for number in ENDINGS:
            signal.signal(number, signal.SIG_IGN)  # a second Ctrl-C must not leave a server behind
    return _sum_up(options, demo.picture.figures, demo.elapsed_s)


class _Demo:
    """The box, its tenants and their devices, from set-up to the end."""

    def __init__(self, options: DemoOptions, models: Sequence[ZooModel], stack: ExitStack) -> None:
        self._options = options
        self._clock = SystemClock()
        self._models = models
        self._server = stack.enter_context(closing(Server(options.state_dir, _port(options.port))))
        self._server.wait(self._clock)
        self._tenancy = stack.enter_context(closing(Tenancy(self._server.url, options.state_dir)))
        self._devices = stack.enter_context(closing(Fleet()))
        self._undefined = list(pipelines_of(models))
        """Pipelines that are defined, and sent frames, as soon as their networks serve."""
        self._defined: list[Figures] = []
        figures = [Figures(one.tenant, one.name) for one in models]
        figures += [Figures(one.tenant, one.name, is_pipeline=True) for one in self._undefined]
        self.picture = board.Picture(figures, self._server.url, self._server.key_file)
        self._begin_ns = self._clock.now_ns()
        self._asked_s = self._link_due_s = 0.0
        self._complete_s: float | None = None

    @property
    def elapsed_s(self) -> float:
        """Since the box was up."""
        return (self._clock.now_ns() - self._begin_ns) / NS_PER_S

    def set_up(self) -> None:
        """Tenants, models and devices; imports go on in the background."""
        self._tenancy.make(TENANTS)
        self._renew_link()
        screen.say(f"Open the pages, signed in: {self.picture.link}")
        brought = sum(self._tenancy.bring(model) for model in self._models)
        known = len(self._models) - brought
        uploaded = f"{len(TENANTS)} tenants, {screen.count(brought, 'model')} uploaded"
        screen.say(uploaded + (f", {known} known from before." if known else "."))
        for model in self._models:
            key = self._tenancy.device_key(model.tenant, applications=[model.name])
            self._start(model, key, model.name, model.task, model.rate_rps)

    def _start(self, source: ZooModel, key: str, name: str, task: str, rate_per_s: float) -> Figures:
        """A device that sends the inputs of a network to the application, or without a task to the pipeline `name`."""
        figures = next(one for one in self.picture.of(pipelines=not task) if one.name == name)
        self._devices.start(DeviceOrder(self._server.url, key, name, task, rate_per_s, source.inputs), figures)
        return figures

    def _can_be_defined(self, pipeline: DemoPipeline) -> bool:
        asked = [model for model in self._models if model.name in pipeline.applications]
        return all(self.picture.serves(model.tenant, model.name) for model in asked)

    def _define_pipelines(self) -> None:
        """Those that can be; a busy box is asked again."""
        for one in list(filter(self._can_be_defined, self._undefined)):
            try:
                for tenant, application in borrowed(one, self._models):
                    self._tenancy.share(tenant, application)
                self._tenancy.define(one)
                key = self._tenancy.device_key(one.tenant, pipelines=[one.name])
            except (httpx.TransportError, ModelUnavailable, UnknownApplication, Unavailable):
                continue
            source = next(model for model in self._models if model.name == one.inputs_of)
            self._defined.append(self._start(source, key, one.name, "", one.rate_fps))
            self._undefined.remove(one)

    def show(self) -> None:
        """The table, live on a terminal or now and then in a log, until the end or Ctrl-C, which is a normal end."""
        console = screen.console(stderr=self._options.as_json)
        try:
            if not console.is_terminal:
                for _ in self._moments(LOG_EVERY_S):
                    console.print(self._drawn(LOG_LINES_MAX))
                    console.file.flush()
                return
            with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
                for _ in self._moments(TICK_S):
                    live.update(self._drawn(console.height), refresh=True)
        except KeyboardInterrupt:
            screen.say("\nEnding devices and box …")

    def _drawn(self, lines_max: int) -> RenderableType:
        return board.drawn(self.picture, self.elapsed_s, self._clock.now_ns(), lines_max)

    def _moments(self, every_s: float) -> Iterator[None]:
        """When the table is to be drawn; counts, asks and defines in between."""
        due_s = 0.0
        while not self._is_over():
            self._devices.count()
            if self.elapsed_s >= self._asked_s + ASK_EVERY_S:
                self._ask()
            if self.elapsed_s >= due_s:
                due_s = self.elapsed_s + every_s
                yield
            pause_s(TICK_S)

    def _ask(self) -> None:
        """What the box says of itself; a busy one has better things to do, and is asked again a second later."""
        self._server.check()
        try:
            self._renew_link()
            self._tenancy.look(self.picture)
            self._define_pipelines()
        except (httpx.TransportError, ApplianceError):
            pass
        self._asked_s = self.elapsed_s

    def _renew_link(self) -> None:
        if self.elapsed_s >= self._link_due_s:
            self.picture.link = self._server.url + self._tenancy.admin.sign_in_link().path
            self._link_due_s = self.elapsed_s + LINK_EVERY_S

    def _is_over(self) -> bool:
        elapsed_s, seconds = self.elapsed_s, self._options.seconds
        if not self._options.once:
            return seconds is not None and elapsed_s >= seconds
        if self._complete_s is None:
            if self._is_complete():
                self._complete_s = elapsed_s
            return elapsed_s >= PATIENCE_S + PATIENCE_PER_MODEL_S * len(self._models)
        return elapsed_s >= self._complete_s + (TRAFFIC_S if seconds is None else seconds)

    def _is_complete(self) -> bool:
        """Whether every application is settled, and every pipeline that can be defined has answered a frame."""
        settled = all(map(self.picture.is_settled, self.picture.of(pipelines=False)))
        return settled and all(one.ok for one in self._defined) and not any(map(self._can_be_defined, self._undefined))


def _sum_up(options: DemoOptions, figures: Sequence[Figures], elapsed_s: float) -> int:
    applications = [one for one in figures if not one.is_pipeline]
    if options.as_json:
        summaries = {
            "applications": [one.summary() for one in applications],
            "pipelines": [one.summary() for one in figures if one.is_pipeline],
        }
        print(json.dumps({"tenants": len(TENANTS), "seconds": round(elapsed_s), **summaries}))
    else:
        print(f"\n{sum(one.ok for one in applications)} answers in {elapsed_s:.0f} s:")
        for line in (line for one in figures for line in one.in_lines()):
            print(f"  {line}")
    silent = [f"{one.tenant}/{one.name}" for one in figures if not one.ok]
    if silent and options.once:
        screen.say(f"appliance: never answered: {', '.join(silent)}; see {options.state_dir / 'server.log'}")
        return 1
    return 0


def _port(wanted: int | None) -> int:
    if wanted is not None:
        return wanted
    try:
        socket.create_server(("127.0.0.1", FIRST_PORT)).close()
    except OSError:
        return 0
    return FIRST_PORT
