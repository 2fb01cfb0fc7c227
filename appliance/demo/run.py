"""One run of the demo, in order: fetch, start, set up, send, show, sum up; and everything ended again in the reverse
order.
"""

import json
import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import httpx

from appliance.clock import SystemClock, pause_s
from appliance.demo import board
from appliance.demo.downloads import fetched_or_smaller
from appliance.demo.figures import DeviceFigures, FrameFigures
from appliance.demo.fleet import DeviceOrder, Fleet, fleet
from appliance.demo.pipelines import DemoPipeline, borrowed, pipelines_of
from appliance.demo.server import RunningServer, running_server
from appliance.demo.tenancy import Tenancy
from appliance.demo.watch import Watch
from appliance.domain.catalogue import TaskKind
from appliance.domain.errors import ModelUnavailable, Unavailable, UnknownApplication
from appliance.terminal import screen

if TYPE_CHECKING:
    from appliance.demo.zoo import Zoo, ZooModel, ZooName

TENANTS = ("glasses", "camera", "sensor")
CLIPS = (TaskKind.OBJECT_DETECTION, TaskKind.FACE_DETECTION)
"""Tasks whose inputs are frames of a clip, streamed by a session."""
FIRST_PORT = 8080
TICK_S = 0.25
LINES_EVERY_S = 5.0
TRAFFIC_S = 10.0
"""How long `--once` goes on after every application has answered with a measured variant."""
PATIENCE_S = 120.0
PATIENCE_PER_MODEL_S = 60.0
"""How long `--once` waits at most: imports run one after another, and the machine may be slow."""


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """What the command line said."""

    zoo: "ZooName"
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
    clock = SystemClock()
    with ExitStack() as stack:
        stack.enter_context(_hang_up_is_ctrl_c())
        screen.say(f"Zoo {options.zoo!r}, from {options.cache}:")
        zoo = fetched_or_smaller(options.zoo, options.cache)
        screen.say(f"{screen.count(len(zoo.models), 'network')} at hand. Starting the box on {options.state_dir} …")
        server = stack.enter_context(running_server(options.state_dir, _port(options.port), clock))
        tenancy = stack.enter_context(closing(Tenancy(server.url, options.state_dir)))
        devices = stack.enter_context(fleet())
        watch = Watch(clock, server, tenancy, [DeviceFigures(model.tenant, model.name) for model in zoo.models])
        demo = _Demo(options, zoo, server, tenancy, devices, watch)
        demo.set_up()
        demo.show()
        stack.callback(_ignore_signals)  # a second Ctrl-C must not leave a server behind
    return _sum_up(options, watch)


class _Demo:
    """The box, its tenants and their devices, from set-up to the end."""

    def __init__(
        self, options: DemoOptions, zoo: "Zoo", server: RunningServer, tenancy: Tenancy, devices: Fleet, watch: Watch
    ) -> None:
        self._options = options
        self._models = zoo.models
        self._server = server
        self._tenancy = tenancy
        self._devices = devices
        self._watch = watch
        self._undefined = list(pipelines_of(zoo.models))
        """Pipelines that are defined, and sent frames, as soon as their networks serve."""
        self._complete_s: float | None = None
        self._console = screen.console(stderr=options.as_json)

    def set_up(self) -> None:
        """Tenants, models and devices; imports go on in the background."""
        self._tenancy.make(TENANTS)
        brought = sum(self._tenancy.bring(model) for model in self._models)
        known = len(self._models) - brought
        uploaded = f"{len(TENANTS)} tenants, {screen.count(brought, 'model')} uploaded"
        screen.say(uploaded + (f", {known} known from before." if known else "."))
        for model in self._models:
            key = self._tenancy.device_key(model.tenant, applications=[model.name])
            self._start(model, key, model.name, model.task, model.rate_rps)
        self._watch.framed = {one.name: FrameFigures(one.tenant, one.name) for one in self._undefined}

    def _start(self, source: "ZooModel", key: str, name: str, task: str, rate_per_s: float) -> int:
        """A device that sends the inputs of a network to the application, or without a task to the pipeline `name`."""
        order = DeviceOrder(
            url=self._server.url,
            key=key,
            application=name,
            task=task,
            rate_per_s=rate_per_s,
            inputs=tuple(map(str, source.inputs)),
            is_stream=task == TaskKind.VOICE_ACTIVITY,
            is_clip=task in CLIPS,
            is_pipeline=not task,
        )
        return self._devices.start(order)

    def _can_be_defined(self, pipeline: DemoPipeline) -> bool:
        asked = [model for model in self._models if model.name in pipeline.applications]
        return all(self._watch.serves(model.tenant, model.name) for model in asked)

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
            self._watch.follow(self._start(source, key, one.name, "", one.rate_fps), one.name)
            self._undefined.remove(one)

    def show(self) -> None:
        """The table on the terminal, or lines in a log, until the end or Ctrl-C, which is a normal end."""
        try:
            (self._live if self._console.is_terminal else self._lines)()
        except KeyboardInterrupt:
            screen.say("\nEnding devices and box …")

    def _pictures(self) -> Iterator[board.Picture]:
        while not self._is_over():
            for report in self._devices.reports():
                self._watch.take(report)
            if self._watch.ask():
                self._define_pipelines()
            yield self._watch.picture(self._server.url, str(self._server.key_file))
            pause_s(TICK_S)

    def _live(self) -> None:
        from rich.live import Live

        with Live(console=self._console, auto_refresh=False, vertical_overflow="crop") as live:
            for picture in self._pictures():
                live.update(board.drawn(picture, self._console.height), refresh=True)

    def _lines(self) -> None:
        said_s = -LINES_EVERY_S
        for picture in self._pictures():
            if picture.elapsed_s - said_s >= LINES_EVERY_S:
                said_s = picture.elapsed_s
                for line in board.in_lines(picture):
                    print(line, file=self._console.file, flush=True)

    def _is_over(self) -> bool:
        elapsed_s, seconds = self._watch.elapsed_s, self._options.seconds
        if not self._options.once:
            return seconds is not None and elapsed_s >= seconds
        if self._complete_s is None:
            if self._watch.is_settled() and not any(map(self._can_be_defined, self._undefined)):
                self._complete_s = elapsed_s
            return elapsed_s >= PATIENCE_S + PATIENCE_PER_MODEL_S * len(self._models)
        return elapsed_s >= self._complete_s + (TRAFFIC_S if seconds is None else seconds)


def _sum_up(options: DemoOptions, watch: Watch) -> int:
    if options.as_json:
        applications = [
            figures.summary() | ({} if streamed is None else {"session": asdict(streamed)})
            for figures, streamed in zip(watch.figures, watch.streamed, strict=True)
        ]
        pipelines = [figures.summary() for figures in watch.framed.values()]
        summary = {"tenants": len(TENANTS), "seconds": round(watch.elapsed_s), "applications": applications}
        print(json.dumps(summary | {"pipelines": pipelines}))
    else:
        _show_summary(watch)
    silent = watch.unanswered()
    if silent and options.once:
        names = ", ".join(f"{figures.tenant}/{figures.name}" for figures in silent)
        screen.say(f"appliance: never answered: {names}; see {options.state_dir / 'server.log'}")
        return 1
    return 0


def _show_summary(watch: Watch) -> None:
    print(f"\n{sum(figures.ok for figures in watch.figures)} answers in {watch.elapsed_s:.0f} s:")
    for figures in watch.everything():
        told = figures.recognised[-1] if figures.recognised else ""
        done = f"{figures.ok} of {figures.sent} answered"
        if isinstance(figures, FrameFigures):
            done = f"{figures.in_time} of {figures.sent} frames in time"
        print(f"  {figures.tenant}/{figures.name:<14} {done}   {told}")
        for reason, times in figures.failures.most_common(2):
            print(f"      {times} × {reason}")


def _port(wanted: int | None) -> int:
    if wanted is not None:
        return wanted
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", FIRST_PORT))
        except OSError:
            return 0
    return FIRST_PORT


def _ignore_signals() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


@contextmanager
def _hang_up_is_ctrl_c() -> Iterator[None]:
    """A closed terminal and SIGTERM end the demo like Ctrl-C, so that no server stays behind."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    old = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    signal.signal(signal.SIGTERM, interrupt)
    signal.signal(signal.SIGHUP, interrupt)
    try:
        yield
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
