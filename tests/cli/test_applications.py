"""What cannot be asked of a change."""

import pytest
from typer.testing import CliRunner

from appliance.cli.main import app


@pytest.mark.parametrize(("options", "part"), [((), "say what to change"), (("--slo-ms", "5", "--no-slo"), "either")])
def test_applications_change_without_or_with_opposite_options_exits_2(options: tuple[str, ...], part: str) -> None:
    done = CliRunner().invoke(app, ["applications", "change", "door", *options])
    assert done.exit_code == 2
    assert part in done.stderr
