"""One run of the demo, in order: fetch, start, set up, send, show, sum up; and everything ended again in the reverse
order.
"""

import json
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import httpx

from appliance.clock import Clock, SystemClock, pause_s
from appliance.demo import board
from appliance.demo.clips import CLIPS
from appliance.demo.downloads import fetched_or_smaller
from appliance.demo.figures import DeviceFigures
from appliance.demo.fleet import DeviceOrder, Fleet, fleet
from appliance.demo.frames import FrameFigures
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
        watch = _set_up(zoo, server, tenancy, devices, clock)
        pipelines = _Pipelines(zoo, server, tenancy, devices, watch)
        show = _Show(options, server, watch, devices, pipelines)
        show.until(_end_of(options, watch, pipelines))
        stack.callback(_ignore_signals)  # a second Ctrl-C must not leave a server behind
    return _sum_up(options, watch)


def _set_up(zoo: "Zoo", server: RunningServer, tenancy: Tenancy, devices: Fleet, clock: Clock) -> Watch:
    """Tenants, models and devices; imports go on in the background."""
    tenancy.make(TENANTS)
    brought = sum(tenancy.bring(model) for model in zoo.models)
    known = len(zoo.models) - brought
    uploaded = f"{len(TENANTS)} tenants, {screen.count(brought, 'model')} uploaded"
    screen.say(uploaded + (f", {known} known from before." if known else "."))
    for model in zoo.models:
        devices.start(_order(model, server, tenancy.device_key(model.tenant, model.name)))
    figures = [DeviceFigures(model.tenant, model.name, model.task) for model in zoo.models]
    return Watch(clock, server, tenancy, figures)


def _order(model: "ZooModel", server: RunningServer, key: str) -> DeviceOrder:
    return DeviceOrder(
        url=server.url,
        key=key,
        application=model.name,
        task=model.task,
        rate_per_s=model.rate_rps,
        inputs=tuple(str(path) for path in model.inputs),
        is_stream=model.task == TaskKind.VOICE_ACTIVITY,
        is_clip=model.task in CLIPS,
    )


class _Pipelines:
    """The pipelines whose networks the zoo has: each is defined, and sent frames, as soon as these serve."""

    def __init__(self, zoo: "Zoo", server: RunningServer, tenancy: Tenancy, devices: Fleet, watch: Watch) -> None:
        self._models = zoo.models
        self._url = server.url
        self._tenancy = tenancy
        self._devices = devices
        self._watch = watch
        self._waiting = list(pipelines_of(zoo.models))
        for one in self._waiting:
            watch.expect(FrameFigures(one.tenant, one.name))

    def define(self) -> None:
        """Those that can be; a busy box is asked again."""
        for one in [each for each in self._waiting if self._can_be_defined(each)]:
            try:
                for tenant, application in borrowed(one, self._models):
                    self._tenancy.share(tenant, application)
                self._tenancy.define(one)
                key = self._tenancy.pipeline_key(one.tenant, one.name)
            except (httpx.TransportError, ModelUnavailable, UnknownApplication, Unavailable):
                continue
            self._watch.follow(self._devices.start(self._order(one, key)), one.name)
            self._waiting.remove(one)

    def are_defined(self) -> bool:
        """All whose networks serve."""
        return not any(self._can_be_defined(one) for one in self._waiting)

    def _can_be_defined(self, pipeline: DemoPipeline) -> bool:
        asked = [model for model in self._models if model.name in pipeline.applications]
        return all(self._watch.serves(model.tenant, model.name) for model in asked)

    def _order(self, pipeline: DemoPipeline, key: str) -> DeviceOrder:
        source = next(model for model in self._models if model.name == pipeline.inputs_of)
        return DeviceOrder(
            url=self._url,
            key=key,
            application=pipeline.name,
            task="",
            rate_per_s=pipeline.rate_fps,
            inputs=tuple(str(path) for path in source.inputs),
            is_stream=False,
            is_pipeline=True,
        )


class _Show:
    """The table on the terminal, or lines in a log, until the end."""

    def __init__(
        self, options: DemoOptions, server: RunningServer, watch: Watch, devices: Fleet, pipelines: _Pipelines
    ) -> None:
        self._url = server.url
        self._key_file = str(server.key_file)
        self._watch = watch
        self._devices = devices
        self._pipelines = pipelines
        self._console = screen.console(stderr=options.as_json)

    def until(self, is_over: Callable[[], bool]) -> None:
        """Go on until `is_over`, or Ctrl-C, which is a normal end."""
        live = self._live if self._console.is_terminal else self._lines
        try:
            live(is_over)
        except KeyboardInterrupt:
            screen.say("\nEnding devices and box …")

    def _tick(self) -> board.Picture:
        for report in self._devices.reports():
            self._watch.take(report)
        if self._watch.ask():
            self._pipelines.define()
        return self._watch.picture(self._url, self._key_file)

    def _live(self, is_over: Callable[[], bool]) -> None:
        from rich.live import Live

        with Live(console=self._console, auto_refresh=False, vertical_overflow="crop") as live:
            while not is_over():
                live.update(board.drawn(self._tick(), self._console.height), refresh=True)
                pause_s(TICK_S)

    def _lines(self, is_over: Callable[[], bool]) -> None:
        said_s = -LINES_EVERY_S
        while not is_over():
            picture = self._tick()
            if picture.elapsed_s - said_s >= LINES_EVERY_S:
                said_s = picture.elapsed_s
                for line in board.in_lines(picture):
                    print(line, file=self._console.file, flush=True)
            pause_s(TICK_S)


def _end_of(options: DemoOptions, watch: Watch, pipelines: _Pipelines) -> Callable[[], bool]:
    """When the run is over."""
    if not options.once:
        return lambda: options.seconds is not None and watch.elapsed_s >= options.seconds
    traffic_s = TRAFFIC_S if options.seconds is None else options.seconds
    complete_s: float | None = None

    def is_over() -> bool:
        nonlocal complete_s
        if complete_s is None and watch.is_settled() and pipelines.are_defined():
            complete_s = watch.elapsed_s
        if complete_s is None:
            return watch.elapsed_s >= PATIENCE_S + PATIENCE_PER_MODEL_S * len(watch.figures)
        return watch.elapsed_s >= complete_s + traffic_s

    return is_over


def _sum_up(options: DemoOptions, watch: Watch) -> int:
    applications = [
        figures.summary() | ({} if streamed is None else {"session": asdict(streamed)})
        for figures, streamed in zip(watch.figures, watch.streamed, strict=True)
    ]
    if options.as_json:
        pipelines = [figures.summary() for figures in watch.framed.values()]
        summary = {"tenants": len(TENANTS), "seconds": round(watch.elapsed_s), "applications": applications}
        print(json.dumps(summary | {"pipelines": pipelines}))
    else:
        _show_summary(watch, applications)
    silent = watch.unanswered()
    if silent and options.once:
        names = ", ".join(f"{figures.tenant}/{figures.name}" for figures in silent)
        screen.say(f"appliance: never answered: {names}; see {options.state_dir / 'server.log'}")
        return 1
    return 0


def _show_summary(watch: Watch, applications: list[dict[str, object]]) -> None:
    total = sum(figures.ok for figures in watch.figures)
    print(f"\n{total} answers in {watch.elapsed_s:.0f} s:")
    for figures, entry in zip(watch.figures, applications, strict=True):
        told = figures.recognised[-1] if figures.recognised else ""
        print(f"  {figures.tenant}/{figures.name:<14} {entry['ok']} of {entry['requests']} answered   {told}")
        for reason, times in figures.failures.most_common(2):
            print(f"      {times} × {reason}")
    for framed in watch.framed.values():
        told = framed.recognised[-1] if framed.recognised else ""
        print(f"  {framed.tenant}/{framed.name:<14} {framed.in_time} of {framed.sent} frames in time   {told}")
        for reason, times in framed.failures.most_common(2):
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
