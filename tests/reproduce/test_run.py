"""What `scripts/reproduce` refuses."""

from pathlib import Path

import pytest

from reproduce.run import reproduce


@pytest.mark.parametrize(
    ("paper", "options", "sentence"),
    [
        ("magic", {}, "PAPER: 'magic' is not one of: arise, band, edge-multiai, jellyfish, scrooge"),
        ("band", {"reference": True}, "--reference: goes with edge-multiai"),
        ("band", {"profiles": Path("block_timing.csv")}, "--profiles: goes with scrooge"),
        ("edge-multiai", {"repetitions": 0}, "--repetitions: must be >= 1"),
    ],
)
def test_reproduce_refuses_options_that_do_not_fit(paper: str, options: dict[str, object], sentence: str) -> None:
    whole = {"repetitions": 1, "reference": False, "as_json": True, **options}
    with pytest.raises(ValueError, match=f"^{sentence}$"):
        reproduce(paper, **whole)  # type: ignore[arg-type]
