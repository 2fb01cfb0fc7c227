"""Scrooge's comparisons with networks that others have measured, from a file in the form of theirs."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from reproduce.claims import by_repetition, jobs_of
from reproduce.run import reproduce
from reproduce.scrooge.measured import (
    NETWORKS,
    T4,
    applications_of,
    experiments_of,
    read_networks,
    run_job,
    statements,
)

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
    path = written(tmp_path / "blocks.csv")
    made = experiments_of(path, 2.0)
    results = [(job, made[job.experiment](job.repetition)) for job in jobs_of([*made], 1)]
    claims = statements(by_repetition(results))
    assert len(claims) == 3 * 7
    assert sum(claim.holds is not None for claim in claims) == 3 * 4


def test_measured_job_reads_the_profile_file_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from reproduce.scrooge import measured

    path = written(tmp_path / "blocks.csv")
    made = experiments_of(path, 1.0)
    monkeypatch.setattr(measured, "experiments_of", lambda given: made if given == path else {})
    (job, *_) = jobs_of([*made], 1)
    assert run_job(path, job)[0] == job


@pytest.mark.parametrize(
    ("text", "said"),
    [("model,gpu\n", "needs the columns"), ("model,gpu,mps_share,batch,total_us\n", "has no")],
)
def test_malformed_profile_file_is_refused(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "other.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=said):
        read_networks(path)
    with pytest.raises(ValueError, match=said):
        reproduce("scrooge", 1, reference=False, as_json=True, profiles=path)


def test_profiles_option_is_refused_for_other_papers(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="--profiles: goes with"):
        reproduce("band", 1, reference=False, as_json=True, profiles=tmp_path)
