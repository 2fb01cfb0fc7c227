"""What a recipe is: from carriers to a folder that holds one model as a tenant would upload it, and the inputs that its
devices send.

    model.onnx  metadata.json  [labels.txt]  [tokenizer.json]  calibration/  [evaluation/ with truth.json]  inputs/

A recipe names the carriers it cannot do without and, best first, the sets of carriers that can give its inputs; the
first set at hand is used.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from appliance.demo.zoo.carriers import Carrier
from appliance.demo.zoo.errors import CacheUnusable, ZooError
from appliance.demo.zoo.package_cache import PackageCache


@dataclass(frozen=True, slots=True)
class RecipeContext:
    """Where a recipe works: `packages` for carriers, `folder` to fill, `has` = keys of the carriers it may use."""

    packages: PackageCache
    folder: Path
    has: frozenset[str]

    @property
    def model(self) -> Path:
        return self.folder / "model.onnx"

    @property
    def calibration(self) -> Path:
        return self.folder / "calibration"

    @property
    def evaluation(self) -> Path:
        return self.folder / "evaluation"

    @property
    def inputs(self) -> Path:
        return self.folder / "inputs"

    def file(self, key: str, name: str) -> Path:
        """A file of a carrier. Raises `ZooError`."""
        return self.packages.file(key, name)

    def metadata(self, task: str, **entries: Any) -> None:
        """Write metadata.json: the fields of `TaskSpec`, with the task's name."""
        text = json.dumps({"task": task, **entries}, ensure_ascii=False, indent=1)
        (self.folder / "metadata.json").write_text(text, encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Recipe:
    """One model of the zoo."""

    name: str
    """Of the model and its application."""
    tenant: str
    task: str
    carriers: tuple[str, ...]
    """Keys of those that it cannot do without."""
    media: tuple[tuple[str, ...], ...]
    """Sets of carriers for calibration, evaluation and inputs, best first."""
    build: Callable[[RecipeContext], None]
    rate_rps: float
    """Requests a second that the demo's devices send."""
    show: str
    """What a person should look at."""
    revision: int = 1
    """Raised when `build` makes something else from the same carriers."""

    @property
    def id(self) -> str:
        return f"{self.tenant}-{self.name}"


def made(recipe: Recipe, packages: PackageCache) -> tuple[Path, list[str]]:
    """The finished folder of `recipe`, from the cache or made now, and what was to be said about it.

    Raises `ZooError` when a carrier that it needs, or every set of inputs, cannot be had.
    """
    for key in recipe.carriers:
        packages.folder(key)
    has, said = _media_at_hand(recipe, packages)
    parts = ("derived", f"{recipe.id}-{_fingerprint(recipe, has, packages.carriers)}")
    found = packages.cache.finished(*parts)
    if found is None:
        packages.progress(f"making {recipe.name}", 0, None)
        try:
            with packages.cache.staging() as staging:
                (staging / "made").mkdir()
                recipe.build(RecipeContext(packages, staging / "made", has))
                found = packages.cache.keep(staging / "made", *parts)
        except OSError as error:
            raise CacheUnusable(carrier=recipe.name, reason=str(error)) from error
    return found, said


def _media_at_hand(recipe: Recipe, packages: PackageCache) -> tuple[frozenset[str], list[str]]:
    said: list[str] = []
    for rank, choice in enumerate(recipe.media):
        try:
            for key in choice:
                packages.folder(key)
        except ZooError as error:
            if rank + 1 == len(recipe.media):
                raise
            said.append(f"{recipe.name} uses other inputs: {error}")
        else:
            return frozenset((*recipe.carriers, *choice)), said
    return frozenset(recipe.carriers), said


def _fingerprint(recipe: Recipe, has: frozenset[str], carriers: Mapping[str, Carrier]) -> str:
    """Changes with the recipe's revision and with any file of any carrier used."""
    digest = hashlib.sha256(f"{recipe.id} {recipe.revision}".encode())
    for key in sorted(has):
        for taken in carriers[key].files:
            digest.update(f"{key} {taken.name} {taken.sha256}".encode())
    return digest.hexdigest()[:16]
