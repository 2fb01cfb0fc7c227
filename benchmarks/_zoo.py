"""A box with real networks of the zoo, imported once and kept for later rounds, and traffic for it."""

import itertools
import json
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from appliance.demo.zoo import Zoo, as_archive, default_folder, fetch
from appliance.demo.zoo.zoos import ZooName
from benchmarks import _box as boxes

RATES_RPS = (5.0, 0.1, 2.0, 0.3, 1.0, 0.2, 0.5)
"""Mixed traffic: applications take these in turn."""

MODELS = ("read-text", "faces", "what", "page-side", "who", "what-large", "objects")
"""Seven real networks of the demo zoo."""
IMPORTS = {"APPLIANCE_IMPORTS__LADDER_MAX": "1", "APPLIANCE_IMPORTS__EVAL_SAMPLES_MAX": "16"}
"""One input size, so that a request of that size is served by every variant; few samples, for speed."""


def imported(
    state: Path,
    name: ZooName,
    names: tuple[str, ...] | None = None,
    precisions: tuple[str, ...] = ("int8",),
    **environment: str,
) -> Zoo:
    """A zoo's models in a box on `state`, all of tenant `default`; only those of `names`, in that order, where given.

    Those that are there already are not imported again. `environment`: more settings of the box that imports them.
    """
    zoo = fetch(name, default_folder(), lambda *progress: None)
    models = [m for n in names for m in zoo.models if m.name == n] if names else list(zoo.models)
    with boxes.box(state, **IMPORTS, **environment) as box, box.http() as http:
        there = {item["name"] for item in http.get("/v1/models").json()["items"]}
        for model in models:
            if model.name in there:
                continue
            metadata = {k: v for k, v in model.metadata.items() if k != "task"} | {"precisions": list(precisions)}
            path = as_archive(model, state.parent / f"{model.name}.zip")
            job = boxes.upload_large(box, model.name, path, task=model.task, **metadata)
            boxes.await_job(box, job)
    return Zoo(tuple(models), zoo.missing)


@contextmanager
def kept(folder: Path | None) -> Iterator[Path]:
    """A state folder: below `folder`, which keeps what was imported for the next run, or one that goes in the end."""
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        yield folder / "state"
        return
    with tempfile.TemporaryDirectory() as gone:
        yield Path(gone) / "state"


def forget_residents(state: Path) -> None:
    """So that the next start begins with an empty memory, as a simulation does."""
    with sqlite3.connect(state / "appliance.db") as database:
        database.execute("DELETE FROM resident")
    database.close()


def fp32_bytes(box: boxes.LiveBox) -> int:
    """Resident size of every model in full precision, together."""
    return sum(row["profile"]["resident_bytes"] for row in _variants(box) if row["name"].startswith("fp32"))


def smallest_bytes(box: boxes.LiveBox) -> int:
    """Resident size of the smallest variants, together."""
    sizes: dict[str, int] = {}
    for row in _variants(box):
        if row["state"] == "ready" and row["profile"]:
            size = row["profile"]["resident_bytes"]
            sizes[row["model"]] = min(size, sizes.get(row["model"], size))
    return sum(sizes.values())


def _variants(box: boxes.LiveBox) -> list[dict[str, Any]]:
    with box.http() as http:
        names = [item["name"] for item in http.get("/v1/models").json()["items"]]
        return [
            {**row, "model": name}
            for name in names
            for row in http.get(f"/v1/models/{name}/variants").json()["items"]
            if row["profile"]
        ]


def mixed(document: dict[str, Any], seconds: float, seed: int) -> dict[str, Any]:
    """A scenario with the rates of `RATES_RPS` in place of its own."""
    rates = itertools.cycle(RATES_RPS)
    arrivals = [{"application": a["name"], "poisson_rps": next(rates)} for a in document["applications"]]
    return {**document, "arrivals": arrivals, "duration_s": seconds, "seed": seed}


def emptied(document: dict[str, Any]) -> dict[str, Any]:
    """A scenario that starts with nothing in memory."""
    models = [{**m, "variants": [{**v, "resident": False} for v in m["variants"]]} for m in document["models"]]
    return {**document, "models": models}


def command(*arguments: str) -> dict[str, Any]:
    """What an `appliance` command answers with `--json`, from a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "appliance", *arguments, "--json"], capture_output=True, check=False, text=True
    )
    if done.returncode:
        raise RuntimeError(f"appliance {arguments[0]}: {done.stderr.strip()}")
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def scenario_of(box: boxes.LiveBox) -> dict[str, Any]:
    """`appliance scenario` of a box."""
    return command("scenario", "--url", box.url, "--key", box.key)


def replay(box: boxes.LiveBox, path: Path) -> dict[str, Any]:
    """`appliance replay` on a box."""
    return command("replay", str(path), "--url", box.url, "--key", box.key)
