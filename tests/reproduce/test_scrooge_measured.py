"""Scrooge's comparisons with networks that others have measured, from a file in the form of theirs."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from reproduce.__main__ import main
from reproduce.claims import UNSAID
from reproduce.scrooge.measured import NETWORKS, T4, applications_of, paper_of, read_networks

pytestmark = pytest.mark.nightly("experiments of the papers")

MODELS = sorted({name for stages in NETWORKS.values() for name in stages.values()})
SHARES = {1: 8, 2: 4, 3: 2, 4: 2}
"""How many equal shares of a GPU → the largest batch that was measured on one."""


def written(path: Path, models: Sequence[str] = MODELS) -> Path:
    """Each item 4 ms on a V100 and 12 on a T4, and 5 ms whatever the batch; a share takes a little less than in
    proportion.
    """
    rows = ["model,gpu,mps_share,batch,total_us,block_us"]
    for model in models:
        for gpu, slower in (("V100", 1), ("T4", 3), ("P4", 4)):
            for share, most in SHARES.items():
                for batch in range(1, most + 1):
                    ms = (5 + 4 * batch) * slower * share**0.85
                    rows.append(f"{model},{gpu},{share},{batch},{round(1000 * ms)},1 2")
    path.write_text("\n".join(rows) + "\n")
    return path


def test_measured_profiles_offer_only_measured_batches_and_shares(tmp_path: Path) -> None:
    """By batch and share, on the GPUs that have a price; and it takes as long as it did."""
    networks = read_networks(written(tmp_path / "blocks.csv"))
    assert set(networks) == set(MODELS)
    profiles = networks[MODELS[0]].profiles
    assert {one.worker for one in profiles} == {"V100", T4}
    assert len(profiles) == 2 * sum(SHARES.values())
    traffic = applications_of(tmp_path / "blocks.csv")["traffic, measured"]
    assert traffic.run_ms("inception", "V100", 2, 1) == 13.0
    assert {worker.name for worker in traffic.workers} == {"V100", T4, "cpu"}
    for one in traffic.profiles("inception"):
        for batch in range(1, one.batch + 1):
            for running in range(1, one.concurrency + 1):
                traffic.run_ms("inception", one.worker, batch, running)


def test_measured_experiments_give_every_claimed_number(tmp_path: Path) -> None:
    """Two seconds of each."""
    made = paper_of(written(tmp_path / "blocks.csv"), 2.0)
    numbers = {name: value for experiment in made.experiments.values() for name, value in experiment(1).items()}
    claims = made.statements([numbers])
    assert sum(claim.holds is not None for claim in claims) == 3 * 4
    assert all(claim.paper == UNSAID for claim in claims)


@pytest.mark.parametrize(
    ("text", "said"),
    [("model,gpu\n", "needs the columns"), ("model,gpu,mps_share,batch,total_us\n", "has no")],
)
def test_malformed_profile_file_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, said: str
) -> None:
    path = tmp_path / "other.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=said):
        read_networks(path)
    assert main(["scrooge", "--repetitions", "1", "--profiles", str(path)]) == 2
    assert said in capsys.readouterr().err
