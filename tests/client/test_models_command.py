"""`appliance models` against a running box."""

from typer.testing import CliRunner

from appliance.cli.main import app
from tests.client.conftest import Port


def test_models_command_warns_of_too_few_samples(port: Port) -> None:
    """The model came without inputs, so that a handful of synthetic ones had to do."""
    arguments = ["models", "show", "digits", "--url", port.url, "--key", port.keys["harbour"]]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.stderr
    assert "4 samples cannot tell variants apart: with fewer than 30 none is excluded for a smaller one" in done.stdout
