"""Scrooge's comparisons with times that others have measured: PPipe's tables of 28 vision networks on shares of GPUs
(USENIX ATC 2025), where somebody has their file; it is no part of this repository, for it has no licence.

The stages, clients, objects and SLO are those of the paper's applications. *Assumed*: which of PPipe's networks stands
for a stage, and what a T4 costs (the smallest machine of a large cloud that has one); of the GPUs those two are taken
that differ most in price.
"""

import csv
from collections.abc import Mapping
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

from reproduce.claims import Experiment, Paper
from reproduce.scrooge.applications import APPLICATIONS, CPU, PRICES, V100, Application, Measured
from reproduce.scrooge.experiments import DURATION_S, compared_conditions, experiments_of, statements

T4 = "T4"
MEASURED_PRICES: Mapping[str, float] = {V100: PRICES[V100], T4: 0.526, CPU: PRICES[CPU]}
"""USD an hour."""
NETWORKS: Mapping[str, Mapping[str, str]] = {
    "traffic": {"inception": "tf_efficientdet_d1", "vehicles": "googlenet-v3-pytorch", "faces": "repvgg-b3"},
    "face": {"detector": "centernet-update_r50-caffe_fpn_ms-1x_coco", "prnet": "cyclegan"},
    "tracker": {"mobilenet": "gfl_r50_fpn_ms-2x_coco", "triplet": "resnext152-32x4d_8xb32_in1k"},
}
"""Application → stage → which of them stands for it."""
COLUMNS = ("model", "gpu", "mps_share", "batch", "total_us")


def read_networks(path: Path) -> dict[str, Measured]:
    """By name, on the GPUs that have a price. As many run at once as there are equal shares.

    Raises: ValueError for a file without the columns or networks, OSError.
    """
    takes_ms: dict[str, dict[tuple[str, int, int], float]] = {}
    with path.open(newline="", encoding="utf-8-sig") as file:
        rows = csv.DictReader(file)
        if not set(COLUMNS) <= set(rows.fieldnames or ()):
            raise ValueError(f"--profiles: {path.name} needs the columns {', '.join(COLUMNS)}")
        for row in rows:
            if row["gpu"] in MEASURED_PRICES:
                point = row["gpu"], int(row["batch"]), int(row["mps_share"])
                takes_ms.setdefault(row["model"], {})[point] = int(row["total_us"]) / 1000.0
    missing = {name for stages in NETWORKS.values() for name in stages.values()} - takes_ms.keys()
    if missing:
        raise ValueError(f"--profiles: {path.name} has no {', '.join(sorted(missing))}")
    return {name: Measured(table) for name, table in takes_ms.items()}


def applications_of(path: Path) -> dict[str, Application]:
    """The paper's, with such networks. Raises: as `read_networks`."""
    networks = read_networks(path)
    found = {}
    for name, stages in NETWORKS.items():
        made = APPLICATIONS[name]
        measured = {stage: networks[one] for stage, one in stages.items()}
        title = f"{name}, measured"
        found[title] = replace(made, name=title, stages={**made.stages, **measured}, prices=MEASURED_PRICES)
    return found


@cache
def paper_of(path: Path, duration_s: float = DURATION_S) -> Paper:
    """The comparison with these networks. The paper says nothing of them; what is asked is what is asked with its own.

    Raises: as `read_networks`.
    """
    experiments: dict[str, Experiment] = {}
    applications = applications_of(path)
    for application in applications.values():
        experiments |= experiments_of(application, compared_conditions(), duration_s)
    remark = f"The cluster and its clients are emulated; run times are those of {path.name}."
    return Paper(experiments, partial(statements, applications=[*applications], only_compares=True), remark)
