"""What an application knows of its variants."""

import pytest

from appliance.policies.residency.base import ApplicationState, Option


def test_application_state_refuses_a_variant_of_another_application() -> None:
    options = (Option("fp32", 40, 40, 90.0, 1000), Option("int8", 10, 10, 80.0, 300))
    state = ApplicationState("a", options, None)
    assert state.variant("int8") == options[1]
    with pytest.raises(KeyError, match="fp16"):
        state.variant("fp16")
