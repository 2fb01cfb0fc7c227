"""What `appliance models show` says of a variant."""

from typing import Any

import pytest

from appliance.cli.models import _avoids, _explain_kinds
from appliance.wire.catalogue import GivenUpShape, VariantShape


def test_models_show_names_avoided_kinds_and_how_to_release_them() -> None:
    """With the kind that serves meanwhile."""
    facts: dict[str, Any] = {"name": "int8", "avoids": ["openvino", "cuda"], "serves_on": "cpu"}
    variant = VariantShape.model_construct(**facts)
    assert _avoids("face", variant) == (
        "int8: its process has crashed on openvino, cuda; it serves on cpu until the next start of the box or: "
        "appliance models release face int8"
    )


def test_models_show_explains_chosen_and_given_up_kinds(capsys: pytest.CaptureFixture[str]) -> None:
    """Why the variant serves on its kind, and why it does not run on another."""
    given_up = GivenUpShape(kind="dla", reason="dla cannot compile it: its inputs are of free size")
    facts: dict[str, Any] = {"name": "int8", "profiles": [], "avoids": [], "awaited": [], "cut": None}
    reason = "a request costs 18.9 ms on openvino and 24.1 on cpu, loads and memory counted in"
    _explain_kinds("face", VariantShape.model_construct(**facts, kind_reason=reason, given_up=[given_up]))
    assert capsys.readouterr().out.splitlines() == [
        f"  int8: {reason}",
        "  int8: does not run on dla: dla cannot compile it: its inputs are of free size",
    ]
