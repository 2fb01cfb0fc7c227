"""The demo's pipelines in a box of its own, with pictures of 0 to 8 items each, and traffic in proportion to what their
frames take.
"""

import itertools
import json
import os
import shutil
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import cv2
import httpx
import numpy as np

from appliance.demo.pipelines import PIPELINES
from appliance.demo.zoo import Zoo
from appliance.demo.zoo.media import Picture, picture, with_sign, write
from benchmarks import _box as boxes
from benchmarks import _results as results
from benchmarks import _zoo
from benchmarks._frame_load import ITEM, ITEMS_MAX, Line, Order, Result, sent
from benchmarks._steal import stolen_s

NAMES = ("find-text", "read-text", "faces", "who", "objects", "what")
"""Networks of the demo's zoo that its three pipelines ask."""
CPU = json.dumps([{"kind": "cpu"}])
BOTH = json.dumps([{"kind": "cpu"}, {"kind": "openvino"}])
_TEXTS = ("GATE 7", "EXIT", "PLATFORM 2", "TICKETS", "NO ENTRY", "TAXI", "WAY OUT", "LIFT B")
_PATIENCE_MS = 120_000
_MEASURED_S = 1800
"""At most, until all networks are measured on all kinds of processors."""
_ROOT = Path(__file__).parents[1]
"""From where the process that plans can import what it is asked to do."""
_CUTS_MAX = 12
"""Faces and things that pictures are made of."""

Pictures = dict[str, dict[str, list[str]]]
"""Pipeline → number of items → files."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A pipeline as it is measured. `cost_s`: processor time of a frame with 0 to 8 items, on an idle box."""

    name: str
    slo_ms: float
    pictures: dict[str, list[str]]
    cost_s: float


def imported(folder: Path, precisions: Sequence[str], processors: str) -> tuple[Path, Zoo]:
    """The state folder with the six networks, all of tenant `default`. A box without a kind of processors forgets what
    was measured there, so one with fewer has its own, made of that of all.
    """
    state = whole = folder / "state"
    if processors != BOTH:
        state = folder / "state-cpu"
        if whole.exists() and not state.exists():
            shutil.copytree(whole, state)
    zoo = _zoo.imported(state, "demo", NAMES, precisions, APPLIANCE_PROCESSORS=processors)
    if missing := set(NAMES) - {model.name for model in zoo.models}:
        raise SystemExit(f"networks of the zoo that cannot be had: {', '.join(sorted(missing))}")
    return state, zoo


def box(state: Path, **environment: str) -> AbstractContextManager[boxes.LiveBox]:
    """A box that knows the planners to compare with, too (`APPLIANCE_POLICIES__ALLOCATION`)."""
    settings = {**_zoo.IMPORTS, "PYTHONPATH": str(_ROOT), **environment}
    return boxes.box(state, None, "benchmarks._box_with_planners", **settings)


def define(live: boxes.LiveBox, slo_factor: float) -> None:
    """The demo's pipelines in place of all that are there."""
    with live.http() as http:
        for one in http.get("/v1/pipelines").raise_for_status().json()["items"]:
            http.delete(f"/v1/pipelines/{one['name']}").raise_for_status()
        for demo in PIPELINES:
            order = demo.order.model_dump(mode="json", exclude_unset=True, exclude_none=True)
            order["latency_slo_ms"] *= slo_factor
            http.post("/v1/pipelines", json=order | {"weight": 1.0}).raise_for_status()


def weigh(live: boxes.LiveBox, weights: Mapping[str, float]) -> None:
    """Change the pipelines' weights."""
    with live.http() as http:
        for name, weight in weights.items():
            http.patch(f"/v1/pipelines/{name}", json={"weight": weight}).raise_for_status()


# -- pictures ----------------------------------------------------------------------------------------------------------


def pictures(live: boxes.LiveBox, zoo: Zoo, folder: Path) -> Pictures:
    """Pictures by how many items the box cuts out of them; made once, and kept with what was counted."""
    kept = folder / "pictures.json"
    if kept.exists():
        found: Pictures = json.loads(kept.read_text())
        if all(Path(path).exists() for counts in found.values() for paths in counts.values() for path in paths):
            return found
    models = {model.name: model for model in zoo.models}
    grey = np.full((480, 640, 3), 120, np.uint8)
    with live.http() as http:
        made = {"signs": [_signs(grey, count, at) for at in range(2) for count in range(ITEMS_MAX + 1)]}
        for name, application in (("people", "faces"), ("street", "objects")):
            whole = [picture(path) for path in models[application].inputs[:_CUTS_MAX]]
            cuts = list(itertools.islice(_cuts(http, application, whole), _CUTS_MAX))
            rng = np.random.default_rng(1)
            composed = [_composed(grey, cuts, count, rng) for _ in range(3) for count in range(2 * ITEMS_MAX + 1)]
            made[name] = composed + whole
        found = {}
        for name, candidates in made.items():
            by_count: dict[str, list[str]] = {}
            for path in write(folder / "pictures" / name, candidates, ".jpg"):
                count = len(ITEM.findall(frame(http, name, path).content))
                if count <= ITEMS_MAX and len(by_count.setdefault(str(count), [])) < 3:
                    by_count[str(count)].append(str(path))
            found[name] = dict(sorted(by_count.items(), key=lambda one: int(one[0])))
    kept.write_text(json.dumps(found))
    return found


def _signs(grey: Picture, count: int, shift: int) -> Picture:
    image = grey
    for at, text in enumerate(_TEXTS[:count]):
        image, _ = with_sign(image, text, (20 + 310 * (at % 2) + 6 * shift, 20 + 112 * (at // 2)), 26, at % 3 == 0)
    return image


def _cuts(http: httpx.Client, application: str, whole: Sequence[Picture]) -> Iterator[Picture]:
    """What a detector finds, with what is around it."""
    for image in whole:
        jpeg = bytes(cv2.imencode(".jpg", image)[1])
        answer = http.post(f"/v1/applications/{application}/predict?timeout_ms={_PATIENCE_MS}", content=jpeg)
        for one in answer.raise_for_status().json()["objects"]:
            left, top, right, bottom = one["box"]
            across, down = 0.3 * (right - left), 0.3 * (bottom - top)
            cut = image[
                max(0, round(top - down)) : round(bottom + down), max(0, round(left - across)) : round(right + across)
            ]
            if one["score"] > 0.5 and min(cut.shape[:2]) > 30:
                yield cut


def _composed(grey: Picture, cuts: Sequence[Picture], count: int, rng: np.random.Generator) -> Picture:
    """So many of them in rows of four."""
    image = grey.copy()
    rows = -(-max(count, 8) // 4)
    high, wide = image.shape[0] // rows, image.shape[1] // 4
    for at in range(count if cuts else 0):
        cut = cuts[int(rng.integers(len(cuts)))]
        scale = min((wide - 10) / cut.shape[1], (high - 10) / cut.shape[0])
        small = cv2.resize(cut, (max(1, int(scale * cut.shape[1])), max(1, int(scale * cut.shape[0]))))
        top, left = high * (at // 4) + 5, wide * (at % 4) + 5
        image[top : top + small.shape[0], left : left + small.shape[1]] = small
    return image


def frame(http: httpx.Client, pipeline: str, path: str | Path) -> httpx.Response:
    """One frame, with all the time that it needs."""
    jpeg = {"Content-Type": "image/jpeg"}
    answer = http.post(
        f"/v1/pipelines/{pipeline}/predict?timeout_ms={_PATIENCE_MS}", content=Path(path).read_bytes(), headers=jpeg
    )
    return answer.raise_for_status()


# -- traffic -----------------------------------------------------------------------------------------------------------


def measured(live: boxes.LiveBox, found: Pictures, rounds: int = 2) -> list[Subject]:
    """What frames take, one at a time."""
    subjects = []
    with live.http() as http:
        slos = {one["name"]: one["latency_slo_ms"] for one in http.get("/v1/pipelines").json()["items"]}
        for name, by_count in found.items():
            costs: dict[str, list[float]] = {count: [] for count in by_count}
            for number in range(rounds + 1):
                for count, paths in by_count.items():
                    taken = frame(http, name, paths[number % len(paths)]).json()["cost"]["seconds"]
                    if number:  # networks are loaded by the first round
                        costs[count].append(taken)
            means = {int(count): sum(one) / len(one) for count, one in costs.items()}
            drawn = [min(means, key=lambda count: (abs(count - wanted), count)) for wanted in range(ITEMS_MAX + 1)]
            cost_s = sum(means[count] for count in drawn) / len(drawn)
            subjects.append(Subject(name, slos[name], by_count, cost_s))
    return subjects


def estimated_fps(wanted: Sequence[Subject]) -> float:
    """Frames a second, all together, that all processors would do: each pipeline takes as much of them."""
    return workers() * sum(1.0 / one.cost_s for one in wanted) / len(wanted)


def workers() -> int:
    return len(os.sched_getaffinity(0))


def lines(wanted: Sequence[Subject], fps: float, clients: int, *, stay_s: float | None = None) -> list[Line]:
    """Frames of all pipelines together, so that each takes as much of the processors; clients that leave are followed
    by others after a tenth of their stay, and send so much more.
    """
    parts = {one.name: 1.0 / one.cost_s for one in wanted}
    gap_s = 0.0 if stay_s is None else 0.1 * stay_s
    more = 1.0 if stay_s is None else 1.1
    return [
        Line(
            one.name,
            one.slo_ms,
            one.pictures,
            fps=more * fps * parts[one.name] / sum(parts.values()),
            clients=clients,
            stay_s=stay_s,
            gap_s=gap_s,
        )
        for one in wanted
    ]


@dataclass(frozen=True, slots=True)
class Run:
    """What a load came to, and what else took the machine. `box_s`: processor time of the box and its children;
    `stage_s`: what its frames took of its processors, by pipeline.
    """

    result: Result
    box_s: float
    stolen_s: float
    stage_s: dict[str, float]

    @property
    def in_time(self) -> float:
        return self.result.total("in_time")

    @property
    def share(self) -> float:
        """Of the frames."""
        return self.in_time / max(1.0, self.result.total("sent"))

    @property
    def fps(self) -> float:
        """In time, a second."""
        return self.in_time / self.result.seconds

    @property
    def free(self) -> float:
        """Processors that the generator and the host's others left."""
        return workers() - (self.result.processor_s + self.stolen_s) / self.result.seconds

    def tell(self, what: str) -> None:
        """A row of all, and of each pipeline."""
        one, seconds = self.result, self.result.seconds
        figures = {
            "sent_per_s": one.total("sent") / seconds,
            "in_time_per_s": self.fps,
            "in_time": self.share,
            "dropped": round(one.total("dropped")),
            "without_an_answer": round(one.total("lost")),
            "wrong_answers": round(one.total("wrong") + one.total("twice")),
            "items_a_frame": one.total("items") / max(1.0, one.total("answered")),
            "box_processors": self.box_s / seconds,
            "generator_processors": one.processor_s / seconds,
            "stolen": self.stolen_s / seconds / workers(),
            "sent_late_ms": one.behind_ms,
        }
        results.row(what, **figures)
        for name, tally in self.result.lines.items():
            more = {**tally.refusals, **tally.statuses, **({"forgotten": tally.forgotten} if tally.forgotten else {})}
            share = tally.in_time / max(1, tally.sent)
            counts = {"sent": tally.sent, "in_time": share, "joined": tally.joined, "refused": tally.refused}
            results.row(f"... {name}", **counts, P50_ms=tally.p50_ms, P99_ms=tally.p99_ms, problems=more or "none")


def run(
    live: boxes.LiveBox,
    what: str,
    wanted: list[Line],
    seconds: float,
    *,
    seed: int = 1,
) -> Run:
    """Send it, and tell what it came to."""
    order = Order(live.port, live.key, seconds, wanted, seed)
    before = _stage_s(live)
    box_s, stolen = computed_s(live), stolen_s()
    result = sent(order)
    stages = {pipeline: value - before.get(pipeline, 0.0) for pipeline, value in _stage_s(live).items()}
    found = Run(result, computed_s(live) - box_s, stolen_s() - stolen, stages)
    found.tell(what)
    return found


def _stage_s(live: boxes.LiveBox) -> dict[str, float]:
    """Processor time of the stages of each pipeline so far."""
    found: dict[str, float] = defaultdict(float)
    for labels, value in live.metrics("appliance_pipeline_seconds_total"):
        found[labels["pipeline"]] += value
    return dict(found)


def computed_s(live: boxes.LiveBox) -> float:
    """Processor time of the box and of its children, those that have ended included."""
    return boxes.of_children(live.process.pid, lambda process: sum(process.cpu_times()[:4]))


def settled(live: boxes.LiveBox, wait_s: float) -> None:
    """Wait until the networks are measured on all kinds of processors of the box, which after a change of these takes
    minutes of a core beside what it serves; then, for `wait_s` at most, until it is at rest.
    """
    begin_s = time.monotonic()
    with live.http() as http:
        while time.monotonic() < begin_s + _MEASURED_S and _awaits(http):
            time.sleep(1.0)
    if (waited_s := time.monotonic() - begin_s) > 5.0:
        results.row("the box measured its networks", for_s=waited_s)
    until, before_s, quiet = time.monotonic() + wait_s, computed_s(live), 0
    while time.monotonic() < until and quiet < 3:
        time.sleep(1.0)
        now_s = computed_s(live)
        quiet, before_s = (quiet + 1 if now_s - before_s < 0.1 else 0), now_s


def _awaits(http: httpx.Client) -> bool:
    """Whether some variant is yet to be measured on some kind of processors."""
    names = [row["name"] for row in http.get("/v1/models").raise_for_status().json()["items"]]
    return any(
        row["awaited"]
        for name in names
        for row in http.get(f"/v1/models/{name}/variants").raise_for_status().json()["items"]
    )
