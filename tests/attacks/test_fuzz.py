"""Calls generated from the OpenAPI document, as every role: a bounded run; `scripts/bench fuzz` runs the whole."""

from collections.abc import Iterator

import pytest

from tests.attacks.attacked_box import ROLES, Attacked, attacked_box
from tests.attacks.fuzz import fuzz

pytestmark = [pytest.mark.nightly("fuzzed requests to a server"), pytest.mark.usefixtures("processes", "ports")]


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacked]:
    with attacked_box(tmp_path_factory.mktemp("fuzzed")) as attacked:
        yield attacked


@pytest.mark.parametrize("role", ROLES)
def test_fuzzed_requests_get_documented_answers_only(box: Attacked, role: str) -> None:
    """No 500, no status, type, body or header that the OpenAPI document does not name."""
    found = fuzz(box.server.url, box.keys[role], examples=1, seconds=10, seed=1)
    assert found.cases >= 10
    assert found.wrong == []
    assert box.server.process.poll() is None
