"""Hostile values and shapes in every reviewed operator end nobody: a few of each here, more in `scripts/bench`."""

from collections.abc import Iterator

import numpy as np
import pytest

from tests.attacks.operators import NETWORKS, Child, Network, attack, is_harmless, model_of, types_of, unlisted

pytestmark = pytest.mark.usefixtures("processes")


@pytest.fixture
def child() -> Iterator[Child]:
    running = Child()
    yield running
    running.close()


def test_reviewed_operators_are_all_attacked() -> None:
    """An operator that joins the list joins the attack, and each network has a kernel to attack."""
    assert unlisted() == []
    assert [network.name for network in NETWORKS if not types_of(network)] == []


@pytest.mark.nightly("every operator with odd values")
def test_hostile_values_and_shapes_end_no_kernel_process(child: Child) -> None:
    """The process of the kernels answers each: with a result, or with a refusal."""
    answers: dict[str, set[str]] = {}
    for network in NETWORKS:
        attack(network, child, 2, answers.setdefault(network.name, set()).add)
    ended = {name: found for name, found in answers.items() if not all(map(is_harmless, found))}
    assert ended == {}
    assert sum("ok" in found for found in answers.values()) > len(answers) / 2, "the attack reaches the kernels"


@pytest.mark.parametrize("name", ["Div", "Mod"])
def test_operator_attack_finds_a_kernel_that_traps(child: Child, name: str) -> None:
    """The smallest integer by -1, which the review refuses: the child dies, and the next one serves."""
    network = Network(name, (("int64", "N"), np.array([-1], np.int64)))
    feeds = {"x0": np.array([-(2**63)], np.int64)}
    assert child.run(model_of(network, "int64"), feeds).startswith("died: -")
    assert child.run(model_of(network, "int64"), {"x0": np.array([1], np.int64)}) == "ok"
