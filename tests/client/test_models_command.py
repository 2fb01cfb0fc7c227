"""`appliance models` against a running box."""

from tests.client.conftest import Port


def test_models_command_warns_of_too_few_samples(port: Port) -> None:
    """The model came without inputs, so that a handful of synthetic ones had to do."""
    shown = port.run("harbour", "models", "show", "digits")
    assert "4 samples cannot tell variants apart: with fewer than 30 none is excluded for a smaller one" in shown
