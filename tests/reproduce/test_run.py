"""What `scripts/reproduce` refuses, and how far it says that it is."""

import pytest

from reproduce.__main__ import main
from reproduce.run import counted


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["magic"], "invalid choice: 'magic'"),
        (["band", "--reference"], "--reference: goes with edge-multiai"),
        (["band", "--profiles", "block_timing.csv"], "--profiles: goes with scrooge"),
        (["edge-multiai", "--repetitions", "0"], "--repetitions: must be >= 1"),
    ],
)
def test_reproduce_refuses_options_that_do_not_fit(
    capsys: pytest.CaptureFixture[str], arguments: list[str], sentence: str
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    assert sentence in capsys.readouterr().err


def test_progress_without_a_terminal_begins_at_once_and_says_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    with counted("runs", 25) as step:
        for _ in range(25):
            step()
    lines = capsys.readouterr().err.splitlines()
    assert (lines[0], lines[-1].split(",")[0]) == ("runs: 25 to do", "runs: 25 of 25")
    assert lines[-1].endswith("about 0 s left")
