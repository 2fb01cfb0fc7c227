"""The corpus against a real box: every request, and of the files those that take little time; the rest runs in
`scripts/bench attacks`.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.attacks.attacked_box import Attacked, attacked_box
from tests.attacks.corpus import archives, models, requests
from tests.attacks.running import Files, ask, upload

pytestmark = [pytest.mark.nightly("every hostile file against a server"), pytest.mark.usefixtures("processes", "ports")]

QUICK = 6
"""Files of each kind in the usual run, spread over the corpus."""
LONG = ("million-nodes", "hundred-thousand-nodes", "endless-loop", "long-loop", "bzip2-bomb", "xz-bomb")


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacked]:
    with attacked_box(tmp_path_factory.mktemp("attacked")) as attacked:
        yield attacked


def test_corpus_requests_get_their_status_and_box_serves_on(box: Attacked) -> None:
    assert ask(box, requests.REQUESTS) == []
    assert box.adds()
    assert "request failed" not in box.server.log()


@pytest.mark.parametrize("files", [models.FILES, archives.FILES], ids=["models", "archives"])
def test_corpus_files_are_refused_or_imported_and_box_serves_on(box: Attacked, tmp_path: Path, files: Files) -> None:
    """Refused with a sentence or imported, as the corpus says; no file is left behind."""
    names = [name for name in files if name not in LONG]
    assert upload(box, tmp_path, files, names[:: len(names) // QUICK]) == []
    assert box.adds()
