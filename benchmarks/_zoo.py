"""A box with real networks of the zoo, imported once and kept for later rounds, and traffic for it."""

import itertools
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from appliance.demo.zoo import Zoo, ZooName, as_archive, default_folder, fetch
from benchmarks import _box as boxes

RATES_RPS = (5.0, 0.1, 2.0, 0.3, 1.0, 0.2, 0.5)
"""Mixed traffic: applications take these in turn."""

MODELS = ("read-text", "faces", "what", "page-side", "who", "what-large", "objects")
"""Seven real networks of the demo zoo."""
IMPORTS = {"APPLIANCE_IMPORTS__LADDER_MAX": "1", "APPLIANCE_IMPORTS__EVAL_SAMPLES_MAX": "16"}
"""One input size, so that a request of that size is served by every variant; few samples, for speed."""


def imported(
    state: Path, zoo_name: ZooName, names: Sequence[str], precisions: Sequence[str] = ("int8",), **environment: str
) -> Zoo:
    """Models of a zoo in a box on `state`, all of tenant `default`.

    Those that are there already are not imported again. `environment`: more settings of the box that imports them.
    """
    zoo = fetch(zoo_name, default_folder(), lambda *progress: None)
    models = [model for name in names for model in zoo.models if model.name == name]
    with boxes.box(state, **IMPORTS, **environment) as box, box.http() as http:
        there = {item["name"] for item in http.get("/v1/models").json()["items"]}
        for model in models:
            if model.name in there:
                continue
            metadata = {k: v for k, v in model.metadata.items() if k != "task"} | {"precisions": list(precisions)}
            path = as_archive(model, state.parent / f"{model.name}.zip")
            boxes.await_job(box, boxes.upload(box, model.name, path, task=model.task, **metadata))
    return Zoo(tuple(models), zoo.missing)


@contextmanager
def kept(folder: Path | None) -> Iterator[Path]:
    """A state folder: below `folder`, which keeps what was imported for the next run, or a temporary folder."""
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        yield folder / "state"
        return
    with tempfile.TemporaryDirectory() as gone:
        yield Path(gone) / "state"


def copied(state: Path, name: str) -> Path:
    """A copy of a state folder beside it, in place of an earlier one."""
    copy = state.with_name(f"state-{name}")
    shutil.rmtree(copy, ignore_errors=True)
    return Path(shutil.copytree(state, copy))


def forget_residents(state: Path) -> None:
    """So that the next start begins with an empty memory, as a simulation does."""
    with sqlite3.connect(state / "appliance.db") as database:
        database.execute("DELETE FROM resident")
    database.close()


def fp32_bytes(box: boxes.LiveBox) -> int:
    """Resident size of every model in full precision, together."""
    with box.http() as http:
        names = [item["name"] for item in http.get("/v1/models").json()["items"]]
        rows = [row for name in names for row in http.get(f"/v1/models/{name}/variants").json()["items"]]
    return sum(row["profile"]["resident_bytes"] for row in rows if row["profile"] and row["name"].startswith("fp32"))


def mixed(document: dict[str, Any], seconds: float, seed: int) -> dict[str, Any]:
    """A scenario with the rates of `RATES_RPS` in place of its own."""
    rates = itertools.cycle(RATES_RPS)
    arrivals = [{"application": a["name"], "poisson_rps": next(rates)} for a in document["applications"]]
    return {**document, "arrivals": arrivals, "duration_s": seconds, "seed": seed}
