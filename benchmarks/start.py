"""Start of the service with 7, 300 and 1,000 models, against a bare import; what it holds in memory idle and used.

models   process start to the first answered request of `/v2`, of copies of one model that were all in memory at the
         last stop; beside it a bare `import numpy, onnxruntime, uvloop`, for how fast the machine is just now. Asked:
         7 models <= 1.0 s or five times the bare import, 300 <= 1.5 s, 1,000 <= 2.5 s
memory   seven real imported models: first answer <= 2.5 s; Pss with nothing loaded <= 160 MB; after loading and
         unloading all <= 25 MB above that
"""

import argparse
import contextlib
import hashlib
import os
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from benchmarks import _box as boxes
from benchmarks import _results as results
from tests import toys

BARE = "import numpy, onnxruntime, uvloop"
NAME = "m0000"
ASKED_S = {7: 1.0, 300: 1.5, 1000: 2.5}
MODELS: dict[str, Callable[[Path], Path]] = {
    "tiny": toys.tiny_add,
    "squeezenet": toys.squeezenet,
    "shufflenet": toys.shufflenet,
    "resnet50": toys.resnet50,
    "conv5": lambda path: toys.conv_net(path, 5),
    "conv20": lambda path: toys.conv_net(path, 20),
    "conv40": lambda path: toys.conv_net(path, 40),
}


def main() -> None:
    """Run the parts that are asked for."""
    parser = results.parser(__doc__)
    parser.add_argument("--part", nargs="+", choices=("models", "memory"), default=["models", "memory"])
    parser.add_argument("--counts", type=int, nargs="+", default=list(ASKED_S))
    parser.add_argument("--rounds", type=int, default=5)
    options = results.options(parser)
    if "models" in options.part:
        _starts(options)
    if "memory" in options.part:
        _memory(options.rounds)


def _starts(options: argparse.Namespace) -> None:
    bare = [_bare() for _ in range(options.rounds)]
    bare_s, wall_s = (statistics.median(column) for column in zip(*bare, strict=True))
    results.row("a bare import", processor_s=bare_s, wall_s=wall_s)
    for count in options.counts:
        with tempfile.TemporaryDirectory() as folder:
            state = Path(folder) / "state"
            make_state(state, Path(folder), count)
            rounds = [_start(state, count) for _ in range(options.rounds)]
        cpu_s, wall_s = (statistics.median(column) for column in zip(*rounds, strict=True))
        asked = f"≤ {ASKED_S[count]} s" if count in ASKED_S else ""
        figures = {"processor_s": cpu_s, "wall_s": wall_s, "bare_imports": cpu_s / bare_s}
        results.row(f"{count} models", **figures, asked=asked)


def _start(state: Path, count: int) -> tuple[float, float]:
    """Processor and wall time until an application from the middle has answered."""
    begin = time.perf_counter()
    with boxes.box(state) as box, box.http() as http:
        _infer(http, f"m{count // 2:04}")
        return boxes.cpu_s(box.process.pid), time.perf_counter() - begin


def _bare() -> tuple[float, float]:
    begin, before = time.perf_counter(), os.times()
    subprocess.run([sys.executable, "-c", BARE], check=True)
    after = os.times()
    cpu_s = after.children_user + after.children_system - before.children_user - before.children_system
    return cpu_s, time.perf_counter() - begin


def _infer(http: httpx.Client, name: str) -> None:
    boxes.infer(http, name, boxes.infer_body({tensor: np.ones([1, 4], np.float32) for tensor in "AB"}))


def _memory(rounds: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        state = Path(folder) / "state"
        with boxes.box(state) as box:
            bodies = {
                name: boxes.infer_body(
                    boxes.served(box, name, make(Path(folder) / f"{name}.onnx"), precisions=["fp32"])
                )
                for name, make in MODELS.items()
            }
        found: dict[str, list[float]] = {"first answer, s": [], "idle, MB": [], "more after use, MB": []}
        asked = dict(zip(found, ("≤ 2.5", "≤ 160", "≤ 25"), strict=True))
        for _ in range(rounds):
            begin = time.perf_counter()
            with boxes.box(state) as box, box.http() as http:
                boxes.infer(http, "squeezenet", bodies["squeezenet"])
                first_s = time.perf_counter() - begin
                _repository(http, "unload")
                idle_mb = box.pss_mb()
                _repository(http, "load")
                for name, body in bodies.items():
                    boxes.infer(http, name, body)
                _repository(http, "unload")
                for values, value in zip(found.values(), (first_s, idle_mb, box.pss_mb() - idle_mb), strict=True):
                    values.append(value)
    for what, values in found.items():
        results.row(what, **results.spread(values), asked=asked[what])


def _repository(http: httpx.Client, what: str) -> None:
    for name in MODELS:
        http.post(f"/v2/repository/models/{name}/{what}").raise_for_status()


def make_state(state: Path, folder: Path, count: int) -> None:
    """A state folder of `count` models, `m0000` the first: one is imported, the others are copies of its rows and
    files.
    """
    with boxes.box(state) as box:
        boxes.await_job(box, boxes.upload(box, NAME, toys.tiny_add(folder / "tiny.onnx"), precisions=["fp32"]))
        with box.http() as http:
            _infer(http, NAME)
    with contextlib.closing(sqlite3.connect(state / "appliance.db")) as database, database:
        database.row_factory = sqlite3.Row
        contents = [row["content_sha256"] for row in database.execute("SELECT content_sha256 FROM variant")]
        rows = {
            table: [dict(row) for row in database.execute(f"SELECT * FROM {table}")]
            for table in ("blob", "model", "variant", "variant_number", "application")
        }
        homes = {home.name: home for home in (state / "prepared").glob("*/*")}
        builds = sorted(homes)
        for at in range(1, count):
            name, new = f"m{at:04}", dict[str, str]()
            for old in contents:
                content = _blob(state, old).read_bytes() + _remark(name)
                new[old] = hashlib.sha256(content).hexdigest()
                target = _blob(state, new[old])
                target.parent.mkdir(exist_ok=True, mode=0o700)
                target.write_bytes(content)
                for home in [home for build, home in homes.items() if build.startswith(old)]:
                    shutil.copytree(home, home.with_name(home.name.replace(old, new[old])))
                    builds.append(home.name.replace(old, new[old]))
            for table, those in rows.items():
                for row in those:
                    insert(database, table, _renamed(row, name, new, state))
        database.execute("DELETE FROM resident")
        database.executemany("INSERT INTO resident (position, build_id) VALUES (?, ?)", enumerate(builds))


def _renamed(row: dict[str, Any], name: str, contents: dict[str, str], state: Path) -> dict[str, Any]:
    new = dict(row)
    for key, value in row.items():
        if isinstance(value, str):
            new[key] = contents.get(value, value).replace(NAME, name)
    if "modified_ns" in row:
        file = _blob(state, new["sha256"])
        new |= {"modified_ns": file.stat().st_mtime_ns, "size_bytes": file.stat().st_size}
    return new


def insert(database: sqlite3.Connection, table: str, row: dict[str, Any]) -> None:
    """A row, as it is."""
    marks = ", ".join("?" * len(row))
    database.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})", list(row.values()))


def _blob(state: Path, sha256: str) -> Path:
    return state / "blobs" / sha256[:2] / sha256


def _remark(text: str) -> bytes:
    """The description of an ONNX model, which makes the content another one: the last that a file has counts."""
    return b"\x32" + bytes([len(text)]) + text.encode()


if __name__ == "__main__":
    main()
