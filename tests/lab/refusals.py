"""What is refused of a problem or a scenario."""

from collections.abc import Callable
from typing import Any

import pytest

from appliance.lab.plan import plan_one
from appliance.lab.problems.base import Malformed


def refusal(problem: Any, read: Callable[[Any], object] = plan_one) -> str:
    """The one line in which it is refused."""
    with pytest.raises(Malformed) as caught:
        read(problem)
    assert "\n" not in str(caught.value)
    return str(caught.value)
